"""Aggregate functions in Spark jobs and in SQL give the local results for every function and type."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

import aggr
from aggr import Groups
from tests import engines

pytestmark = pytest.mark.spark

ROWS = 400
TYPES = {  # column of engines.rows -> what Spark calls its type
    "x": "double",
    "i": "bigint",
    "price": "decimal(21,2)",
    "word": "string",
    "ts": "timestamp",
    "flag": "boolean",
    "day": "date",
    "raw": "binary",
    "small": "float",
}
SERIES = (
    *("collect", "points", "lttb", "rate", "increase", "delta", "resets"),
    *("time_weighted_avg", "integral", "duration_in", "funnel"),
)
OTHER_INPUTS = {
    "any_value": {"by": "ts"},
    "first": {"by": "ts"},
    "last": {"by": "ts"},
    "collect": {"by": "ts"},
    "arg_min": {"by": "x"},
    "arg_max": {"by": "x"},
    "m4": {"by": "ts"},
    **{name: {"by": "ts"} for name in ("decayed_sum", "decayed_avg", "decayed_count", *SERIES)},
    "candlestick": {"volume": "i", "by": "ts"},
    "bottom_k": {"by": "x"},
    "frequent": {"by": "ts"},
    "top_k": {"by": "x"},
    "weighted_avg": {"weight": "x"},
}
PARAMETERS = {
    "dds": ([0.5, 0.99], 0.02),
    "hdr": ([0.5, 0.99], 2, 0.5),
    "var": (0,),
    "lttb": (5,),
}


def table() -> pa.Table:
    """Add the types that engines.rows has not."""
    rows = engines.rows(ROWS)
    rng = np.random.default_rng(5)
    rows = rows.append_column("flag", pa.array(rng.random(ROWS) < 0.5, mask=rng.random(ROWS) < 0.2))
    rows = rows.append_column("day", rows["ts"].cast(pa.date32(), safe=False))
    rows = rows.append_column("raw", rows["word"].cast(pa.binary()))
    return rows.append_column("small", pa.array(rng.lognormal(0, 1, ROWS).astype(np.float32)))


@pytest.fixture(scope="module")
def df(spark):
    return spark.createDataFrame(table()).repartition(3)


def calls() -> list[tuple[str, str]]:
    """List every function with every column it takes."""
    accepted = []
    schema = table().schema
    for name in aggr.names():
        for column in TYPES:
            kind = schema.field(column).type
            other_types = [schema.field(other).type for other in OTHER_INPUTS.get(name, {}).values()]
            if other_types:
                kind = pa.struct(list(zip(aggr.get(name).inputs, [kind, *other_types], strict=True)))
            try:
                aggr.get(name)().result_type(aggr.get(name)().state_type(kind))
            except TypeError:
                continue
            if name == "duration_in" and column != "flag":  # it is asked for a value of the column's type
                continue
            if (name, column) != ("hdr", "x") and (name, column) != ("hdr", "price") and (name, column) != ("hdr", "i"):
                accepted.append((name, column))
    return accepted


def expected(name: str, column: str, parameters: tuple) -> dict:
    """Answer by the local engine, host by host."""
    rows, answers = table(), {}
    measure = aggr.caller(name)(column, *parameters, **OTHER_INPUTS.get(name, {}))
    for host in (None, "a", "b", "c"):
        mask = (
            rows["host"].is_null()
            if host is None
            else pa.compute.fill_null(pa.compute.equal(rows["host"], host), False)
        )
        part = rows.filter(mask)
        states = measure.reduce(part, Groups.single(len(part)))
        answers[host] = measure.function.finish(states)[0].as_py()
    return answers


def answers_by_host(rows: pa.Table) -> dict:
    """Read the answers of Spark by host."""
    return dict(zip(rows["host"].to_pylist(), rows.columns[1].to_pylist(), strict=True))


def same(a: object, b: object) -> bool:
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (math.isnan(a) and math.isnan(b))
    return a == b and type(a) is type(b)


BY_ONE = {"weighted_avg": "weight", "covar": "x"}  # with a further input
OF_MONEY = [*("sum", "avg", "var", "stdev", "min", "max", "dds", "skewness", "collect_set", "count_distinct"), *BY_ONE]


@pytest.mark.parametrize("in_sql", [False, True])
@pytest.mark.long
def test_decimals_are_never_read_as_doubles(spark, in_sql):
    """Without a type, the column's own decides, or the call is refused: 0.1 + 0.2 + 0.2 is not that of doubles."""
    import spark_udaf as su
    from spark_udaf import functions as A

    cents = pa.array(list(map(Decimal, ("0.10", "0.20", "0.20", "0.07", "0.11"))), pa.decimal128(10, 2))
    rows = pa.table({"price": cents, "one": pa.array([1, 1, 1, 2, 2])})
    money = spark.createDataFrame(rows)
    money.createOrReplaceTempView("money")
    su.register(spark)
    refused = set()
    for name in OF_MONEY:
        further = {BY_ONE[name]: "one"} if name in BY_ONE else {}
        measure = aggr.caller(name)("price", **further)
        local = measure.function.finish(measure.reduce(rows, Groups.single(5)))[0].as_py()
        try:
            if in_sql:
                result = spark.sql(f"SELECT aggr_{name}({', '.join(['price', *further.values()])}) FROM money").first()[
                    0
                ]
            else:
                result = money.agg(getattr(A, name)("price", *further.values())).toArrow().column(0)[0].as_py()
        except Exception as error:
            refused.add((name, bool(re.search("holds decimal|cannot represent 0.[0-9]+ exactly", str(error)))))
            continue
        if name != "dds":
            assert repr(result) == repr(local), name
    assert refused <= {(name, True) for name in ("sum", "min", "max", "collect_set")}


