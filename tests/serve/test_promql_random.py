"""Random PromQL: every answer equals what `store.query` gives for the same windows."""

from __future__ import annotations

import math
import os
import random
import re
import warnings

import pytest

import aggr
from tests.serve.prometheus_world import BEGIN, FRAME, HOSTS, LEVELS, serving, store_of
from tiltframe.store.backends.memory import MemoryBackend

pytestmark = pytest.mark.store
TRIALS = int(os.environ.get("TRIALS", "80"))
SEED = int(os.environ.get("TILTFRAME_SEED", random.randrange(10**6)))
CODES = (200, 404, 500)
KEYS = {"host": HOSTS, "code": CODES}
RANGES = (60, 120, 300, 600, 1800, 3600)


@pytest.fixture(scope="module")
def world():
    store = store_of(MemoryBackend())
    with serving({"web": store}) as server:
        yield server, store


@pytest.mark.long
def test_answers_are_those_of_store_query(world):
    server, store = world
    print(f"seed {SEED}")
    shapes = (
        newest,
        of_a_range,
        of_a_range,
        merged,
        merged,
        quantiles,
        steps,
        ratio,
        sets,
        ranked,
        of_steps,
        values,
        unmerged,
    )
    for trial in range(TRIALS):
        rng = random.Random(f"{SEED} {trial}")
        rng.choice(shapes)(server, Oracle(store), rng)


class Oracle:
    """Asks a store, and names series as PromQL does."""

    def __init__(self, store):
        self.store = store

    def range(self, start, end, keys, where, measure, path):
        """Map the labels of each series to the value of a measure over a range of whole windows."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = self.store.query(
                within=f"{_iso(start)},{_iso(end)}", keys=keys, where=where, measures={"x": measure}
            )
        return {_labels(row, keys): v for row in found.to_pylist() if (v := _at(row["x"], path)) is not None}

    def newest(self, level, at, where, measure, path, reach=300):
        """Map the labels of each series to its newest value in a window that ended at a moment or before.

        A deviation of one row is null, and no value.
        """
        reach = max(reach, LEVELS[level])
        low, high = (math.floor(t / LEVELS[level]) * LEVELS[level] for t in (at - reach, at))
        if high <= low:
            return {}
        found = self.store.query(level, within=f"{_iso(low)},{_iso(high)}", where=where, measures={"x": measure})
        latest = {}
        for row in found.to_pylist():  # in order of time
            value = _at(row["x"], path)
            if value is not None and at - reach < row["window_end"].timestamp() <= at:
                latest[_labels(row, ["host", "code"])] = value
        return latest


def _iso(at):
    import datetime as dt

    return dt.datetime.fromtimestamp(at, dt.UTC).isoformat()


def _labels(row, keys):
    return frozenset((key, str(row[key])) for key in keys if row[key] is not None)


def _at(value, path):
    for name in path:
        value = value[name]
    return None if value is None else float(value)


def _plain(answer):
    """Take answers at one moment, without the labels that every series has."""
    own = ("__name__", "store")
    found = {}
    for labels, points in answer.by_labels().items():
        (found[frozenset((k, v) for k, v in labels if k not in own)],) = points.values()
    return found


def _moment(rng):
    at = BEGIN + rng.randrange(-600, 4 * 3600)
    return rng.choice([at, at // 60 * 60, at // 3600 * 3600, at + 0.25])


def _matchers(rng):
    """Draw matchers, and say in SQL which keys they choose; by Python's regular expressions."""
    texts, conditions = [], []
    for key, values in KEYS.items():
        operator = rng.choice(["", "", "=", "!=", "=~", "!~"])
        if not operator:
            continue
        text = rng.choice(
            ["a|b", "(200|500)", "w.*", ".+", "", "[a-c]", "4..", "web-1|w.2", "(?i)A", r"\\d+", "ü", "none"]
            if "~" in operator
            else ["a", "200", "", "w.2", "ü", "none", "404"]
        )
        texts.append(f'{key}{operator}"{text}"')
        pattern = text.replace("\\\\", "\\") if "~" in operator else re.escape(text)
        names = {value: "" if value is None else str(value) for value in values}
        wanted = [v for v, name in names.items() if bool(re.fullmatch(pattern, name)) != operator.startswith("!")]
        listed = ", ".join(repr(v) for v in wanted if v is not None)
        some = [f"{key} IN ({listed})"] if listed else []
        some += [f"{key} IS NULL"] if None in wanted else []
        conditions.append(f"({' OR '.join(some)})" if some else f"({key} IS NULL AND {key} IS NOT NULL)")
    return "{" + ",".join(texts) + "}" if texts else "", " AND ".join(conditions) or None


