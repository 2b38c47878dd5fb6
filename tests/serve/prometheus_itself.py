"""Write the answers of Prometheus about the events of the tests: ``python -m tests.serve.prometheus_itself``.

It needs Debian's package ``prometheus``, which also contains ``promtool``. Counters are sampled at the end of each
window of ten seconds, as if Prometheus had scraped them then. Series begin with a sample of 0, so that Prometheus does
not extrapolate.

The script queries this server and Prometheus by ``promtool``, and fails unless both print the same. A second
Prometheus, which has no samples of its own, reads them from this server by remote read. It must give the same answers,
and alert on a store of the last hours. Its requests to this server are also written.
"""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import numpy as np
import pyarrow as pa

from tests.serve.prometheus_chunks import read_chunk, read_frames
from tests.serve.prometheus_world import BEGIN, rows, serving, store_of
from tiltframe.serve.promql.xor_chunks import encode_chunks
from tiltframe.store.backends.memory import MemoryBackend

ANSWERS = Path(__file__).with_name("prometheus_answers.json")
REQUESTS = Path(__file__).with_name("prometheus_reads.json")
HOURS = 3
_AT = BEGIN + 5400
QUERIES = [  # at moments that windows end at
    *(f"{f}(requests_total[{r}])" for f in ("rate", "increase") for r in ("10m", "1h")),
    'increase(requests_total{host=~"a|w.*",code!="200"}[10m])',
    'increase(requests_total{host!="a",code!~"2.."}[10m])',
    "sum by (host) (rate(requests_total[10m]))",
    "sum without (code, store) (increase(requests_total[30m]))",
    "max by (code) (increase(requests_total[10m]))",
    "min(increase(requests_total[10m]))",
    "count by (code) (increase(requests_total[10m]))",
    "avg by (code) (increase(requests_total[1h]))",
    "quantile by (code) (0.3, increase(requests_total[1h]))",
    "topk by (code) (1, increase(requests_total[1h]))",
    "bottomk(1, sum by (host) (increase(requests_total[1h])))",
    "increase(requests_total[1h]) / increase(requests_total[1h] offset 30m)",
    'increase(requests_total{code="500"}[1h]) / ignoring (code) increase(requests_total{code="200"}[1h])',
    'increase(requests_total{code="500"}[1h]) / on (host) increase(requests_total{code="200"}[1h])',
    "increase(requests_total[1h]) > 100",
    "topk(1, increase(requests_total[1h]) < 100)",
    "max(increase(requests_total[1h]) < 100)",
    "increase(requests_total[1h]) > bool 100",
    "100 < increase(requests_total[1h])",
    'increase(requests_total{code="404"}[1h]) > ignoring (code) increase(requests_total{code="500"}[1h])',
    "5 - -increase(requests_total[1h]) % 7 + 2 ^ 3 ^ 0.5",
    "max_over_time(increase(requests_total[10m])[59m:10m])",
    "avg_over_time(sum by (code) (increase(requests_total[10m]))[59m:20m])",
    "count_over_time(sum by (code) (increase(requests_total[10m]))[59m:10m])",
    "(2 + 3 * 4 - 1) / 7",
    "1 / 0 - 1",
    "1 < bool 2",
    "increase(nothing[1h])",
    "increase(requests_total[1h]) > 100 and increase(requests_total[10m]) > 20",
    'increase(requests_total[1h]) and on (host) (increase(requests_total{code="500"}[1h]) > 20)',
    "increase(requests_total[1h]) and ignoring (code, host, store) nothing",
    "increase(requests_total[1h]) > 300 or increase(requests_total[10m]) > 10",
    'increase(requests_total{code="404"}[1h]) or on (host) increase(requests_total[1h])',
    'sum by (host) (increase(requests_total{code="404"}[1h])) or sum(increase(requests_total[1h])) or nothing',
    'increase(requests_total{code=~"200|404"}[1h]) unless increase(requests_total[1h]) > 100',
    'increase(requests_total[1h]) unless on (host) (increase(requests_total{code="500"}[1h]) > 20)',
    "increase(requests_total[1h]) unless on () (sum(increase(requests_total[1h])) < 0)",
    "sum(increase(nothing[1h])) or vector(0)",
    'absent(nothing{a="b",c="",d!="e",f=~"g",h="1",h="2"})',
    'absent(sum(nothing{a="b"}))',
    "absent(requests_total)",
    'absent(increase(requests_total{code="200"}[1h]) > 1e9)',
    'absent_over_time(nothing{a="b"}[1h])',
    'absent_over_time(requests_total{code="200"}[1h])',
    "absent_over_time((increase(requests_total[10m]) > 1e9)[59m:10m])",
]


