"""Measures of points up to the edges of windows, compared with fractions over the complete series of each key.

Random choices: the points of some keys with gaps, several points per time and several commits, the arguments per,
within, keys, fill and latest, and the longest distance between points. ``TRIALS`` is the number of trials.
"""

from __future__ import annotations

import math
import os
import random
from fractions import Fraction
from itertools import pairwise

import pyarrow as pa
import pytest

import aggr
from tiltframe import FrameStore, Query, TiltFrame, rollup
from tiltframe.store.testing import MemoryBackend
from windows import hopping

SEED = int(os.environ.get("TILTFRAME_SEED", random.randrange(10**6)))
TRIALS = int(os.environ.get("TRIALS", 25))
MINUTE = 60_000_000
MEASURES = {
    "step": aggr.time_weighted_avg("x"),
    "linear": aggr.time_weighted_avg("x", "linear"),
    "area": aggr.integral("x", "linear", unit="1m"),
    "lasted": aggr.duration_in("x", 3.0),
    "increase": aggr.increase("x"),
    "rate": aggr.rate("x"),
    "delta": aggr.delta("x"),
    "resets": aggr.resets("x"),
    "n": aggr.count("x"),
    "prometheus": aggr.increase("x", extrapolate="1m"),
}
PLAIN = ("n", "prometheus")
SCHEMA = pa.schema(
    [("ts", pa.timestamp("us", "UTC")), ("host", pa.string()), ("disk", pa.int64()), ("x", pa.float64())]
)
FRAME = TiltFrame(["1m", "5m", "1h"], "ts", MEASURES, ["host", "disk"])
LENGTHS = {"1m": MINUTE, "2m": 2 * MINUTE, "5m": 5 * MINUTE, "15m": 15 * MINUTE, "1h": 60 * MINUTE}


def drawn(draws: random.Random) -> tuple[FrameStore, list[dict]]:
    rows = []
    for host in "ab":
        for disk in range(draws.choice([1, 2])):
            at = draws.randrange(-3, 3) * 10 * MINUTE
            for _ in range(draws.choice([0, 1, 2, 40])):
                at += draws.choice([0, 1, 30_000_000, MINUTE, draws.randrange(MINUTE), draws.randrange(30 * MINUTE)])
                at -= draws.choice([0, 0, 0, at % MINUTE])  # at the edge of a window
                x = draws.choice([3.0, 7.0, draws.gauss(0, 1e3), draws.random()])
                rows.append({"ts": at, "host": host, "disk": disk, "x": x})
    store = FrameStore(MemoryBackend(f"edges {draws.random()}"), FRAME, row_schema=SCHEMA)
    mixed = draws.sample(rows, len(rows))
    for commit in range(3):
        store.append(rollup(pa.Table.from_pylist(mixed[commit::3], SCHEMA), FRAME), "w", commit)
    return store, rows


def cut(points: list[tuple], start: int, end: int, longest: int) -> dict:
    """Take of each way from one point to the next what is inside the window."""
    lasted, step, linear, seconds_at_three, grown, moved = 0, Fraction(0), Fraction(0), 0, Fraction(0), Fraction(0)
    resets = 0
    for (time, value), (later, after) in pairwise(points):
        own = start <= time and later < end
        low, high = max(time, start), min(later, end)
        if not own and (later - time > longest or low > high or later < start or time >= end):
            continue
        now, then = Fraction(value), Fraction(after)
        share = Fraction(high - low, later - time) if later > time else Fraction(own)
        lasted += high - low
        step += now * (high - low)
        if later > time:
            at_low, at_high = (now + (then - now) * Fraction(at - time, later - time) for at in (low, high))
            linear += (at_low + at_high) / 2 * (high - low)
        seconds_at_three += (high - low) * (value == 3.0)
        grown += share * (then if then < now else then - now)
        moved += share * (then - now)
        resets += then < now and start <= later < end
    has_duration = lasted > 0
    any_point = has_duration or any(start <= time < end for time, _ in points)
    return {
        "step": float(step / lasted) if has_duration else None,
        "linear": float(linear / lasted) if has_duration else None,
        "area": float(linear / MINUTE) if has_duration else None,
        "lasted": seconds_at_three / 1e6 if any_point else None,
        "increase": grown if has_duration else None,
        "rate": grown / lasted * 1_000_000 if has_duration else None,
        "delta": moved if has_duration else None,
        "resets": resets if any_point else None,
    }


