"""Functions of series of points: rates compared with Prometheus, areas with fractions, lttb and funnel with a naive
evaluation.

``TRIALS=1000`` compares that many series with promtool, which is in the Debian package prometheus.
"""

from __future__ import annotations

import json
import math
import os
import random
import shutil
from fractions import Fraction
from itertools import combinations, pairwise

import numpy as np
import pyarrow as pa
import pytest

import aggr
from aggr import Groups
from aggr.neighbours import Neighbours
from aggr.tables.state_plan import plan_state_columns
from tests.golden.prometheus_rates import FUNCTIONS, GOLDEN, series, told_by_promtool
from tiltframe import TiltFrame, finish, rollup
from tiltframe.text.measures import measure_from

TRIALS = int(os.environ.get("TRIALS", 20))
SECOND = 1_000_000


def states_of(
    rows: list[list[tuple]], function: aggr.Function, kind: pa.DataType, unit: int = SECOND
) -> pa.StructArray:
    """Reduce (time, value) points, each on its own and in random order, and merge them by group."""
    flat = [(group, time, value) for group, points in enumerate(rows) for time, value in points]
    random.Random(len(flat)).shuffle(flat)
    times = pa.array([int(time * unit) for _, time, _ in flat], pa.int64()).cast(pa.timestamp("us", "UTC"))
    values = pa.array([value for _, _, value in flat], kind)
    parts = function.reduce([values, times], Groups.each(len(flat)))
    return function.merge(parts, Groups.of([group for group, _, _ in flat], len(rows)))


def rates(seeds: list[int]) -> dict[str, list]:
    states = states_of([series(seed) for seed in seeds], aggr.Collect(), pa.float64())
    functions = {name: aggr.get(name)("10m") for name in FUNCTIONS if name != "resets"} | {"resets": aggr.Resets()}
    return {name: functions[name].finish(states).to_pylist() for name in FUNCTIONS}


def test_rates_are_prometheus_bits():
    golden = {int(seed): answers for seed, answers in json.loads(GOLDEN.read_text()).items()}
    assert sum(answers.get("resets", 0) > 0 for answers in golden.values()) > 60
    assert sum("rate" in answers for answers in golden.values()) > 150
    for name, ours in rates(list(golden)).items():
        assert ours == [answers.get(name) for answers in golden.values()], name


def test_rates_are_those_of_the_promtool_that_is_here():
    """Of more series than are kept; without promtool those that are kept are the facts."""
    if shutil.which("promtool") is None:
        assert GOLDEN.exists()
        return
    answers_by_seed = told_by_promtool(range(10_000, 10_000 + TRIALS))
    for name, ours in rates(list(answers_by_seed)).items():
        assert ours == [answers.get(name) for answers in answers_by_seed.values()], name


def test_plain_rates_are_between_the_points():
    rows = [[(0, 5.0), (10, 7.0), (20, 1.0), (30, 4.0)], [(1, 5.0)], [], [(3, 1.0), (3, 2.0)]]
    states = states_of(rows, aggr.Collect(), pa.float64())
    assert aggr.Increase().finish(states).to_pylist() == [6.0, None, None, None]
    assert aggr.Rate().finish(states).to_pylist() == [0.2, None, None, None]
    assert aggr.Delta().finish(states).to_pylist() == [-1.0, None, None, None]
    assert aggr.Resets().finish(states).to_pylist() == [1, 0, None, 0]
    assert aggr.Rate("20s").finish(states).to_pylist() == [None] * 4  # the points are in two windows


def area(points: list[tuple], method: str) -> Fraction:
    """Sum with fractions."""
    total = Fraction(0)
    for (time, value), (later, after) in pairwise(points):
        height = Fraction(value) if method == "step" else (Fraction(value) + Fraction(after)) / 2
        total += height * (later - time)
    return total


@pytest.mark.parametrize("kind", [pa.float64(), pa.int64(), pa.decimal128(20, 2)], ids=str)
@pytest.mark.parametrize("method", ["step", "linear"])
def test_areas_are_correctly_rounded(method, kind):
    print("seed", method, TRIALS)
    draws = random.Random(method)
    rows = []
    for _ in range(TRIALS):
        values = [draws.choice([draws.gauss(0, 1) * 1e9, 1e-3, 5.0, -7e5]) for _ in range(draws.randint(0, 30))]
        rounded_values = pa.array([round(value, 2) for value in values]).cast(kind, safe=False).to_pylist()
        rows.append(sorted((draws.randint(-(10**9), 10**9), value) for value in rounded_values))
    states = states_of(rows, aggr.TimeWeightedAvg(method), kind, unit=1)
    spans = [points[-1][0] - points[0][0] if points else 0 for points in rows]
    areas = [area(points, method) for points in rows]
    means = [float(area / span) if span else None for area, span in zip(areas, spans, strict=True)]
    assert aggr.TimeWeightedAvg(method).finish(states).to_pylist() == means
    hours = [float(area / (3600 * SECOND)) if span else None for area, span in zip(areas, spans, strict=True)]
    assert aggr.Integral(method, "1h").finish(states).to_pylist() == hours


