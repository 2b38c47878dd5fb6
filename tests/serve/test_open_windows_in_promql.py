"""Windows that have not ended are not shown over the Prometheus API, also at moments in the future."""

import time
from urllib.parse import urlencode

import pyarrow as pa
import pytest

import aggr
from tests.serve.servers import make_store, serving
from tiltframe import TiltFrame

pytestmark = [pytest.mark.store, pytest.mark.slow]

HOUR = 3600


@pytest.mark.parametrize("expression", ["sum(increase(n_total[1h]))", "delta_of_n"])
def test_moments_in_the_future_show_no_open_window(tmp_path, expression):
    """Each hour before the current one has an event each minute, and so has the current hour until now."""
    now = int(time.time())
    first = now // HOUR * HOUR - 2 * HOUR
    times = pa.array(range(first, now, 60)).cast(pa.timestamp("s", "UTC"))
    frame = TiltFrame(["1h"], "ts", {"n": aggr.count(), "delta_of_n": aggr.avg("x")})
    # In each hour, the average is the minute of the last event, halved.
    rows = pa.table({"ts": times, "x": [(at.as_py().minute * 1.0) for at in times]})
    make_store(tmp_path / "web", frame=frame, data=rows)
    complete = {"60"} if "increase" in expression else {"29.5"}
    with serving(tmp_path, tmp_path / "web") as server:
        words = urlencode({"query": expression, "start": first, "end": first + 4 * HOUR, "step": HOUR})
        [series] = server.ask(f"/api/v1/query_range?{words}").json()["data"]["result"]
        assert {value for _, value in series["values"]} == complete
        for moment in (now + 1, first + 3 * HOUR, first + 4 * HOUR):
            words = urlencode({"query": expression, "time": moment})
            result = server.ask(f"/api/v1/query?{words}").json()["data"]["result"]
            assert {sample["value"][1] for sample in result} <= complete