READ = {  # metric -> measure, path
    "requests_total": ("requests", ()),
    "bytes": ("bytes", ()),
    "seconds": ("seconds", ()),
    "fastest": ("fastest", ()),
    "slowest": ("slowest", ()),
    "mean": ("mean", ()),
    "spread": ("spread", ()),
    "latency_count": ("latency", ("count",)),
    "latency_sum": ("latency", ("sum",)),
    "rounded_mean": ("rounded", ("mean",)),
    'latency{quantile="0.99"}': ("latency", ("quantiles", "0.99")),
}
SUMS = {
    "rate(requests_total": ("requests", ()),
    "increase(requests_total": ("requests", ()),
    "sum_over_time(bytes": ("bytes", ()),
    "rate(seconds": ("seconds", ()),
    "increase(latency_sum": ("latency", ("sum",)),
    "rate(latency_count": ("latency", ("count",)),
    "count_over_time(latency": ("latency", ("count",)),
    "sum_over_time(latency": ("latency", ("sum",)),
}
MERGED = {  # aggregation -> function of a range -> measure, path
    "sum": SUMS,
    "min": {"min_over_time(fastest": ("fastest", ()), "min_over_time(latency": ("latency", ("min",))},
    "max": {"max_over_time(slowest": ("slowest", ()), "max_over_time(rounded": ("rounded", ("max",))},
    "avg": {"avg_over_time(mean": ("mean", ()), "avg_over_time(latency": ("latency", ("mean",))},
}


def _finest(at):
    return math.floor(at / 10) * 10


def _draw_range(rng, kinds):
    """Draw a function of a range: its text without the end, the measure, and what its value is divided by."""
    call, (measure, path) = rng.choice(list(kinds.items()))
    span = rng.choice(RANGES)
    matchers, where = _matchers(rng)
    return f"{call}{matchers}[{span}s]", (where, FRAME.measures[measure], path), span, span if "rate" in call else 1


def newest(server, oracle, rng):
    metric, (measure, path) = rng.choice(list(READ.items()))
    matchers, where = _matchers(rng)
    matchers = matchers if "{" not in metric else ""
    at, asked = _moment(rng), f"{metric}{matchers}"
    found = _plain(server.query(asked, at))
    if "{" in metric:
        found = {frozenset((k, v) for k, v in labels if k != "quantile"): value for labels, value in found.items()}
        where = None
    assert found == oracle.newest("10s", at, where, FRAME.measures[measure], path), (asked, at)


def of_a_range(server, oracle, rng):
    text, read, span, per = _draw_range(rng, {k: v for kinds in MERGED.values() for k, v in kinds.items()})
    at = _moment(rng)
    offset = rng.choice([0, 0, 60, 90])
    asked = f"{text}{f' offset {offset}s' if offset else ''})"
    end = _finest(at - offset)
    wanted = oracle.range(end - span, end, ["host", "code"], *read)
    assert _plain(server.query(asked, at)) == {k: v / per for k, v in wanted.items()}, (asked, at)


