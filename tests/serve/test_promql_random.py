"""Random PromQL: every answer equals the results of `store.query` for the same windows."""

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
            result = self.store.query(
                within=f"{_iso(start)},{_iso(end)}", keys=keys, where=where, measures={"x": measure}
            )
        return {_labels(row, keys): v for row in result.to_pylist() if (v := _at(row["x"], path)) is not None}

    def newest(self, level, at, where, measure, path, lookback=300):
        """Map the labels of each series to its newest value in a window that ended at a moment or before.

        A deviation of one row is null, and no value.
        """
        lookback = max(lookback, LEVELS[level])
        low, high = (math.floor(t / LEVELS[level]) * LEVELS[level] for t in (at - lookback, at))
        if high <= low:
            return {}
        result = self.store.query(level, within=f"{_iso(low)},{_iso(high)}", where=where, measures={"x": measure})
        latest = {}
        for row in result.to_pylist():  # in order of time
            value = _at(row["x"], path)
            if value is not None and at - lookback < row["window_end"].timestamp() <= at:
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
    values_by_labels = {}
    for labels, points in answer.by_labels().items():
        (values_by_labels[frozenset((k, v) for k, v in labels if k not in own)],) = points.values()
    return values_by_labels


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
        matching = [v for v, name in names.items() if bool(re.fullmatch(pattern, name)) != operator.startswith("!")]
        listed = ", ".join(repr(v) for v in matching if v is not None)
        label_conditions = [f"{key} IN ({listed})"] if listed else []
        label_conditions += [f"{key} IS NULL"] if None in matching else []
        conditions.append(
            f"({' OR '.join(label_conditions)})" if label_conditions else f"({key} IS NULL AND {key} IS NOT NULL)"
        )
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
    at, query = _moment(rng), f"{metric}{matchers}"
    values = _plain(server.query(query, at))
    if "{" in metric:
        values = {frozenset((k, v) for k, v in labels if k != "quantile"): value for labels, value in values.items()}
        where = None
    assert values == oracle.newest("10s", at, where, FRAME.measures[measure], path), (query, at)


def of_a_range(server, oracle, rng):
    text, read, span, per = _draw_range(rng, {k: v for kinds in MERGED.values() for k, v in kinds.items()})
    at = _moment(rng)
    offset = rng.choice([0, 0, 60, 90])
    query = f"{text}{f' offset {offset}s' if offset else ''})"
    end = _finest(at - offset)
    expected = oracle.range(end - span, end, ["host", "code"], *read)
    assert _plain(server.query(query, at)) == {k: v / per for k, v in expected.items()}, (query, at)


def merged(server, oracle, rng):
    aggregation = rng.choice(list(MERGED))
    text, read, span, per = _draw_range(rng, MERGED[aggregation])
    grouping, keys = rng.choice(
        [("", []), (" by (host)", ["host"]), (" by (code, none)", ["code"]), (" without (code)", ["host"])]
    )
    at = _moment(rng)
    query = f"{aggregation}{grouping}({text}))"
    expected = oracle.range(_finest(at) - span, _finest(at), keys, *read)
    assert _plain(server.query(query, at)) == {k: v / per for k, v in expected.items()}, (query, at)


def quantiles(server, oracle, rng):
    q, span, at = rng.choice([0, 0.5, 0.9, 0.123, 1]), rng.choice(RANGES), _moment(rng)
    matchers, where = _matchers(rng)
    measure, name = rng.choice(
        [(aggr.dds("seconds", [q]), "latency"), (aggr.hdr("seconds", [q], unit=0.001), "rounded")]
    )
    query, keys = rng.choice(
        [
            (f"histogram_quantile({q}, sum by (host) (rate({name}{matchers}[{span}s])))", ["host"]),
            (f"histogram_quantile({q}, sum(sum without (code) (increase({name}{matchers}[{span}s]))))", []),
            (f"quantile_over_time({q}, {name}{matchers}[{span}s])", ["host", "code"]),
        ]
    )
    path = ("quantiles", repr(float(q)).removesuffix(".0"))
    expected = oracle.range(_finest(at) - span, _finest(at), keys, where, measure, path)
    assert _plain(server.query(query, at)) == expected, (query, at)


def steps(server, oracle, rng):
    text, read, span, per = _draw_range(rng, MERGED["sum"])
    start, step, count = math.floor(_moment(rng)), rng.choice([10, 15, 60, 300, 600, 3600]), rng.randrange(1, 6)
    level = [size for size in LEVELS.values() if span % size == 0 and step % size == 0][-1:] or [10]
    series_by_labels = server.query_range(f"sum by (code)({text}))", start, start + step * count, step).by_labels()
    for at in range(start, start + step * count + 1, step):
        end = at // level[0] * level[0]
        expected = {k: v / per for k, v in oracle.range(end - span, end, ["code"], *read).items()}
        assert {labels: points[at] for labels, points in series_by_labels.items() if at in points} == expected, (
            text,
            at,
            step,
        )


