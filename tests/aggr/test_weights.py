"""Weights: a row with a weight gives the bits of a row that is repeated as often."""

from __future__ import annotations

import math
import pickle
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

import aggr
from aggr import Groups
from aggr.arrow.bit_equality import same_bits
from aggr.testing.edge_cases import edge_cases
from tiltframe import FrameStore, TiltFrame, finish, rollup, running
from tiltframe.cli.app import main
from tiltframe.text.measures import measure_from
from windows.ordered import sliding

NUMBERS = [pa.float64(), pa.float32(), pa.int64(), pa.uint64(), pa.decimal128(10, 2), pa.decimal128(38, 20)]
FUNCTIONS = [
    *((aggr.Count(), kind) for kind in (*NUMBERS, pa.string())),
    *((aggr.Sum(), kind) for kind in NUMBERS),
    *((aggr.Avg(), kind) for kind in (*NUMBERS, pa.timestamp("us", "UTC"))),
    *((aggr.Dds(), kind) for kind in NUMBERS),
    (aggr.Dds(relative_accuracy=0.05, max_bins=20), pa.float64()),
    *((aggr.Hdr(digits=2), kind) for kind in (pa.int64(), pa.uint64())),
    (aggr.Hdr(unit=0.25), pa.float64()),
]


def values_of(function, kind, size, seed):
    if function.name != "hdr":
        return edge_cases(kind, size, seed)
    drawn = np.random.default_rng(seed).lognormal(6, 3, size)
    if pa.types.is_integer(kind):
        return pa.array(drawn.astype(np.int64), kind)
    return pa.array([math.nan if i % 7 == 3 else x for i, x in enumerate(drawn)], kind)


@pytest.mark.parametrize(
    ("function", "kind"), FUNCTIONS, ids=lambda parameter: str(getattr(parameter, "name", parameter))
)
def test_weighting_is_repeating(function, kind):
    """Of any numeric type, nulls and zeros among them, in any split, and next to states without weights."""
    for seed in range(6):
        rng = np.random.default_rng(seed)
        n = [0, 1, 2, 40, 60, 80][seed]
        values, ids = values_of(function, kind, n, seed), rng.integers(0, 4, n)
        weights = rng.choice([0, 1, 1, 2, 3, 17], n)
        row_weights = [None if w == 0 and i % 2 else int(w) for i, w in enumerate(weights)]
        dtype = [pa.int64(), pa.int8(), pa.uint32(), pa.float64(), pa.decimal128(9, 2), pa.float32()][seed]
        column = pa.array([Decimal(w) if w is not None else None for w in row_weights], pa.decimal128(9, 0)).cast(dtype)
        expected = function.reduce(
            values.take(pa.array(np.repeat(np.arange(n), weights))), Groups.of(np.repeat(ids, weights), 5)
        )
        assert same_bits(function.reduce(values, Groups.of(ids, 5), column), expected)
        half = n // 2
        parts = [
            function.reduce(values[:half], Groups.of(ids[:half], 5), column[:half]),
            function.reduce(
                values[half:].take(pa.array(np.repeat(np.arange(n - half), weights[half:]))),
                Groups.of(np.repeat(ids[half:], weights[half:]), 5),
            ),
        ]
        merged = function.merge(pa.concat_arrays(parts), Groups.of(np.tile(np.arange(5), 2), 5))
        assert same_bits(merged, expected)


def test_weights_of_one_take_no_other_way():
    column = pa.array([1, 1, 0, None])
    assert aggr.Sum().grouped(pa.array([1.5, 2, 9, 9]), Groups.single(4), column).weights is None
    assert aggr.Sum().finish(aggr.Sum().reduce(pa.array([1.5, 2, 9, 9]), Groups.single(4), column))[0].as_py() == 3.5


def test_rows_that_stand_for_none_are_not_looked_at():
    column = pa.array([0, 2, None])
    assert (
        aggr.Hdr().finish(aggr.Hdr().reduce(pa.array([-1, 5, -7]), Groups.single(3), column))[0]["count"].as_py() == 2
    )