def merged(server, oracle, rng):
    aggregation = rng.choice(list(MERGED))
    text, read, span, per = _draw_range(rng, MERGED[aggregation])
    grouping, keys = rng.choice(
        [("", []), (" by (host)", ["host"]), (" by (code, none)", ["code"]), (" without (code)", ["host"])]
    )
    at = _moment(rng)
    asked = f"{aggregation}{grouping}({text}))"
    wanted = oracle.range(_finest(at) - span, _finest(at), keys, *read)
    assert _plain(server.query(asked, at)) == {k: v / per for k, v in wanted.items()}, (asked, at)


def quantiles(server, oracle, rng):
    q, span, at = rng.choice([0, 0.5, 0.9, 0.123, 1]), rng.choice(RANGES), _moment(rng)
    matchers, where = _matchers(rng)
    measure, name = rng.choice(
        [(aggr.dds("seconds", [q]), "latency"), (aggr.hdr("seconds", [q], unit=0.001), "rounded")]
    )
    asked, keys = rng.choice(
        [
            (f"histogram_quantile({q}, sum by (host) (rate({name}{matchers}[{span}s])))", ["host"]),
            (f"histogram_quantile({q}, sum(sum without (code) (increase({name}{matchers}[{span}s]))))", []),
            (f"quantile_over_time({q}, {name}{matchers}[{span}s])", ["host", "code"]),
        ]
    )
    path = ("quantiles", repr(float(q)).removesuffix(".0"))
    wanted = oracle.range(_finest(at) - span, _finest(at), keys, where, measure, path)
    assert _plain(server.query(asked, at)) == wanted, (asked, at)


def steps(server, oracle, rng):
    text, read, span, per = _draw_range(rng, MERGED["sum"])
    start, step, count = math.floor(_moment(rng)), rng.choice([10, 15, 60, 300, 600, 3600]), rng.randrange(1, 6)
    level = [size for size in LEVELS.values() if span % size == 0 and step % size == 0][-1:] or [10]
    found = server.query_range(f"sum by (code)({text}))", start, start + step * count, step).by_labels()
    for at in range(start, start + step * count + 1, step):
        end = at // level[0] * level[0]
        wanted = {k: v / per for k, v in oracle.range(end - span, end, ["code"], *read).items()}
        assert {labels: points[at] for labels, points in found.items() if at in points} == wanted, (text, at, step)


def ratio(server, oracle, rng):
    span, at = rng.choice(RANGES), _moment(rng)
    matchers, where = _matchers(rng)
    above = rng.choice([0, 2**39])
    asked = (
        f"sum by (host) (rate(bytes{matchers}[{span}s])) / on (host) sum by (host) (rate(requests_total[{span}s])) "
        f"> {above}"
    )
    ends = _finest(at) - span, _finest(at), ["host"]
    upper = oracle.range(*ends, where, FRAME.measures["bytes"], ())
    lower = oracle.range(*ends, None, FRAME.measures["requests"], ())
    wanted = {k: (v / span) / (lower[k] / span) for k, v in upper.items()}
    assert _plain(server.query(asked, at)) == {k: v for k, v in wanted.items() if v > above}, (asked, at)


def sets(server, oracle, rng):
    """Two vectors over some moments, combined series by series and moment by moment."""
    operator, step = rng.choice(["and", "or", "unless"]), rng.choice([60, 600])
    matching, labels = rng.choice([("", ("host", "code")), ("on (code)", ("code",)), ("ignoring (code)", ("host",))])
    start = math.floor(_moment(rng)) // step * step
    sides = []
    for _ in "lr":
        keys = rng.choice([["host"], ["code"], ["host", "code"]])
        sides.append((f"sum by ({', '.join(keys)}) (increase(requests_total[{step}s]))", keys, rng.randrange(0, 9)))
    asked = f"({sides[0][0]} > {sides[0][2]}) {operator} {matching} ({sides[1][0]} > {sides[1][2]})"
    found = server.query_range(asked, start, start + 3 * step, step).by_labels()
    for at in range(start, start + 3 * step + 1, step):
        left, right = (
            {k: v for k, v in oracle.range(at - step, at, keys, None, FRAME.measures["requests"], ()).items() if v > n}
            for _, keys, n in sides
        )
        on_left, on_right = ({_matched(k, labels) for k in side} for side in (left, right))
        wanted = {k: v for k, v in left.items() if (_matched(k, labels) in on_right) == (operator == "and")}
        if operator == "or":
            wanted = left | {k: v for k, v in right.items() if _matched(k, labels) not in on_left}
        assert {k: points[at] for k, points in found.items() if at in points} == wanted, (asked, at)