def expected(rows: list[dict], query: dict, length: int, longest: int) -> dict[tuple, dict]:
    """(start, keys...) -> results of windows with points, or of all between them if they are filled."""
    series: dict[tuple, list] = {}
    for row in rows:
        series.setdefault(tuple(row[key] for key in query["keys"]), []).append((row["ts"], row["x"]))
    low, high = query.get("within", (-(10**18), 10**18))
    starts = {key: {t // length * length for t, _ in points} for key, points in series.items()}
    starts = {key: sorted(at for at in those if low <= at < high) for key, those in starts.items()}
    starts = {key: those for key, those in starts.items() if those}
    if query.get("fill") and not query["keys"] and "within" in query:  # windows are there even if no key is
        starts.setdefault((), [])
    if query.get("fill") and starts:
        seen = [at for those in starts.values() for at in those]
        first, last = (low, high) if "within" in query else (min(seen), max(seen) + length)
        starts = {key: list(range(first, last, length)) for key in starts}
    if query.get("latest"):
        starts = {key: those[-1:] for key, those in starts.items()}
    windows = {}
    for key, those in starts.items():
        for at in those:
            windows[at, *key] = cut(sorted(series.get(key, [])), at, at + length, longest)
    return windows


def question(draws: random.Random) -> tuple[dict, int, int]:
    per, edges = draws.choice(list(LENGTHS)), draws.choice(["1us", "30s", "10m", "1000d"])
    query = {"per": per, "edges": edges, "keys": draws.sample(["host", "disk"], draws.randrange(3))}
    query |= draws.choice([{}, {"fill": True}, {"latest": True}])
    if draws.random() < 0.5:
        low = draws.randrange(-30, 60) * 10 * MINUTE // LENGTHS[per] * LENGTHS[per]
        query["within"] = (low, low + LENGTHS[per] * draws.randrange(1, 30))
    return query, LENGTHS[per], {"1us": 1, "30s": 30_000_000, "10m": 10 * MINUTE, "1000d": 86_400_000_000_000}[edges]


def members(query: dict) -> dict:
    within = query.get("within")
    return query if within is None else query | {"within": tuple(at // 1000 for at in within)}


def close(ours: float | None, expected: Fraction | None) -> bool:
    return ours is expected if ours is None else math.isclose(ours, expected, rel_tol=1e-9, abs_tol=1e-9)


@pytest.mark.long
def test_random_windows_are_cut_out_of_the_whole_series():
    print("seed", SEED)
    draws, bridged = random.Random(SEED), 0
    for trial in range(TRIALS):
        store, rows = drawn(draws)
        for _ in range(4):
            query, length, longest = question(draws)
            where = (SEED, trial, query)
            rows_of_store = store.query(**members(query)).to_pylist()
            plain = store.query(**{**members(query), "edges": None}).to_pylist()
            naive = expected(rows, query, length, longest)
            rows_by_window = {
                (int(r["window_start"].timestamp() * 1e6), *(r[key] for key in query["keys"])): r for r in rows_of_store
            }
            assert list(rows_by_window) == sorted(naive), where
            for row, without, window in zip(rows_of_store, plain, rows_by_window, strict=True):
                for name in PLAIN:
                    assert row[name] == without[name], (*where, window, name)
                for name in ("step", "linear", "area", "lasted", "resets"):
                    assert row[name] == naive[window][name], (*where, window, name)
                for name in ("increase", "rate", "delta"):
                    assert close(row[name], naive[window][name]), (*where, window, name)
                bridged += row["step"] != without["step"]
    assert bridged > TRIALS // 2


def test_partitions_of_a_plan_give_what_the_query_gives():
    frame = TiltFrame(["1h"], "ts", {"mean": MEASURES["step"], "grown": MEASURES["increase"]})
    days = pa.array([at * 100_000 for at in range(100)], pa.timestamp("s", "UTC"))  # each in a day of its own, nearly
    rows = pa.table({"ts": days, "x": range(100)})
    store = FrameStore(MemoryBackend("days"), frame, row_schema=rows.schema)
    store.append(rollup(rows, frame), "w", 1)
    query = Query("1h", edges="2d")
    plan = store.plan(query)
    parts = [plan.read(partition) for partition in plan.partitions(3)]
    assert len(parts) > 1
    assert pa.concat_tables(parts)["mean"].null_count == 1  # of the last, whose point lies at its start
    assert pa.concat_tables(parts).equals(store.ask(query).table())


def test_filled_windows_add_up_to_the_whole_range():
    store, rows = drawn(random.Random(7))
    seconds = store.query("1m", keys=[], fill=True, edges="1000d", measures=["lasted", "resets"])
    (total,) = store.query("all", keys=[], measures=["lasted", "resets"]).to_pylist()
    assert len(rows) > 40
    assert sum(filter(None, seconds["lasted"].to_pylist())) == pytest.approx(total["lasted"], rel=1e-12)
    assert sum(filter(None, seconds["resets"].to_pylist())) == total["resets"]


def test_special_values_count_only_where_they_last():
    times, values = [0, 30, 60, 100, 200], [1.0, math.inf, 2.0, math.nan, 4.0]
    frame = TiltFrame(["1m"], "ts", {"step": MEASURES["step"], "linear": MEASURES["linear"]})
    rows = pa.table({"ts": pa.array(times, pa.timestamp("s", "UTC")), "x": values})
    store = FrameStore(MemoryBackend("special"), frame, row_schema=rows.schema)
    store.append(rollup(rows, frame), "w", 1)
    result = store.query("1m", edges="1h")
    assert repr(result["step"].to_pylist()) == "[inf, nan, nan]"
    assert repr(result["linear"].to_pylist()) == "[inf, nan, nan]"
    assert repr(store.query("1m", edges="40s")["step"].to_pylist()) == "[inf, 2.0, None]"


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"per": "all"}, "edges needs windows that follow each other, such as per='1h'; got 'all'"),
        ({"per": hopping("5m", "1m")}, "edges needs windows that follow each other"),
        ({"per": "1m", "measures": ["n"]}, "edges needs a measure that also reads rows of neighbouring windows"),
    ],
)
def test_what_has_no_edges_is_refused(query, message):
    store, _ = drawn(random.Random(1))
    with pytest.raises(ValueError, match=message):
        store.query(**query, edges="1h")


def test_points_of_other_times_than_the_windows_are_read_alone():
    frame = TiltFrame(["1m"], "ts", {"mean": MEASURES["step"], "other": aggr.time_weighted_avg("x", by="at")})
    at = pa.array([0, 50, 70], pa.timestamp("s", "UTC"))
    rows = pa.table({"ts": at, "at": at, "x": [1.0, 2.0, 3.0]})
    store = FrameStore(MemoryBackend("by"), frame, row_schema=rows.schema)
    store.append(rollup(rows, frame), "w", 1)
    assert store.query("1m", edges="1h")["mean"].to_pylist() == [70 / 60, 2.0]
    assert store.query("1m", edges="1h")["other"].to_pylist() == [1.0, None]