@pytest.mark.parametrize("function", [aggr.Count(), aggr.Sum(), aggr.Avg(), aggr.Dds((0.0, 1.0)), aggr.Hdr((0.0, 1.0))])
def test_large_weights_cost_nothing(function):
    """Expected values by fractions; no row is repeated, for there would be 9·10^18 of them."""
    rng = np.random.default_rng(3)
    values, weights = rng.integers(0, 1000, 50), rng.integers(0, 2**57, 50)
    exact = sum(Fraction(int(v)) * int(w) for v, w in zip(values, weights, strict=True))
    total = int(weights.sum())
    state = function.reduce(pa.array(values.astype(float)), Groups.single(50), pa.array(weights))
    twice = function.merge(state, Groups.single(1))
    assert same_bits(twice, state)
    result = function.finish(state)[0].as_py()
    mean = exact.numerator / (exact.denominator * total)
    if function.name == "count":
        assert result == total
    elif function.name in ("sum", "avg"):
        assert result == (float(exact) if function.name == "sum" else mean)
    else:
        assert (result["count"], result["min"], result["max"]) == (total, values.min(), values.max())
        assert result["mean"] == pytest.approx(mean, rel=0.01)
        assert result["quantiles"]["1"] == pytest.approx(values.max(), rel=0.01)
        assert result["quantiles"]["0"] == pytest.approx(values.min(), rel=0.01)


@pytest.mark.parametrize("function", [aggr.Count(), aggr.Sum(), aggr.Avg(), aggr.Dds(), aggr.Hdr()])
def test_more_than_int64_counts_is_refused(function):
    for values in ([1.0, 1.0, 2.0], [1.0, 0.0, 9.0]):
        weights = pa.array([2**62, 2**62 - 2, 2])
        first_state = function.reduce(pa.array(values)[:2], Groups.single(2), weights[:2])
        assert function.finish(first_state)[0] is not None
        with pytest.raises(OverflowError, match="exceeds int64"):
            function.reduce(pa.array(values), Groups.single(3), weights)


def test_more_than_int64_in_merged_dds_is_refused():
    states = aggr.Dds().reduce(pa.array([-1.0, 0.0, 1.0]), Groups.each(3), pa.array([2**62] * 3))
    merged = aggr.Dds().merge(states, Groups.single(3))
    with pytest.raises(OverflowError, match="exceeds int64"):
        aggr.Dds().finish(merged)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (pa.array([1, -1]), "from 0 to 2.*; got -1"),
        (pa.array([1.0, 2.5]), "a whole number.*; got 2.5"),
        (pa.array([0.25, 1]), "got 0.25; use weighted_avg for fractional weights"),
        (pa.array([2.5, 1]), "got 2.5; use weighted_avg for fractional weights"),
        (pa.array([1, math.nan]), "got nan"),
        (pa.array([1, math.inf]), "got inf"),
        (pa.array([1, 2.0**63]), r"got 9\.2"),
        (pa.array([1, 2**63], pa.uint64()), "got 9223372036854775808"),
        (pa.array([Decimal("1.00"), Decimal("1.01")]), r"got 1\.01"),
        (pa.array(["1", "2"]), "column of type string"),
        (pa.array([True, False]), "column of type bool; cast it to an integer"),
        (pa.array([1]), "got 1 weights and 2 group ids"),
        ([1, 2], "an Arrow array; got list"),
    ],
)
def test_bad_weights_are_refused(weights, message):
    with pytest.raises((TypeError, ValueError), match=message):
        aggr.Count().reduce(pa.array([1, 2]), Groups.single(2), weights)