JOBS = 9
NAMES = list(dict.fromkeys(name for name, _ in calls()))


@pytest.mark.parametrize("names", [NAMES[i::JOBS] for i in range(JOBS)], ids=" ".join)
def test_every_function_and_type_gives_the_local_answer(names, df):
    """All columns that functions take, several functions in one job; types are stated, or taken from the schema.

    Most of the time of a job of one function is Spark's planning and code generation.
    """
    from spark_udaf import functions as A

    functions_of_schema = A.of(df)
    chosen = [(name, column) for name, column in calls() if name in names]
    columns_of_spark = []
    for name, column in chosen:
        parameters = PARAMETERS.get(name, ())
        other_inputs = OTHER_INPUTS.get(name, {})
        by_type = getattr(A, name)(column, *parameters, type=TYPES[column], **other_inputs)
        by_schema = getattr(functions_of_schema, name)(column, *parameters, **other_inputs)
        columns_of_spark += [by_type.alias(f"{name} {column}"), by_schema.alias(f"{name} {column} known")]
    answers = df.groupBy("host").agg(*columns_of_spark).toArrow()
    hosts = answers["host"].to_pylist()
    for name, column in chosen:
        expected_values = expected(name, column, PARAMETERS.get(name, ()))
        values = answers[f"{name} {column}"].to_pylist()
        assert all(map(same, values, answers[f"{name} {column} known"].to_pylist())), (name, column)
        result = dict(zip(hosts, values, strict=True))
        assert result.keys() == expected_values.keys()
        for host in expected_values:
            assert same(result[host], expected_values[host]), (name, column, host)


CORE = ("count", "sum", "min", "max", "avg", "var", "stdev", "dds", "hdr")
NUMERIC_TYPES = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal(10,2)", "decimal(38,6)")
VALUES_BY_KEY = {"a": [7, 0, None, 120, 44, 7, 3, 101], "b": [5], "c": [None]}


