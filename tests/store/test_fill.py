"""Fills: the values that a query gives to windows without events, compared with pandas for each key."""

from __future__ import annotations

import os
import random
from decimal import Decimal

import pandas as pd
import pyarrow as pa
import pytest

import aggr
from tiltframe import FrameStore, Query, TiltFrame
from tiltframe.store.testing import MemoryBackend

FRAME = TiltFrame(
    ["1m", "1h"],
    "ts",
    {"n": aggr.count(), "s": aggr.sum("x"), "mean": aggr.avg("x"), "p": aggr.dds("x", [0.5]), "word": aggr.last("w")},
    ["host"],
)
TRIALS = int(os.environ.get("TRIALS", "3"))
MINUTE, RANGE = 60_000, (0, 30 * 60_000)


def expected(values: pd.Series, fill: str) -> pd.Series:
    """Fill the windows of a key as pandas does; the series is by the minute, missing where there are no events."""
    if fill == "zero":
        return values.fillna(0)
    return values.ffill() if fill == "previous" else values.interpolate("index", limit_area="inside")


@pytest.mark.parametrize("fill", ["zero", "previous", "linear"])
def test_fills_are_those_of_pandas(tmp_path, fill):
    draws = random.Random(fill)
    for trial in range(TRIALS):
        rows = [
            {"ts": draws.randrange(30) * MINUTE, "host": draws.choice(["a", "b", None]), "x": draws.randrange(-99, 99)}
            for _ in range(40)
        ]
        store = FrameStore(str(tmp_path / f"{trial}"), FRAME)
        store.append_rows(pa.Table.from_pylist([row | {"w": "x"} for row in rows]), "w", 1)
        measures = {"n": "n", "s": "s", "mean": "mean", "twice": "2 * s", "p": FRAME.measures["p"]}
        got = store.query("1m", RANGE, measures=measures, fill=fill, flat=True).to_pandas()
        frame = pd.DataFrame(rows)
        hosts = frame.host.unique()
        assert len(got) == 30 * len(hosts)
        for host in hosts:
            rows_of_host = got[got.host.isna() if host is None else got.host == host].reset_index(drop=True)
            events = frame[frame.host.isna() if host is None else frame.host == host]
            by = events.groupby(events.ts // MINUTE).x.agg(["count", "sum", "mean"]).reindex(range(30))
            assert rows_of_host.filled.tolist() == by["sum"].isna().tolist()
            expected_fills = {
                "n": by["count"],
                "s": by["sum"],
                "mean": by["mean"],
                "twice": 2 * by["sum"],
                "p_sum": by["sum"],
            }
            for name, values in expected_fills.items():
                want = expected(values, fill)
                if name in ("n", "s", "twice") and fill == "linear":
                    want = want.round()
                pd.testing.assert_series_equal(
                    rows_of_host[name].astype(float), want, check_names=False, check_index=False
                )


def test_what_is_no_number_is_null_or_that_before(tmp_path):
    store = FrameStore(str(tmp_path), FRAME)
    store.append_rows(pa.table({"ts": [0, 2 * MINUTE], "host": ["a", "a"], "x": [1, 2], "w": ["p", "q"]}), "w", 1)
    words = {fill: store.query("1m", (0, 4 * MINUTE), fill=fill)["word"].to_pylist() for fill in ("linear", "previous")}
    assert words == {"linear": ["p", None, "q", None], "previous": ["p", "p", "q", "q"]}
    assert store.query("1m", (0, 4 * MINUTE), fill="linear")["p"].to_pylist()[3] is None


@pytest.mark.parametrize("kind", [pa.int64(), pa.uint64(), pa.int8(), pa.decimal128(38, 2), pa.float32()])
def test_values_of_every_type_are_filled_in_their_type(tmp_path, kind):
    highest = {"int64": 2**63 - 1, "uint64": 2**64 - 1, "int8": 127}.get(str(kind), 3)
    frame = TiltFrame(["1m"], "ts", {"last": aggr.last("x")})
    store = FrameStore(str(tmp_path), frame)
    store.append_rows(pa.table({"ts": [0, 2 * MINUTE], "x": pa.array([Decimal(highest)] * 2).cast(kind)}), "w", 1)
    got = store.query("1m", fill="linear")["last"]
    assert got.type == store.query_schema(Query("1m", fill="linear")).field("last").type
    assert float(got[1].as_py()) == pytest.approx(float(highest), rel=1e-15)
    assert store.query("1m", fill="zero", within=(0, 4 * MINUTE))["last"].to_pylist()[1] == 0


LARGE = [
    (pa.int64(), 2**62, 2**62 + 2, 2**62 + 1),
    (pa.int64(), -(2**63), 2**63 - 1, 0),  # -1/2, rounded to even
    (pa.uint64(), 2**64 - 3, 2**64 - 1, 2**64 - 2),
    (pa.decimal128(38, 2), Decimal(2**62), Decimal(2**62 + 2), Decimal(2**62 + 1)),
    (pa.decimal128(38, 0), Decimal(10**38 - 3), Decimal(10**38 - 1), Decimal(10**38 - 2)),
    (pa.decimal128(38, 20), Decimal("0.10000000000000000001"), Decimal("0.3"), Decimal("0.2")),  # half to even
]


@pytest.mark.parametrize(("kind", "low", "high", "middle"), LARGE, ids=str)
def test_large_numbers_are_interpolated_exactly(kind, low, high, middle):
    rows = pa.table({"ts": [0, 2 * MINUTE], "x": pa.array([low, high], kind)})
    store = FrameStore(MemoryBackend(), TiltFrame(["1m"], "ts", {"last": aggr.last("x")}), row_schema=rows.schema)
    store.append_rows(rows, "w", 1)
    assert store.query("1m", fill="linear")["last"].to_pylist() == [low, middle, high]


def test_the_mark_is_a_name_of_its_own(tmp_path):
    store = FrameStore(str(tmp_path), TiltFrame(["1m"], "ts", {"filled": aggr.count()}))
    store.append_rows(pa.table({"ts": [0, 120_000]}), "w", 1)
    assert store.query("1m")["filled"].to_pylist() == [1, 1]
    with pytest.raises(ValueError, match="the name 'filled' is used twice"):
        store.query("1m", fill="zero")
    assert Query("1m", fill=True) == Query("1m", fill="null")
    names = "null, zero, previous, linear, zero_gaps, previous_gaps, linear_gaps"
    with pytest.raises(ValueError, match=f"True or False, or one of {names}; got 'next'"):
        Query("1m", fill="next")


def test_what_is_read_up_to_edges_is_known_in_windows_without_points(tmp_path):
    frame = TiltFrame(["1m"], "ts", {"seconds": aggr.duration_in("on", True), "n": aggr.count()})
    store = FrameStore(str(tmp_path), frame)
    times = pa.array([0, 50, 80, 200], pa.timestamp("s", "UTC"))
    store.append_rows(pa.table({"ts": times, "on": [True, False, True, False]}), "w", 1)
    got = store.query("1m", edges="5m", fill="previous")
    assert got["filled"].to_pylist() == [False, False, True, False]
    assert (got["seconds"].to_pylist(), got["n"].to_pylist()) == ([50.0, 40.0, 60.0, 20.0], [2, 1, 1, 1])


@pytest.mark.parametrize(("max_rows", "refused"), [(59, True), (60, False)])
def test_fills_of_more_rows_than_anyone_wants_are_refused(tmp_path, monkeypatch, max_rows, refused):
    store = FrameStore(str(tmp_path / "s"), FRAME)
    store.append_rows(pa.table({"ts": [0, MINUTE], "host": ["a", "b"], "x": [1, 2], "w": ["x", "x"]}), "w", 1)
    monkeypatch.setattr("tiltframe.store.query.filling.MAX_ROWS", max_rows)
    if refused:
        with pytest.raises(ValueError, match="filling would return 60 rows"):
            store.query("1m", RANGE, fill="zero")
    else:
        assert store.query("1m", RANGE, fill="zero").num_rows == 60


NULLS = {
    "null": [100, None, None, None, 100, None],
    "zero": [100, 0, 0, 0, 100, 0],
    "previous": [100, 100, 100, 100, 100, 100],
    "linear": [100, 100, 100, 100, 100, None],
    "zero_gaps": [100, None, None, 0, 100, 0],
    "previous_gaps": [100, None, None, None, 100, 100],
    "linear_gaps": [100, None, None, None, 100, None],
}


@pytest.mark.parametrize("fill", NULLS)
def test_windows_without_rows_and_without_a_value_are_filled_alike(tmp_path, fill):
    """The second and third window have rows of another kind, the fourth and the sixth have none."""
    rows = {"ts": [0, 60_000, 120_000, 240_000], "kind": ["t", "c", "c", "t"], "x": [100.0, 1.0, 2.0, 100.0]}
    condition = "kind = 't'"
    measures = {
        "last": aggr.last("x", where=condition),
        "sum": aggr.sum("x", where=condition),
        "p": aggr.dds("x", [0.5], where=condition),
    }
    store = FrameStore(str(tmp_path), TiltFrame(["1m"], "ts", measures))
    store.append_rows(pa.table(rows), "w", 1)
    got = store.query("1m", (0, 6 * MINUTE), measures=[*measures], fill=fill, flat=True)
    assert got["filled"].to_pylist() == [False, False, False, True, False, True]
    for name in ("last", "sum", "p_sum", "p_max"):
        assert got[name].to_pylist() == NULLS[fill], name


@pytest.mark.parametrize("fill", ["previous", "linear", "zero"])
def test_random_nulls_are_filled_as_pandas_fills_them(tmp_path, fill):
    draws = random.Random(fill)
    for trial in range(TRIALS):
        rows = [
            {"ts": draws.randrange(30) * MINUTE, "host": draws.choice("ab"), "x": draws.choice([None, draws.random()])}
            for _ in range(40)
        ]
        frame = TiltFrame(["1m"], "ts", {"x": aggr.max("x")}, ["host"])
        store = FrameStore(str(tmp_path / f"{trial}"), frame)
        store.append_rows(pa.Table.from_pylist(rows), "w", 1)
        got = store.query("1m", RANGE, fill=fill).to_pandas()
        data = pd.DataFrame(rows).astype({"x": float})
        for host in data.host.unique():
            by = data[data.host == host].groupby(data.ts // MINUTE).x.max().reindex(range(30))
            want = expected(by, fill)
            rows_of_host = got[got.host == host].reset_index(drop=True)
            pd.testing.assert_series_equal(rows_of_host["x"].astype(float), want, check_names=False, check_index=False)


@pytest.mark.parametrize("within", [(None, "2024-05-02"), ("1969-12-30", None), ("2024-05-01", None), None])
@pytest.mark.parametrize("per", ["1m", "1h"])
def test_an_open_range_without_rows_has_no_windows(within, per):
    store = FrameStore(MemoryBackend("no rows to fill"), FRAME)
    store.append_rows(pa.table({"ts": [1_714_521_600_000], "host": ["a"], "x": [1], "w": ["x"]}), "w", 1)
    assert store.query(per, within=within, fill=True, keys=[], where="host = 'b'").num_rows == 0
    closed = store.query(per, within=("2024-05-01", "2024-05-02"), fill=True, keys=[], where="host = 'b'")
    assert closed.num_rows == {"1m": 1440, "1h": 24}[per]


@pytest.mark.parametrize(
    "dtype", [pa.decimal128(3, 0), pa.decimal128(5, 2), pa.decimal128(9, 2), pa.decimal128(18, 6)], ids=str
)
@pytest.mark.parametrize("fill", ["zero", "zero_gaps"])
def test_decimals_are_filled(dtype, fill):
    values = [Decimal("1.50").quantize(Decimal(1).scaleb(-dtype.scale)), Decimal(2)]
    rows = pa.table({"ts": [0, 2 * MINUTE], "p": pa.array(values, dtype)})
    measures = {"s": aggr.sum("p"), "hi": aggr.max("p"), "low": aggr.min("p")}
    store = FrameStore(MemoryBackend(), TiltFrame(["1m"], "ts", measures), row_schema=rows.schema)
    store.append_rows(rows, "w", 1)
    filled = store.query("1m", fill=fill)
    for name in ("s", "hi", "low"):
        assert filled[name].to_pylist() == [values[0], 0, values[1]]