def _matched(labels, names):
    return frozenset(each for each in labels if each[0] in names)


def ranked(server, oracle, rng):
    text, read, span, per = _draw_range(rng, {"rate(seconds": ("seconds", ())})
    name, k, at = rng.choice(["topk", "bottomk"]), rng.randrange(4), _moment(rng)
    wanted = oracle.range(_finest(at) - span, _finest(at), ["host", "code"], *read)
    best = {}
    for code in map(str, CODES):
        group = [(v, labels) for labels, v in wanted.items() if ("code", code) in labels]
        group.sort(key=lambda each: each[0], reverse=name == "topk")
        best.update({labels: v / per for v, labels in group[:k]})
    asked = f"{name} by (code) ({k}, {text}))"
    assert _plain(server.query(asked, at)) == best, (asked, at)


def of_steps(server, oracle, rng):
    """Reduce a subquery: naively, step by step."""
    name, span, step = rng.choice(["min", "max", "sum", "count", "avg"]), rng.choice([300, 600]), rng.choice([60, 100])
    inner, at = rng.choice([10, 60]), _moment(rng)
    found = _plain(
        server.query(f"{name}_over_time(sum by (code) (increase(requests_total[{inner}s]))[{span}s:{step}s])", at)
    )
    values = {}
    for moment in range((math.floor(at) - span) // step * step, math.floor(at) + 1, step):
        if at - span < moment <= at:
            end = moment // 10 * 10 if inner % 60 or step % 60 else moment // 60 * 60
            totals = oracle.range(end - inner, end, ["code"], None, FRAME.measures["requests"], ())
            for labels, value in totals.items():
                values.setdefault(labels, []).append(value)
    reduce = {"min": min, "max": max, "sum": sum, "count": len, "avg": lambda v: sum(v) / len(v)}[name]
    assert found == {labels: reduce(each) for labels, each in values.items()}


def values(server, oracle, rng):
    """Aggregate the newest windows of series, which may be of different times."""
    name, at = rng.choice(["sum", "max", "min", "count", "avg"]), _moment(rng)
    metric = rng.choice(["requests_total", "bytes", "fastest", "slowest"])
    matchers, where = _matchers(rng)
    found = _plain(server.query(f"{name} by (code) ({metric}{matchers})", at))
    measure, path = READ[metric]
    newest_windows = oracle.newest("10s", at, where, FRAME.measures[measure], path)
    assert found == _reduced(name, newest_windows), (name, metric, at)


def unmerged(server, oracle, rng):
    """Aggregate what ranges give by an aggregation that is no merge of it."""
    name = rng.choice(["sum", "max", "min", "count"])
    other = rng.choice([kind for kind in MERGED if kind != name])
    text, read, span, per = _draw_range(rng, MERGED[other])
    at = _moment(rng)
    ranges = oracle.range(_finest(at) - span, _finest(at), ["host", "code"], *read)
    found = _plain(server.query(f"{name} by (code) ({text}))", at))
    assert found == _reduced(name, {labels: value / per for labels, value in ranges.items()}), (name, text, at)


def _reduced(name, values):
    """Reduce values by their label ``code``, naively."""
    groups = {}
    for labels, value in values.items():
        groups.setdefault(frozenset(each for each in labels if each[0] == "code"), []).append(value)
    reduce = {"min": min, "max": max, "sum": math.fsum, "count": len, "avg": lambda v: math.fsum(v) / len(v)}[name]
    return {labels: pytest.approx(reduce(each), rel=1e-12) for labels, each in groups.items()}