@pytest.mark.long
def test_the_core_functions_take_every_numeric_type_without_its_name(spark):
    """Expected values are exact fractions; hdr, which counts whole numbers, reads them without the quarter."""
    from spark_udaf import functions as A

    columns = []
    for place, dtype in enumerate(NUMERIC_TYPES):
        quarter = "0.25" if dtype[:3] in ("flo", "dou", "dec") else "0"
        columns += [f"CAST(v AS {dtype}) AS whole{place}", f"CAST(v + {quarter} AS {dtype}) AS x{place}"]
    rows = [(key, value) for key, values in VALUES_BY_KEY.items() for value in values]
    df = spark.createDataFrame(rows, "k string, v int").selectExpr("k", *columns)
    calls = []
    for place in range(len(NUMERIC_TYPES)):
        plain = [getattr(A, name)(f"x{place}").alias(f"{name}{place}") for name in CORE if name not in ("dds", "hdr")]
        sketches = [A.dds(f"x{place}", [0.5]).alias(f"dds{place}"), A.hdr(f"whole{place}", [0.5]).alias(f"hdr{place}")]
        calls += [*plain, *sketches]
    answers = {row.k: row for row in df.groupBy("k").agg(*calls).collect()}
    assert answers.keys() == VALUES_BY_KEY.keys()
    for key, values in VALUES_BY_KEY.items():
        whole_values = sorted(value for value in values if value is not None)
        for place, dtype in enumerate(NUMERIC_TYPES):
            quarter = Fraction(1, 4) if dtype[:3] in ("flo", "dou", "dec") else 0
            results = {name: answers[key][f"{name}{place}"] for name in CORE}
            dds, hdr = results.pop("dds"), results.pop("hdr")
            assert results == exact_results([value + quarter for value in whole_values]), (key, dtype)
            if not whole_values:
                assert dds is hdr is None
                continue
            median = whole_values[
                len(whole_values) // 2
            ]  # of an odd number of values, so that every method has the same median
            assert dds["count"] == hdr["count"] == len(whole_values)
            assert dds["quantiles"]["0.5"] == pytest.approx(float(median + quarter), rel=0.01), (key, dtype)
            assert hdr["quantiles"]["0.5"] == median, (key, dtype)


def exact_results(numbers: list[Fraction]) -> dict[str, float | int | None]:
    """Compute what the functions return for one group, rounded once."""
    n = len(numbers)
    if not n:
        return {"count": 0, **dict.fromkeys(("sum", "min", "max", "avg", "var", "stdev"))}
    mean = Fraction(sum(numbers), n)
    variance = None if n == 1 else sum((number - mean) ** 2 for number in numbers) / (n - 1)
    return {
        "count": n,
        "sum": float(sum(numbers)),
        "min": float(min(numbers)),
        "max": float(max(numbers)),
        "avg": float(mean),
        "var": None if variance is None else float(variance),
        "stdev": None if variance is None else pytest.approx(math.sqrt(variance), rel=1e-15),
    }


def test_conditions_expressions_and_rows(df):
    from pyspark.sql import functions as F

    from spark_udaf import functions as A

    rows = table()
    i = np.array(rows["i"].to_pylist())
    result = df.agg(
        A.count(),
        A.count(where="i > 5"),
        A.count("x", where=F.col("i") > 5),
        A.hdr(F.abs("i"), [0.5], where="i < 1000"),
        A.avg(F.col("i") + 1),
    ).first()
    x = np.array(rows["x"].is_null().to_pylist())
    assert result[0] == ROWS
    assert result[1] == (i > 5).sum()
    assert result[2] == ((i > 5) & ~x).sum()
    assert result[3]["count"] == (i < 1000).sum()
    assert result[4] == pytest.approx((i + 1).mean())


def test_a_row_that_is_left_out_counts_for_nothing(df):
    """Also where an input may be null: which row has the greatest i is told among the rows that are left."""
    from spark_udaf import functions as A

    rows = table()
    part = rows.filter(pa.compute.less(rows["i"], 1000))
    expected_values = part["word"][int(np.argmax(part["i"].to_numpy()))].as_py()
    assert df.agg(A.arg_max("word", "i", where="i < 1000", type="string")).first()[0] == expected_values