def test_special_values_count_where_they_last():
    rows = [[(0, 1.0), (1, math.inf)], [(0, math.inf), (1, 1.0)], [(0, math.nan), (0, 3.0), (2, 1.0)]]
    states = states_of(rows, aggr.Collect(), pa.float64())
    assert repr(aggr.TimeWeightedAvg().finish(states).to_pylist()) == "[1.0, inf, nan]"
    assert repr(aggr.TimeWeightedAvg("linear").finish(states).to_pylist()) == "[inf, inf, nan]"


def test_durations():
    rows = [[(0, "on"), (1.5, "off"), (4, "on"), (5, "on"), (9, "off")], [(1, "on")], []]
    states = states_of(rows, aggr.DurationIn("on"), pa.string())
    assert aggr.DurationIn("on").finish(states).to_pylist() == [6.5, 0.0, None]
    assert aggr.DurationIn("gone").finish(states).to_pylist() == [0.0, 0.0, None]
    with pytest.raises(TypeError, match="duration_in looks for the state 5 in a column of type string; pass a state"):
        aggr.DurationIn(5).finish(states)


def largest_triangles(points: list[tuple[float, float]], n: int) -> list[tuple[float, float]]:
    """Write down Steinarsson's definition."""
    if len(points) <= n:
        return points
    every, chosen = (len(points) - 2) / (n - 2), [points[0]]
    edges = [1 + math.floor(bucket * every) for bucket in range(n - 1)] + [len(points)]
    for low, middle, high in zip(edges, edges[1:], edges[2:], strict=False):
        after = points[middle : min(high, len(points))]
        x, y = (sum(point[axis] for point in after) / len(after) for axis in (0, 1))
        (ax, ay) = chosen[-1]
        chosen.append(max(points[low:middle], key=lambda p: abs((ax - x) * (p[1] - ay) - (ax - p[0]) * (y - ay))))
    return [*chosen, points[-1]]


@pytest.mark.parametrize("n", [3, 4, 17, 50])
def test_lttb_chooses_by_the_largest_triangles(n):
    draws = random.Random(n)
    rows = [[(at, float(draws.randint(-99, 99))) for at in range(size)] for size in (0, 1, n, n + 1, 60, 203)]
    result = aggr.Lttb(n).finish(states_of(rows, aggr.Lttb(n), pa.float64())).to_pylist()
    shown = [[(point["time"].timestamp(), point["value"]) for point in points] for points in result]
    assert shown == [largest_triangles(points, n) for points in rows]


def steps_reached(events: list[tuple[int, str]], steps: str, within: int) -> int:
    """Try every choice of events: the longest that follow the steps, in time, within the limit."""
    ordered = sorted((time, steps.index(event)) for time, event in events if event in steps)
    for count in range(len(steps), 0, -1):
        for chosen in combinations(ordered, count):
            if [step for _, step in chosen] == list(range(count)) and chosen[-1][0] - chosen[0][0] <= within:
                return count
    return 0


@pytest.mark.parametrize("within", [0, 3, 10])
def test_funnels_are_the_best_of_all_choices(within):
    draws = random.Random(within)
    rows = [
        [(draws.randint(0, 15), draws.choice("abcdx")) for _ in range(draws.randint(0, 11))] for _ in range(3 * TRIALS)
    ]
    function = aggr.Funnel(list("dacb"), f"{within}s")
    result = function.finish(states_of(rows, function, pa.string())).to_pylist()
    assert result == [steps_reached(events, "dacb", within) for events in rows]
    assert len(set(result)) > 2


def test_all_readers_share_one_state_in_a_frame():
    measures = {
        "r": aggr.rate("x"),
        "i": aggr.increase("x", "1m"),
        "mean": aggr.time_weighted_avg("x", "linear"),
        "few": aggr.lttb("x", 3),
        "all": aggr.points("x"),
        "high": aggr.duration_in("x", 3.0),
        "list": aggr.collect("x"),
    }
    assert [column.serves for column in plan_state_columns(measures)] == [tuple(measures)]
    frame = TiltFrame(["1m", "1h"], "ts", measures)
    rows = pa.table({"ts": pa.array([0, 50, 60, 119], pa.timestamp("s", "UTC")), "x": [0.0, 3.0, 3.0, 6.0]})
    first, second, hour = finish(rollup(rows, frame), frame).to_pylist()
    assert (first["r"], second["r"], hour["r"]) == (0.06, 3 / 59, 6 / 119)
    assert (first["high"], hour["high"], hour["list"], len(hour["few"])) == (0.0, 69.0, [0.0, 3.0, 3.0, 6.0], 3)
    assert hour["i"] is None
    assert first["i"] is not None


