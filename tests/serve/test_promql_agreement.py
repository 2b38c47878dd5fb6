"""Random PromQL: this server and a Prometheus that reads it by remote read agree, beyond the documented differences of
windows and samples (`tests.serve.random_promql`).
"""

from __future__ import annotations

import collections
import json
import math
import os
import random
import shutil
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import urlopen

import numpy as np
import pyarrow as pa
import pytest

import aggr
from tests.serve.prometheus_itself import prometheus
from tests.serve.prometheus_world import BEGIN, serving, store_of
from tests.serve.random_promql import BOUNDS, LEVELS, Drawing
from tests.serve.servers import free_port
from tiltframe import TiltFrame
from tiltframe.serve.promql.classic_buckets import BucketBounds
from tiltframe.store.backends.memory import MemoryBackend

pytestmark = [
    pytest.mark.store,
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="no Prometheus is installed"),
]
TRIALS = int(os.environ.get("TRIALS", "150"))
SEED = int(os.environ.get("TILTFRAME_SEED", random.randrange(10**6)))
ACCURACY = 0.01  # the relative accuracy of the sketch
HOURS = 3
END = BEGIN + HOURS * 3600
FRAME = TiltFrame(
    list(LEVELS),
    "ts",
    {
        "requests": aggr.count(),
        "bytes": aggr.sum("bytes"),
        "seconds": aggr.sum("seconds"),
        "latency": aggr.dds("seconds", [0.5], relative_accuracy=ACCURACY),
        "rounded": aggr.hdr("seconds", [0.5], unit=0.001),
        "size": aggr.histogram("seconds", [0.5, 1, 2, 4]),
        "fastest": aggr.min("seconds"),
        "slowest": aggr.max("seconds"),
        "mean": aggr.avg("seconds"),
        "spread": aggr.stdev("seconds"),
        "newest": aggr.last("seconds"),
    },
    ["host", "code"],
)


def make_rows(count=5000):
    """Return rows of some hours, with a busy middle and an event in the last window; many windows have no rows."""
    rng = np.random.default_rng(3)
    offsets = np.clip(rng.normal(0.5, 0.25, count), 0, 0.9999) * HOURS * 3_600_000
    offsets[-1] = HOURS * 3_600_000 - 1
    return pa.table(
        {
            "ts": rng.permutation(BEGIN * 1000 + offsets.astype(np.int64)),
            "host": pa.array(rng.choice(np.array(["a", "b", "w.2", "ü", None], object), count), pa.string()),
            "code": rng.choice([200, 404, 500], count, p=[0.8, 0.15, 0.05]),
            "bytes": rng.integers(1, 2**30, count),
            "seconds": rng.lognormal(0, 1, count),
        }
    )


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """Run this server and a Prometheus without samples of its own."""
    buckets = BucketBounds.read([",".join(BOUNDS[:-1])])
    store = store_of(MemoryBackend(), make_rows(), FRAME)
    # Up to Prometheus 2, the lookback period of 5 minutes includes its start.
    lookback = "--query.lookback-delta=299999ms"
    with serving({"web": store}, buckets=buckets) as server:
        config = json.dumps({"remote_read": [{"url": f"{server.url}/api/v1/read", "read_recent": True}]})
        with prometheus(tmp_path_factory.mktemp("prometheus"), free_port(), config, lookback) as url:
            yield server.url, url


def ask(url, query, times):
    """Return the values of series by labels and moment, or the message of a refusal."""
    path = "query_range" if "step" in times else "query"
    try:
        with urlopen(f"{url}/api/v1/{path}?" + urlencode({"query": query, **times}), timeout=60) as answer:
            data = json.load(answer)["data"]
    except HTTPError as error:
        return json.load(error)["error"]
    result = data["result"]
    if data["resultType"] == "scalar":
        result = [{"metric": {}, "value": result}]
    values = collections.defaultdict(dict)
    for series in result:
        labels = frozenset(label for label in series["metric"].items() if label[0] != "__name__")
        for at, value in series.get("values") or [series["value"]]:
            assert at not in values[labels], (query, labels, at)
            values[labels][at] = float(value)
    return dict(values)


def is_close(own, remote):
    if math.isnan(own) or math.isinf(own):
        return str(own) == str(remote)
    return math.isclose(own, remote, rel_tol=1e-9, abs_tol=1e-12)