def openmetrics(data, step=10) -> str:
    """Write the events of each host and code as a counter that is sampled at the end of each window."""
    times, hosts, codes = (np.array(data[name].to_pylist(), object) for name in ("ts", "host", "code"))
    window_ends = np.arange(BEGIN, BEGIN + HOURS * 3600 + 1, step)
    lines = ["# TYPE requests counter"]
    for host, code in sorted({(h or "", c) for h, c in zip(hosts, codes, strict=True)}):
        chosen = np.array([(h or "") == host and c == code for h, c in zip(hosts, codes, strict=True)])
        counts = np.searchsorted(np.sort(times[chosen].astype(np.int64)), window_ends * 1000)
        labels = f'store="web",code="{code}"' + (f',host="{host}"' if host else "")
        lines += [f"requests_total{{{labels}}} {n} {at}" for n, at in zip(counts, window_ends, strict=True)]
    return "\n".join([*lines, "# EOF", ""])


def answers_of(url: str, queries: Iterable[str] = QUERIES) -> dict[str, list]:
    """Ask queries at once: of each, what the series are and their values."""
    results_by_query = {}
    for query in queries:
        with urlopen(f"{url}/api/v1/query?" + urlencode({"query": query, "time": _AT})) as answer:
            data = json.load(answer)["data"]
        results_by_query[query] = (
            sorted(data["result"], key=json.dumps) if data["resultType"] == "vector" else data["result"]
        )
    return results_by_query


@contextmanager
def prometheus(folder: Path, port: int, config: str, *words: str):
    """Run Prometheus on what a folder has."""
    (folder / "config.yml").write_text(config)
    command = ["prometheus", f"--config.file={folder}/config.yml", f"--storage.tsdb.path={folder}/data", *words]
    with subprocess.Popen([*command, f"--web.listen-address=127.0.0.1:{port}"], stderr=subprocess.DEVNULL) as process:
        try:
            _wait(url := f"http://127.0.0.1:{port}")
            yield url
        finally:
            process.terminate()