def ratio(server, oracle, rng):
    span, at = rng.choice(RANGES), _moment(rng)
    matchers, where = _matchers(rng)
    above = rng.choice([0, 2**39])
    query = (
        f"sum by (host) (rate(bytes{matchers}[{span}s])) / on (host) sum by (host) (rate(requests_total[{span}s])) "
        f"> {above}"
    )
    end_times = _finest(at) - span, _finest(at), ["host"]
    upper = oracle.range(*end_times, where, FRAME.measures["bytes"], ())
    lower = oracle.range(*end_times, None, FRAME.measures["requests"], ())
    expected = {k: (v / span) / (lower[k] / span) for k, v in upper.items()}
    assert _plain(server.query(query, at)) == {k: v for k, v in expected.items() if v > above}, (query, at)


def sets(server, oracle, rng):
    """Two vectors over some moments, combined series by series and moment by moment."""
    operator, step = rng.choice(["and", "or", "unless"]), rng.choice([60, 600])
    matching, labels = rng.choice([("", ("host", "code")), ("on (code)", ("code",)), ("ignoring (code)", ("host",))])
    start = math.floor(_moment(rng)) // step * step
    sides = []
    for _ in "lr":
        keys = rng.choice([["host"], ["code"], ["host", "code"]])
        sides.append((f"sum by ({', '.join(keys)}) (increase(requests_total[{step}s]))", keys, rng.randrange(0, 9)))
    query = f"({sides[0][0]} > {sides[0][2]}) {operator} {matching} ({sides[1][0]} > {sides[1][2]})"
    series_by_labels = server.query_range(query, start, start + 3 * step, step).by_labels()
    for at in range(start, start + 3 * step + 1, step):
        left, right = (
            {k: v for k, v in oracle.range(at - step, at, keys, None, FRAME.measures["requests"], ()).items() if v > n}
            for _, keys, n in sides
        )
        on_left, on_right = ({_matched(k, labels) for k in side} for side in (left, right))
        expected = {k: v for k, v in left.items() if (_matched(k, labels) in on_right) == (operator == "and")}
        if operator == "or":
            expected = left | {k: v for k, v in right.items() if _matched(k, labels) not in on_left}
        assert {k: points[at] for k, points in series_by_labels.items() if at in points} == expected, (query, at)


def _matched(labels, names):
    return frozenset(label for label in labels if label[0] in names)


def ranked(server, oracle, rng):
    text, read, span, per = _draw_range(rng, {"rate(seconds": ("seconds", ())})
    name, k, at = rng.choice(["topk", "bottomk"]), rng.randrange(4), _moment(rng)
    expected = oracle.range(_finest(at) - span, _finest(at), ["host", "code"], *read)
    best = {}
    for code in map(str, CODES):
        group = [(v, labels) for labels, v in expected.items() if ("code", code) in labels]
        group.sort(key=lambda row: row[0], reverse=name == "topk")
        best.update({labels: v / per for v, labels in group[:k]})
    query = f"{name} by (code) ({k}, {text}))"
    assert _plain(server.query(query, at)) == best, (query, at)


def of_steps(server, oracle, rng):
    """Reduce a subquery: naively, step by step."""
    name, span, step = rng.choice(["min", "max", "sum", "count", "avg"]), rng.choice([300, 600]), rng.choice([60, 100])
    inner, at = rng.choice([10, 60]), _moment(rng)
    values_by_labels = _plain(
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
    assert values_by_labels == {labels: reduce(series_values) for labels, series_values in values.items()}


def values(server, oracle, rng):
    """Aggregate the newest windows of series, which may be of different times."""
    name, at = rng.choice(["sum", "max", "min", "count", "avg"]), _moment(rng)
    metric = rng.choice(["requests_total", "bytes", "fastest", "slowest"])
    matchers, where = _matchers(rng)
    values = _plain(server.query(f"{name} by (code) ({metric}{matchers})", at))
    measure, path = READ[metric]
    newest_windows = oracle.newest("10s", at, where, FRAME.measures[measure], path)
    assert values == _reduced(name, newest_windows), (name, metric, at)


def unmerged(server, oracle, rng):
    """Aggregate what ranges give by an aggregation that is no merge of it."""
    name = rng.choice(["sum", "max", "min", "count"])
    other = rng.choice([kind for kind in MERGED if kind != name])
    text, read, span, per = _draw_range(rng, MERGED[other])
    at = _moment(rng)
    ranges = oracle.range(_finest(at) - span, _finest(at), ["host", "code"], *read)
    values = _plain(server.query(f"{name} by (code) ({text}))", at))
    assert values == _reduced(name, {labels: value / per for labels, value in ranges.items()}), (name, text, at)


def _reduced(name, values):
    """Reduce values by their label ``code``, naively."""
    groups = {}
    for labels, value in values.items():
        groups.setdefault(frozenset(label for label in labels if label[0] == "code"), []).append(value)
    reduce = {"min": min, "max": max, "sum": math.fsum, "count": len, "avg": lambda v: math.fsum(v) / len(v)}[name]
    return {labels: pytest.approx(reduce(group_values), rel=1e-12) for labels, group_values in groups.items()}