@pytest.mark.parametrize("form", ["agg", "a condition", "weights", "next to a built-in", "su.sql", "su.group_by"])
def test_groups_whose_values_are_all_null(spark, form):
    """All groups of a batch may be without values: one result is returned for each of them, as by Spark."""
    from pyspark.sql import functions as F

    import spark_udaf as su
    from spark_udaf import functions as A

    rows = spark.createDataFrame([(k, None) for k in range(5)], "k int, x double").coalesce(1)
    rows.createOrReplaceTempView("nothing_known")
    names = {"sum": "sum", "min": "min", "max": "max", "avg": "avg", "var": "var_samp", "stdev": "stddev_samp"}
    by_spark = rows.groupBy("k").agg(*(getattr(F, name)("x").alias(own) for own, name in names.items()))
    expected = sorted(map(tuple, by_spark.collect()), key=str)
    calls = {name: getattr(A, name) for name in names}
    if form == "agg":
        answer = rows.groupBy("k").agg(*(call("x").alias(name) for name, call in calls.items()))
    elif form == "a condition":
        ones = rows.withColumn("x", F.lit(1.0))
        answer = ones.groupBy("k").agg(*(call("x", where="k > 7").alias(name) for name, call in calls.items()))
    elif form == "weights":  # only these functions take them
        columns = [calls[name]("x", weight="k").alias(name) for name in ("sum", "avg")]
        answer = rows.groupBy("k").agg(*columns).selectExpr("k", *["sum"] * 3, *["avg"] * 3)
    elif form == "next to a built-in":
        columns = [call("x").alias(name) for name, call in calls.items()]
        answer = rows.groupBy("k").agg(*columns, F.count("x").alias("n")).drop("n")
    elif form == "su.sql":
        results = ", ".join(f"aggr_{name}(x)" for name in names)
        answer = su.sql(spark, f"SELECT k, {results} FROM nothing_known GROUP BY k")
    else:
        answer = su.group_by(rows, "k").agg(*(call("x").alias(name) for name, call in calls.items()))
    assert sorted(map(tuple, answer.collect()), key=str) == expected


def test_beside_functions_of_spark_and_over_no_rows(df):
    from pyspark.sql import functions as F

    from spark_udaf import functions as A

    both = df.groupBy("host").agg(A.count("x").alias("n"), F.count("x").alias("m"), A.of(df).max("ts"), F.max("ts"))
    assert both.columns == ["host", "n", "m", "max(ts)", "max(ts)"]
    assert all(row[1:3] == (row[2], row[2]) and row[3] == row[4] for row in both.collect())
    nothing = df.where("false").agg(A.count("x"), A.dds("x"), A.sum("i", type="bigint"))
    assert nothing.first()[:] == (0, None, aggr.Sum().finish(aggr.Sum().zero(1, pa.int64()))[0].as_py())


def test_what_a_schema_tells_is_refused_at_once(df):
    from spark_udaf import functions as A

    with pytest.raises(TypeError, match="sum cannot take a column of type string"):
        A.of(df).sum("word")
    with pytest.raises(TypeError, match="dds cannot take a column of type string"):
        A.of(df).dds("word")
    with pytest.raises(TypeError, match=r"A\.of needs a Spark DataFrame; got 3"):
        A.of(3)


def test_over_windows(df):
    from pyspark.sql import Window as W

    from spark_udaf import functions as A

    rows = df.where("host = 'a'").select(
        "host", "i", A.sum("i", type="bigint").over(W.partitionBy("host").orderBy("i").rowsBetween(-1, 0)).alias("two"),
        A.dds("x", [0.5]).over(W.partitionBy("host")).alias("all"),
    )  # fmt: skip
    result = rows.toArrow()
    ordered = sorted(result["i"].to_pylist())
    expected_values = {b: a + b for a, b in zip([0, *ordered[:-1]], ordered, strict=True)}
    assert dict(zip(result["i"].to_pylist(), result["two"].to_pylist(), strict=True)) == expected_values
    assert len({str(row) for row in result["all"].to_pylist()}) == 1
    assert result["all"][0].as_py() == expected("dds", "x", ([0.5],))["a"]