def main() -> None:
    """Run Prometheus over the events, write its answers down, and compare what promtool prints of both."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "events").write_text(openmetrics(rows()))
        blocks = ["promtool", "tsdb", "create-blocks-from", "openmetrics", place / "events", place / "data"]
        subprocess.run(blocks, check=True, stdout=subprocess.DEVNULL)
        with prometheus(place, 19490, "{}", "--storage.tsdb.retention.time=100y") as url:
            answers = answers_of(url)
            ANSWERS.write_text(json.dumps(answers, ensure_ascii=False, indent=1) + "\n")
            with serving({"web": store_of(MemoryBackend())}) as server:
                _compare(url, server.url)
            compare_chunks(url)
    print(f"{len(QUERIES)} answers of Prometheus are in {ANSWERS.name}")
    _read_remotely(answers)
    _alert()


def compare_chunks(url: str) -> None:
    """Read the chunks that Prometheus streams, and encode their samples again, in the same bytes."""
    matcher = b"\x12\x08__name__\x1a\x0erequests_total"
    query = b"\x08\x00\x10" + b"\xff" * 8 + b"\x7f" + b"\x1a" + bytes([len(matcher)]) + matcher
    body = pa.compress(b"\x0a" + bytes([len(query)]) + query + b"\x10\x01", "snappy", asbytes=True)
    with urlopen(Request(f"{url}/api/v1/read", body, {"Content-Encoding": "snappy"})) as answer:
        stream = answer.read()
    compared = 0
    for _, chunks in read_frames(stream):
        for first, last, data in chunks:
            times, values = (np.array(column) for column in zip(*read_chunk(data), strict=True))
            if encode_chunks(times, values, np.zeros(len(times), np.int64)) != [(0, first, last, data)]:
                sys.exit(f"a chunk of Prometheus from {first} is encoded otherwise")
            compared += 1
    if not compared:
        sys.exit("Prometheus streams no chunks")
    print(f"{compared} chunks of Prometheus are encoded in the same bytes")


def _read_remotely(answers: dict[str, list]) -> None:
    """Have a Prometheus without samples read those of the server, compare, and write down what it asked."""
    bodies: list[bytes] = []

    def listening(app):
        async def recorded(scope, receive, send):
            async def receive_and_keep():
                message = await receive()
                bodies.append(message.get("body", b""))
                return message

            await app(scope, receive_and_keep, send)

        return recorded

    requests = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        serving({"web": store_of(MemoryBackend())}, before=listening) as server,
        prometheus(Path(folder), 19491, _remote(server.url)) as url,
    ):
        for query in QUERIES:
            bodies.clear()
            (results,) = answers_of(url, [query]).values()
            requests[query] = [base64.b64encode(body).decode() for body in bodies if body]
            if _figures(results) != _figures(answers[query]):
                sys.exit(f"{query} by remote read: {results} and {answers[query]}")
        bodies.clear()
        with urlopen(f"{url}/api/v1/series?match[]=requests_total") as answer:  # of all of time
            if not json.load(answer)["data"]:
                sys.exit("there are no series by remote read")
        requests["series"] = [base64.b64encode(body).decode() for body in bodies if body]
    REQUESTS.write_text(json.dumps(requests, ensure_ascii=False, indent=1) + "\n")
    print(f"by remote read it answers the same; what it asked is in {REQUESTS.name}")


def _remote(url: str) -> str:
    return json.dumps({"remote_read": [{"url": f"{url}/api/v1/read", "read_recent": True}], "rule_files": ["*.rules"]})


def _figures(result: list) -> list:
    return sorted(re.sub(r"[0-9.]{13,}", _rounded, json.dumps(sample, sort_keys=True)) for sample in result)


def _alert() -> None:
    """Have Prometheus alert on a store of the last hours."""
    now = int(time.time() * 1000)
    times = np.arange(now - 7_200_000, now, 1000)
    hosts = np.array(["a", "b", "b"])[np.arange(len(times)) % 3]
    codes = np.where((hosts == "b") & (times > now - 1_200_000), 500, 200)
    store = store_of(
        MemoryBackend(),
        rows(len(times)).set_column(0, "ts", [times]).set_column(1, "host", [hosts]).set_column(2, "code", [codes]),
    )
    rule = {"alert": "Errors", "expr": 'sum by (host) (increase(requests_total{code="500"}[10m])) > 100'}
    rules = json.dumps({"groups": [{"name": "web", "interval": "1s", "rules": [rule]}]})
    with tempfile.TemporaryDirectory() as folder, serving({"web": store}) as server:
        (Path(folder) / "web.rules").write_text(rules)
        subprocess.run(["promtool", "check", "rules", f"{folder}/web.rules"], check=True, stdout=subprocess.DEVNULL)
        with prometheus(Path(folder), 19492, _remote(server.url)) as url:
            for _ in range(100):
                with urlopen(f"{url}/api/v1/alerts") as answer:
                    alerts = json.load(answer)["data"]["alerts"]
                if alerts:
                    break
                time.sleep(0.2)
    if [(alert["state"], alert["labels"]) for alert in alerts] != [("firing", {"alertname": "Errors", "host": "b"})]:
        sys.exit(f"Prometheus alerts otherwise: {alerts}")
    print("it alerts on what it reads remotely")


def _wait(url: str) -> None:
    for _ in range(300):
        try:
            urlopen(f"{url}/-/ready").close()
            return
        except OSError:
            time.sleep(0.1)
    raise SystemExit("Prometheus does not get ready")


def _compare(*urls: str) -> None:
    """Compare what promtool prints of servers, but for its warnings."""
    start, end = f"--start={_AT - 1800}", f"--end={_AT}"
    increase_query = "sum by (code) (increase(requests_total[10m]))"
    for words in (
        *(["query", "instant", "URL", query, f"--time={_AT}"] for query in QUERIES),
        ["query", "range", "URL", increase_query, start, end, "--step=10m"],
        ["query", "range", "URL", f"{increase_query} > 100 or {increase_query}", start, end, "--step=10m"],
        ["query", "series", "URL", '--match=requests_total{host=~"a|w.*"}'],
        ["query", "labels", "URL", "host"],
        ["query", "labels", "URL", "code"],
    ):
        printed = []
        for url in urls:
            command = ["promtool", *(url if word == "URL" else word for word in words)]
            run = subprocess.run(command, capture_output=True, text=True, check=False)
            if run.returncode:
                sys.exit(f"{words} of {url}: {run.stdout}{run.stderr}")
            printed.append(sorted(re.sub(r"[0-9.]{13,}", _rounded, line) for line in run.stdout.splitlines()))
        if printed[0] != printed[1]:
            sys.exit(f"{words}: {printed[0]} and {printed[1]}")
    print("promtool prints the same of both")


def _rounded(number: re.Match[str]) -> str:
    """Round a number to twelve digits: Prometheus multiplies by a factor of extrapolation, here of 1, and rounds."""
    return f"{float(number[0]):.12g}"


if __name__ == "__main__":
    main()