def check_quantile(q, quantiles, buckets):
    """Return how quantiles of the sketch differ from the buckets with their ranks, or None."""
    counts = collections.defaultdict(dict)
    for labels, points in buckets.items():
        le = float(dict(labels)["le"])
        for at, count in points.items():
            counts[labels - {("le", dict(labels)["le"])}, at][le] = count
    counts = {place: dict(sorted(by_bound.items())) for place, by_bound in counts.items() if by_bound[math.inf]}
    values = {
        (frozenset(label for label in labels if label[0] != "store"), at): value
        for labels, points in quantiles.items()
        for at, value in points.items()
    }
    if values.keys() != counts.keys():
        return f"series and moments {values.keys() ^ counts.keys()}"
    for place, value in values.items():
        rank = math.floor(q * (counts[place][math.inf] - 1))
        upper = next(bound for bound, count in counts[place].items() if count > rank)
        lower = max((bound for bound in counts[place] if bound < upper), default=0.0)
        # A bound is moved within its bucket of the sketch, and the quantile is in the middle of a bucket.
        if not lower * (1 - 2.1 * ACCURACY) <= value <= upper * (1 + 2.1 * ACCURACY):
            return f"{place}: {value} here, and the rank {rank} is in the bucket of Prometheus up to {upper}"
    return None


def draw(trial):
    """Draw an expression and its moments."""
    rng = random.Random(f"{SEED} {trial}")
    is_aligned = rng.random() < 0.8
    if rng.random() < 0.5:
        at = rng.randrange(BEGIN, END + 1, 10) if is_aligned else rng.randrange(BEGIN, END) + rng.choice((0.25, 0.5))
        return Drawing(rng, None, is_aligned).expression(), {"time": at}
    step = rng.choice((10, 60, 120, 300, 600, 3600) if is_aligned else (15, 45))
    start = rng.randrange(BEGIN, END, step)
    end = min(start + step * rng.randrange(1, 8), END)
    return Drawing(rng, step, is_aligned).expression(), {"start": start, "end": end, "step": step}


def difference(urls, drawn, times):
    """Return the outcome for an expression and, if the answers differ, a message about the difference."""
    own, remote = ask(urls[0], drawn.here, times), ask(urls[1], drawn.prometheus, times)
    if isinstance(own, str):
        return ("both refuse" if isinstance(remote, str) else "refused here"), None
    if isinstance(remote, str):
        return "differ", f"Prometheus refuses: {remote}"
    if drawn.quantile is not None:
        message = check_quantile(drawn.quantile, own, remote)
        return ("differ" if message else "agree"), message
    if own.keys() != remote.keys():
        return "differ", f"series {own.keys() ^ remote.keys()}"
    for labels, points in own.items():
        if points.keys() != remote[labels].keys():
            return "differ", f"moments of {labels}: {points.keys() ^ remote[labels].keys()}"
        for at, value in points.items():
            if not is_close(value, remote[labels][at]):
                return "differ", f"{labels} at {at}: {value} here, {remote[labels][at]} there"
    return ("agree" if own else "agree that there is nothing"), None


def test_prometheus_computes_the_same_from_remote_read(both):
    print(f"seed {SEED}")
    outcomes = collections.Counter()
    differences = []
    for trial in range(TRIALS):
        drawn, times = draw(trial)
        outcome, message = difference(both, drawn, times)
        outcomes[outcome] += 1
        if message:
            differences.append(f"trial {trial}: {drawn.here} at {times}: {message}; sent {drawn.prometheus}")
    print(dict(outcomes))
    assert outcomes["agree"] >= TRIALS // 3
    assert not differences, f"{len(differences)} of {TRIALS} expressions differ: " + "\n".join(differences[:20])


def test_prometheus_writes_the_same_texts_of_numbers(both):
    rng = random.Random(SEED)
    random_numbers = (math.copysign(10.0 ** rng.uniform(-320, 308), rng.choice((-1, 1))) for _ in range(40))
    limits = (0.0, -0.0, 1e-6, math.nextafter(1e-6, 0), 1e21, math.nextafter(1e21, 0), 5e-324, math.inf, math.nan)
    single = {"start": BEGIN, "end": BEGIN, "step": 60}
    for number in [*random_numbers, *limits]:
        literal = repr(number).replace("inf", "Inf").replace("nan", "NaN")
        for query in (literal, f"vector({literal})"):
            for path, times in (("query", {"time": BEGIN}), ("query_range", single)):
                texts = []
                for url in both:
                    with urlopen(f"{url}/api/v1/{path}?" + urlencode({"query": query, **times}), timeout=60) as answer:
                        texts.append(json.load(answer)["data"])
                assert texts[0] == texts[1], (path, query)