MISTAKES = [
    ("min", ("word",), {"type": "nonsense"}, ValueError, "cannot read 'nonsense' as a type"),
    ("dds", ("x", [1.5]), {}, ValueError, "a quantile must be a number from 0 to 1; got 1.5"),
    ("dds", ("x",), {"relative_accuracy": 0.0}, ValueError, "relative_accuracy must be"),
    ("hdr", ("i",), {"digits": 9}, ValueError, "digits must be a whole number from 1 to 5"),
    ("sum", ("word",), {"type": "string"}, TypeError, "sum cannot take a column of type string"),
    ("first", ("word",), {}, ValueError, "first needs event times"),
    ("sum", (), {}, ValueError, "sum needs a column"),
    ("count", (3,), {}, TypeError, "a column must be a Column or a name; got 3"),
    ("var", ("x", -1), {}, ValueError, "ddof must be a whole number of at least 0"),
    ("var", ("x", 1, 2, 3), {}, TypeError, "positional argument"),
]


@pytest.mark.parametrize(("name", "parameters", "named", "error", "message"), MISTAKES)
def test_a_bad_argument_is_told_before_any_job(name, parameters, named, error, message, spark):
    from spark_udaf import functions as A

    with pytest.raises(error, match=message):
        getattr(A, name)(*parameters, **named)


def test_unknown_functions_name_the_nearest(spark):
    from spark_udaf import functions as A

    with pytest.raises(AttributeError, match="there is no function 'stdv'; did you mean 'stdev'"):
        A.stdv("x")
    assert dir(A) == sorted([*aggr.names(), "of"])


@pytest.mark.long
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda A: A.min("word", type="double"),
            r"min\(word\): the column has the type string, but is read as double; pass type",
        ),
        (lambda A: A.min("word"), r"min\(word\): the column has the type string.*pass type='string', use A.of\(df\)"),
        (
            lambda A: A.max("big"),
            r"max\(big\): .*a double cannot represent 9007199254740993 exactly; pass type='bigint'",
        ),
        (
            lambda A: A.sum("big", type="double"),
            r"sum\(big\): the column is read as double, which would change a value.*pass type='bigint'",
        ),
        (lambda A: A.hdr("x"), r"hdr\(x\): hdr"),
    ],
)
def test_an_error_in_a_worker_names_function_and_column(call, message, df):
    from spark_udaf import functions as A

    with pytest.raises(Exception, match=message):
        df.selectExpr("*", "9007199254740993 AS big").groupBy("host").agg(call(A)).collect()


@pytest.mark.long
def test_sql(spark, df):
    import spark_udaf as su

    names = su.register(spark)
    assert {"aggr_dds", "aggr_dds_state", "aggr_dds_merge", "aggr_dds_quantile", "aggr_min_string"} <= set(names)
    df.createOrReplaceTempView("rows")
    calls_by_sql = {
        "aggr_dds(x, array(0.5D, 0.99), 0.02)": ("dds", "x", ([0.5, 0.99], 0.02)),
        "aggr_stdev(x)": ("stdev", "x", ()),
        "aggr_var(x, 0)": ("var", "x", (0,)),
        "aggr_min_string(word)": ("min", "word", ()),
        "aggr_sum_bigint(i)": ("sum", "i", ()),
        "aggr_avg_timestamp(ts)": ("avg", "ts", ()),
        "aggr_last_string(word, ts)": ("last", "word", ()),
        "aggr_count(x)": ("count", "x", ()),
        "aggr_arg_max_string(word, x)": ("arg_max", "word", ()),
        "aggr_arg_min_bigint(i, x)": ("arg_min", "i", ()),
        "aggr_weighted_avg(i, x)": ("weighted_avg", "i", ()),
    }
    for call, (name, column, parameters) in calls_by_sql.items():
        answers = answers_by_host(spark.sql(f"SELECT host, {call} FROM rows GROUP BY host").toArrow())
        for host, expected_values in expected(name, column, parameters).items():
            result = answers[host]
            if isinstance(result, dict):
                result = {**result, "quantiles": dict(result["quantiles"])}
            assert same(result, expected_values), (call, host)


