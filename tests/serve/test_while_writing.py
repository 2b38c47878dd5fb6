"""Every answer is from one version of the store, while another process commits and compacts."""

from __future__ import annotations

import subprocess
import sys
import threading
from urllib.parse import urlencode

import pyarrow as pa
import pytest

import aggr
from tests.serve.servers import make_store, serving
from tiltframe import TiltFrame

pytestmark = [pytest.mark.store, pytest.mark.slow]

COMMITS, HOURS, HOSTS = 15, 3, ("a", "b", "c")
BEGIN = 1_714_557_600
END = BEGIN + HOURS * 3600
FRAME = TiltFrame(["1m", "1h"], "ts", {"n": aggr.count(), "bytes": aggr.sum("bytes")}, ["host"])
WRITER = """
import sys
from tests.serve.test_while_writing import COMMITS, events
from tiltframe import FrameStore
store = FrameStore(sys.argv[1])
for number in range(2, COMMITS + 1):
    store.append_rows(events(), "test", number)
    if number % 4 == 0:
        store.compact()
"""


def events():
    """Make what every commit brings: of each host an event every ten minutes, of seven bytes."""
    times = [(BEGIN + second) * 1000 for second in range(0, HOURS * 3600, 600) for _ in HOSTS]
    return pa.table({"ts": times, "host": list(HOSTS) * (HOURS * 6), "bytes": [7] * len(times)})


def of_hours(server):
    rows = server.query(store="web", per="1h").json()["rows"]
    assert len(rows) == HOURS * len(HOSTS)
    assert {row["bytes"] / row["n"] for row in rows} == {7}
    return {row["n"] / 6 for row in rows}


def of_all(server):
    (row,) = server.query(store="web", per="all", keys="").json()["rows"]
    return {row["n"] / (6 * HOURS * len(HOSTS)), row["bytes"] / (7 * 6 * HOURS * len(HOSTS))}


def of_promql(server):
    query = "sum(increase(bytes[1h])) / 7 == sum(increase(n_total[1h]))"  # two selectors, of one version
    words = {"query": query, "start": BEGIN + 3600, "end": END, "step": 3600}
    (series,) = server.ask(f"/api/v1/query_range?{urlencode(words)}").json()["data"]["result"]
    assert len(series["values"]) == HOURS, "both sides are of one version"
    return {float(value) / (6 * len(HOSTS)) for _, value in series["values"]}


def of_minutes(server):
    words = {"query": "sum by (host) (increase(n_total[10m]))", "start": BEGIN + 600, "end": END, "step": 600}
    result = server.ask(f"/api/v1/query_range?{urlencode(words)}").json()["data"]["result"]
    return {float(value) for series in result for _, value in series["values"]}


@pytest.mark.long
def test_every_answer_is_of_one_version(tmp_path):
    make_store(tmp_path / "web", frame=FRAME, data=events())
    wrong, seen = [], {client_function.__name__: [] for client_function in (of_hours, of_all, of_promql, of_minutes)}
    with serving(tmp_path, tmp_path / "web") as server:
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path / "web")])

        def client(question):
            try:
                while True:
                    last = writer.poll() is not None
                    (commits,) = question(server)
                    seen[question.__name__].append(commits)
                    if last:
                        return
            except BaseException as error:
                wrong.append(error)

        threads = [
            threading.Thread(target=client, args=(client_function,))
            for client_function in (of_hours, of_all, of_promql, of_minutes)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert writer.wait() == 0
    if wrong:
        raise wrong[0]
    for commits in seen.values():
        assert commits == sorted(commits), "nobody sees an older version after a newer one"
        assert set(commits) <= set(range(1, COMMITS + 1))
        assert commits[-1] == COMMITS
        assert len(set(commits)) > 2, "they were asked while it was written"
