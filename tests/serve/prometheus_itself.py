"""Prometheus itself on the same events: ``python -m tests.serve.prometheus_itself`` writes what it answers to a file.

It needs Debian's package ``prometheus``, which has ``promtool`` as well. Counters are sampled at the end of each window
of ten seconds, as if scraped then; series begin with a sample of 0, so that Prometheus has nothing to extrapolate.
The script then asks this server and Prometheus by ``promtool``, and fails unless both print the same.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import urlopen

import numpy as np

from tests.serve.prometheus_world import BEGIN, rows, serving, store_of
from tiltframe.store.backends.memory import MemoryBackend

ANSWERS = Path(__file__).with_name("prometheus_answers.json")
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
    ends = np.arange(BEGIN, BEGIN + HOURS * 3600 + 1, step)
    lines = ["# TYPE requests counter"]
    for host, code in sorted({(h or "", c) for h, c in zip(hosts, codes, strict=True)}):
        chosen = np.array([(h or "") == host and c == code for h, c in zip(hosts, codes, strict=True)])
        counts = np.searchsorted(np.sort(times[chosen].astype(np.int64)), ends * 1000)
        labels = f'store="web",code="{code}"' + (f',host="{host}"' if host else "")
        lines += [f"requests_total{{{labels}}} {n} {at}" for n, at in zip(counts, ends, strict=True)]
    return "\n".join([*lines, "# EOF", ""])


def answers_of(url: str) -> dict[str, list]:
    """Ask all queries at once: of each, what the series are and their values."""
    found = {}
    for query in QUERIES:
        with urlopen(f"{url}/api/v1/query?" + urlencode({"query": query, "time": _AT})) as answer:
            data = json.load(answer)["data"]
        found[query] = sorted(data["result"], key=json.dumps) if data["resultType"] == "vector" else data["result"]
    return found


def main() -> None:
    """Run Prometheus over the events, write its answers down, and compare what promtool prints of both."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "events").write_text(openmetrics(rows()))
        (place / "none.yml").write_text("{}")
        blocks = ["promtool", "tsdb", "create-blocks-from", "openmetrics", place / "events", place / "data"]
        subprocess.run(blocks, check=True, stdout=subprocess.DEVNULL)
        url = "http://127.0.0.1:19490"
        words = [
            f"--config.file={place}/none.yml",
            f"--storage.tsdb.path={place}/data",
            "--web.listen-address=127.0.0.1:19490",
        ]
        retention = "--storage.tsdb.retention.time=100y"
        with subprocess.Popen(["prometheus", *words, retention], stderr=subprocess.DEVNULL) as prometheus:
            try:
                _wait(url)
                ANSWERS.write_text(json.dumps(answers_of(url), ensure_ascii=False, indent=1) + "\n")
                with serving({"web": store_of(MemoryBackend())}) as server:
                    _compare(url, server.url)
            finally:
                prometheus.terminate()
    print(f"{len(QUERIES)} answers of Prometheus are in {ANSWERS.name}")


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
    asked = "sum by (code) (increase(requests_total[10m]))"
    for words in (
        *(["query", "instant", "URL", query, f"--time={_AT}"] for query in QUERIES),
        ["query", "range", "URL", asked, start, end, "--step=10m"],
        ["query", "range", "URL", f"{asked} > 100 or {asked}", start, end, "--step=10m"],
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