@pytest.mark.long
def test_sql_in_two_steps(spark, df):
    import spark_udaf as su

    su.register(spark)
    df.createOrReplaceTempView("rows")
    spark.sql(
        "SELECT host, shelf, aggr_dds_state(x, 0.02) AS s FROM rows GROUP BY host, shelf"
    ).createOrReplaceTempView("states")
    merged = "(SELECT host, aggr_dds_merge(s) AS s FROM states GROUP BY host)"
    reads = ["quantile(s, 0.5)", "quantile(s, 0.99D)", "mean(s)", "count(s)", "rank(s, 1e9)", "finish(s, array(0.99))"]
    for read in reads:
        answers = answers_by_host(spark.sql(f"SELECT host, aggr_dds_{read} FROM {merged}").toArrow())
        for host, expected_values in expected("dds", "x", ([0.5, 0.99], 0.02)).items():
            states = {
                "quantile(s, 0.5)": expected_values["quantiles"]["0.5"],
                "quantile(s, 0.99D)": expected_values["quantiles"]["0.99"],
                "mean(s)": expected_values["mean"],
                "count(s)": expected_values["count"],
            }
            if read in states:
                assert same(answers[host], states[read]), (read, host)
            elif read.startswith("finish"):
                assert dict(answers[host]["quantiles"]) == {"0.99": expected_values["quantiles"]["0.99"]}
            else:
                assert 0.5 < answers[host] < 1.0
    several = {
        "arg_max_string": ("arg_max", "word", "x"),
        "weighted_avg": ("weighted_avg", "i", "x"),
        "first_bigint": ("first", "i", "ts"),
    }
    for call, (name, column, other) in several.items():
        spark.sql(
            f"SELECT host, shelf, aggr_{call}_state({column}, {other}) AS s FROM rows GROUP BY host, shelf"
        ).createOrReplaceTempView("states")
        united = f"(SELECT host, aggr_{call}_merge(s) AS s FROM states GROUP BY host)"
        read = spark.sql(f"SELECT host, aggr_{call}_finish(s) FROM {united}").toArrow()
        assert all(
            same(answers_by_host(read)[host], expected_values)
            for host, expected_values in expected(name, column, ()).items()
        ), call
    with pytest.raises(Exception, match="aggr_dds: a quantile must be a number from 0 to 1"):
        spark.sql("SELECT aggr_dds(x, array(1.5D)) FROM rows").collect()
    with pytest.raises(Exception, match="aggr_var: ddof must be the same in all rows"):
        spark.sql("SELECT aggr_var(x, i) FROM rows").collect()
    with pytest.raises(Exception, match="aggr_first: the call needs event times"):
        spark.sql("SELECT aggr_first(x) FROM rows").collect()


@pytest.mark.parametrize(
    ("times", "micros"),
    [
        (pa.array([-1, None, 1500, -1001]).cast(pa.timestamp("ns", "UTC")), [-1, None, 1, -2]),
        (pa.array([-1, None, 1, 0]).cast(pa.timestamp("us")), [-1, None, 1, 0]),
        (pa.array([-1, None, 1, 0], pa.int64()), [-1000, None, 1000, 0]),
        (pa.array([None] * 4, pa.date32()), [None] * 4),
    ],
)
def test_states_keep_event_times_as_frames_do(times, micros):
    """In microseconds, rounded down, also before 1970; integers are Unix milliseconds; rows without one are skipped."""
    from spark_udaf.udaf.aggregate_function import UdafSpec

    values = pa.array([10, 20, 30, 40])
    reading = UdafSpec(aggr.First(), "first(v)", pa.int64(), returns_states=True)
    result = reading.results(pa.StructArray.from_arrays([values, times], names=["value", "time"]))
    assert result.type == reading.result_type
    event_times = pa.array(micros).cast(pa.timestamp("us", "UTC"))
    expected_values = aggr.First().reduce([values, event_times], Groups.single(4))
    assert result.to_pylist() == expected_values.to_pylist()
    assert (
        aggr.First().finish(result)[0].as_py()
        == min(
            ((at, value) for at, value in zip(micros, values.to_pylist(), strict=True) if at is not None),
            default=(None, None),
        )[1]
    )