def test_functions_without_weights_say_so():
    with pytest.raises(TypeError, match="min does not accept weights"):
        aggr.Min().reduce(pa.array([1]), Groups.single(1), pa.array([1]))
    with pytest.raises(
        ValueError,
        match=r"var does not accept a weight; got 'w'; these functions do: avg, count, dds, .*, hdr, .*, value_counts",
    ):
        aggr.Measure(aggr.Var(), "x", weight="w")
    with pytest.raises(ValueError, match="weight=, the column of weights, must be a name; got ''"):
        aggr.count(weight="")


MEASURES = {
    "n": aggr.count(weight="w"),
    "some": aggr.count("x", weight="w", where="x > 2"),
    "total": aggr.sum("x", weight="w"),
    "mean": aggr.avg("x", weight="w"),
    "p": aggr.dds("x", [0.5], weight="w"),
    "h": aggr.hdr("x", [0.5], weight="w"),
    "rows": aggr.count(),
    "plain": aggr.sum("x"),
}


def table(n=500, seed=0):
    rng = np.random.default_rng(seed)
    rows = {"ts": rng.integers(0, 7_200_000, n), "host": rng.choice(["a", "b"], n), "x": rng.integers(0, 9, n)}
    return pa.table(rows | {"w": rng.integers(0, 6, n)})


def repeated(rows):
    return rows.take(pa.array(np.repeat(np.arange(rows.num_rows), rows["w"].to_numpy())))


def test_frames_and_running_results():
    rows = table()
    frame = TiltFrame(["1m", "1h"], "ts", MEASURES, keys=["host"])
    weighted = finish(rollup(rows, frame), frame)
    plain = {name: measure for name, measure in MEASURES.items() if measure.weight}
    without = {n: aggr.Measure(m.function, m.column, m.where) for n, m in plain.items()}
    same = TiltFrame(["1m", "1h"], "ts", without, keys=["host"])
    expected = finish(rollup(repeated(rows), same), same)
    present = weighted.filter(pa.compute.greater(weighted["n"], 0))
    assert present.select(expected.column_names).equals(expected)
    assert [c.serves for c in frame.states] == [
        ("n",), ("some",), ("total", "mean"), ("p",), ("h",), ("rows",), ("plain",),
    ]  # fmt: skip
    assert pickle.loads(pickle.dumps(frame)) == frame
    window = sliding(3)
    result = running(rows, {"total": MEASURES["total"], "h": MEASURES["h"]}, window, time="ts", keys=["host"])
    ordered = rows.sort_by([("host", "ascending"), ("ts", "ascending")]).to_pylist()
    assert len(result) == len(ordered)
    by_place = {}
    for row in ordered:
        by_place.setdefault(row["host"], []).append(row["x"] * row["w"])
    sums = sorted(sum(v[max(i - 2, 0) : i + 1]) for v in by_place.values() for i in range(len(v)))
    assert sorted(t or 0 for t in result["total"].to_pylist()) == sums


def test_calls_and_descriptions():
    for measure in MEASURES.values():
        assert aggr.from_description(measure.describe()) == measure
        assert eval(repr(measure), vars(aggr)) == measure
        assert measure_from(repr(measure)) == measure
    assert measure_from("count(weight=w)") == MEASURES["n"]
    assert MEASURES["some"].columns() == ("x", "w")
    assert "weight" not in aggr.sum("x").describe()


def test_a_weight_must_be_a_number_column():
    rows = table().set_column(3, "w", pa.array(["one"] + ["1"] * 499))
    with pytest.raises(TypeError, match="n: a weight is the number of rows that a row represents"):
        rollup(rows, TiltFrame(["1m"], "ts", {"n": MEASURES["n"]}))
    with pytest.raises(ValueError, match="no column 'w'"):
        rollup(rows.drop_columns(["w"]), TiltFrame(["1m"], "ts", {"n": MEASURES["n"]}))