def test_a_funnel_and_a_status_in_a_frame():
    measures = {"reached": aggr.funnel("page", ["view", "buy"]), "open": aggr.duration_in("page", "view")}
    frame = TiltFrame(["1m", "1h"], "ts", measures, ["user"])
    rows = {"ts": pa.array([0, 70, 0], pa.timestamp("s")), "user": [1, 1, 2], "page": ["view", "buy", "buy"]}
    results = finish(rollup(pa.table(rows), frame), frame).to_pylist()
    assert [row["reached"] for row in results if row["level"] == "1h"] == [2, 0]
    assert [row["open"] for row in results if row["level"] == "1h"] == [70.0, 0.0]


def test_calls_read_back():
    for text in (
        "lttb('x', max=50, n=7)",
        "funnel('event', steps=['view', 'buy'], within='90m')",
        "duration_in('on', keep='latest', state=False, by='at')",
        "integral('watts', method='linear', unit='1h')",
    ):
        assert repr(measure_from(text)) == text
    assert aggr.lttb("x", 7) == measure_from("lttb(x, 7)")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: aggr.rate("x", extrapolate="1mo"), "has no fixed length"),
        (lambda: aggr.integral("x", unit="0s"), "the unit '0s' is zero; write a duration of at least 1us"),
        (lambda: aggr.time_weighted_avg("x", method="locf"), "method must be one of 'step', 'linear'; got 'locf'"),
        (lambda: aggr.lttb("x", 2), "n, the number of points that are chosen, must be"),
        (lambda: aggr.funnel("x", ["a", "a"]), r"steps must not contain a step twice; got \['a', 'a'\]"),
        (lambda: aggr.points("x", max=0), "max, the maximum number of values in a group, must be a whole number"),
    ],
)
def test_wrong_parameters_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_wrong_columns_are_refused():
    of_words = pa.struct([("value", pa.string()), ("time", pa.timestamp("us"))])
    with pytest.raises(TypeError, match="rate cannot take a column of type string; it takes integers, floats, deci"):
        aggr.Rate().zero(1, of_words)
    with pytest.raises(TypeError, match="points cannot take a column of type int64; it takes timestamps"):
        aggr.Points().zero(1, pa.struct([("value", pa.int64()), ("time", pa.int64())]))
    words = aggr.Collect().reduce([pa.array(["a"]), pa.array([1], pa.timestamp("us"))], Groups.single(1))
    with pytest.raises(TypeError, match="rate cannot take a column of type string"):
        aggr.Rate().finish(words)
    with pytest.raises(TypeError, match=r"the steps of funnel are \[1, 2\], and the column has the type string"):
        aggr.Funnel((1, 2)).finish(words)
    with pytest.raises(TypeError, match=r"funnel needs the parameter steps, such as steps=\['view', 'buy'\]"):
        aggr.Funnel().finish(words)


def test_more_points_than_max_are_an_error_or_cut():
    rows = [[(at, float(at)) for at in range(5)]]
    with pytest.raises(ValueError, match=r"^the list of values holds at most max=4 values a group; one group has 5"):
        states_of(rows, aggr.Rate(max=4), pa.float64())
    latest = aggr.Delta(max=2, keep="latest")
    assert latest.finish(states_of(rows, latest, pa.float64())).to_pylist() == [1.0]


def test_groups_without_points():
    empty = aggr.Rate().zero(2, pa.struct([("value", pa.int64()), ("time", pa.timestamp("ns"))]))
    for name in ("rate", "resets", "integral", "lttb", "points"):
        assert len(aggr.get(name)().finish(empty)) == 2


READING_NEIGHBOURS = [name for name in aggr.names() if aggr.get(name).reads_neighbours]
LIMITS = (1.7e308, -1.7e308, math.inf, -math.inf, math.nan, 5e-324, 0.0)


@pytest.mark.parametrize("name", READING_NEIGHBOURS)
def test_special_values_emit_no_warnings(name):
    function = aggr.get(name)()
    is_state = name == "duration_in"
    limits = (True, False) if is_state else LIMITS
    kind = pa.bool_() if is_state else pa.float64()
    series_of_two = [[(0.999999, first), (1.000001, second)] for first in limits for second in limits]
    assert len(function.finish(states_of(series_of_two, function, kind))) == len(series_of_two)
    windows = [[point] for points in series_of_two for point in points]  # of one second
    keys = Groups.of([key for key in range(len(series_of_two)) for _ in range(2)], len(series_of_two))
    starts = np.tile([0, SECOND], len(series_of_two))
    neighbours = Neighbours(keys, starts, starts + SECOND, 10 * SECOND)
    assert len(function.finish(states_of(windows, function, kind), neighbours)) == len(windows)