def test_texts_of_whole_numbers_are_weights():
    rows, frame = table(), TiltFrame(["1m"], "ts", MEASURES)
    texts = rows.set_column(rows.schema.get_field_index("w"), "w", rows["w"].cast(pa.string()))
    assert rollup(texts, frame).equals(rollup(rows, frame))


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.long
def test_on_spark(spark):
    """Frames, states by key, aggregate functions and SQL say what local rows say, repeated."""
    import spark_udaf as su
    from spark_udaf import functions as A

    rows = table(300, 7)
    df = spark.createDataFrame(rows.to_pandas()).repartition(3)
    frame = TiltFrame(["1h"], "ts", MEASURES, keys=["host"])
    expected = finish(rollup(rows, frame), frame)
    result = su.finish(su.rollup(df, frame), frame).orderBy("window_start", "host").toArrow()
    assert result.select(list(MEASURES)).to_pylist() == expected.select(list(MEASURES)).to_pylist()

    frame = TiltFrame(["all"], "ts", MEASURES, keys=["host"])
    by_host = finish(rollup(rows, frame), frame).to_pylist()
    states = su.aggregate(df, ["host"], MEASURES)
    read = su.finish(su.merge(states, ["host"]), MEASURES).orderBy("host").toArrow().to_pylist()
    assert [{k: row[k] for k in MEASURES} for row in read] == [{k: row[k] for k in MEASURES} for row in by_host]

    columns = [
        A.count(weight="w").alias("n"),
        A.sum("x", weight="w", type="bigint").alias("total"),
        A.avg("x", weight="w", where="x >= 0").alias("mean"),
        A.hdr("x", [0.5], weight=df.w * 1.0, type="bigint").alias("h"),
    ]
    dropped_in = df.groupBy("host").agg(*columns).orderBy("host").toArrow().to_pylist()
    assert dropped_in == [{k: row[k] for k in ("host", "n", "total", "mean", "h")} for row in by_host]

    su.register(spark)
    df.createOrReplaceTempView("weighted_rows")
    row_of_spark = spark.sql("""
        SELECT host, aggr_count(1, weight => w) n, aggr_avg(x, weight => w) mean,
               aggr_dds(x, array(0.5D), weight => w).quantiles['0.5'] p
        FROM weighted_rows GROUP BY host ORDER BY host
    """)
    assert [row.asDict() for row in row_of_spark.collect()] == [
        {"host": r["host"], "n": r["n"], "mean": r["mean"], "p": r["p"]["quantiles"]["0.5"]} for r in by_host
    ]
    merged = spark.sql("""
        SELECT aggr_sum_bigint_finish(aggr_sum_bigint_merge(s)) total FROM
        (SELECT host, aggr_sum_bigint_state(x, weight => w) s FROM weighted_rows GROUP BY host)
    """)
    assert merged.first()[0] == sum(r["total"] for r in by_host)
    with pytest.raises(Exception, match=r"got -\d"):
        df.groupBy("host").agg(A.count(weight=df.w - 10)).collect()


def test_on_the_command_line(tmp_path):
    lines = "".join(f"{ts},{host},{x},{w}\n" for ts, host, x, w in zip(*table(200).to_pydict().values(), strict=True))
    (tmp_path / "rows.csv").write_text("ts,host,x,w\n" + lines)
    store = str(tmp_path / "store")
    words = ["rollup", str(tmp_path / "rows.csv"), "--time", "ts", "--levels", "1d", "--key", "host", "--store", store]
    calls = {"n": "count(weight=w)", "total": "sum(x, weight=w)", "h": "hdr(x, [0.5], weight=w)"}
    main([*words, *(word for name, call in calls.items() for word in ("--measure", f"{name}={call}"))])
    result = FrameStore(store).query(per="1d").to_pylist()
    assert len(result) == 2
    rows = repeated(table(200)).to_pylist()
    for row in result:
        values_of_host = [r["x"] for r in rows if r["host"] == row["host"]]
        assert (row["n"], row["total"], row["h"]["count"]) == (
            len(values_of_host),
            sum(values_of_host),
            len(values_of_host),
        )
