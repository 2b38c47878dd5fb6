"""su.group_by and Spark's groupBy: random keys, inputs and conditions give the same rows, or both reject them."""

from __future__ import annotations

import datetime as dt
import os
import random
from collections import defaultdict
from decimal import Decimal
from functools import reduce

import pytest

import aggr
from tests import engines

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SEED = int(os.environ.get("TILTFRAME_SEED", random.randrange(10**6)))
CASES = int(os.environ.get("TRIALS", 100))
QUESTIONS = 20  # an input and a condition each, asked of the same keys at once: a case is keys and a question
TOGETHER = 5  # sets of keys in one job

KEYS = [  # text that is evaluated with F and Window; each as Spark's groupBy takes it
    *(
        "'k'",
        "'v'",
        "'day'",
        "'ts'",
        "'price'",
        "F.col('inner.a')",
        "F.col('inner')",
        "'ok'",
        "F.col('k').alias('K 2')",
    ),
    *(
        "F.upper('k')",
        "F.col('v') % 3",
        "F.expr('v / 2')",
        "F.expr('CASE WHEN v > 2 THEN k END')",
        "F.get('tags', F.lit(0))",
    ),
    *("F.expr('v IN (1, 2)')", "F.struct('k', 'ok')", "F.expr('x > 1')"),
    *("F.date_trunc('hour', 'ts')", "F.hour('ts')", "F.lit('one')", "F.lit(None)", "F.coalesce('k', F.lit('-'))"),
    *("F.window('ts', '10 minutes')", "F.window('ts', '10 minutes', '5 minutes')", "F.window('ts', '1 hour').start"),
    *("F.window('ts', '10 minutes', '5 minutes', '2 minutes').alias('w')", "F.expr(\"window(ts, '7 minutes')\")"),
    *("F.window_time(F.window('ts', '5 minutes'))", "F.spark_partition_id()", "F.rand(3) > 0.5", "F.typeof('v')"),
    *("F.monotonically_increasing_id()", "F.length(F.expr('uuid()'))", "F.input_file_name()", "F.current_date()"),
    *("'y'", "'big'", "'money'", "'raw'", "F.col('big') % 7", "F.col('y') > 0", "F.col('local')", "F.expr('date(ts)')"),
    *("F.expr('(SELECT 7)')", "F.expr('v IN (SELECT 2)')", "F.when(F.col('v') > 2, F.col('k'))", "F.isnull('k')"),
]
REFUSED = [  # by Spark's groupBy, or by ours alone
    *("F.explode('tags')", "F.posexplode('tags')", "F.expr('stack(2, 1, 2)')", "F.expr('inline(array(inner))')"),
    *("F.explode('tags') + 1", "F.sum('v')", "F.sum('v').over(Window.partitionBy('k'))", "F.col('nowhere')"),
    *("F.row_number().over(Window.orderBy('v'))", "F.grouping('k')", "F.grouping_id()", "F.expr('explode(tags)')"),
]
NESTED = ["F.col('tags')", "F.array_sort('tags')", "F.create_map('k', 'v')"]  # that ours alone refuse
SESSIONS = [
    "F.session_window('ts', '5 minutes')",
    "F.session_window('ts', '5 minutes').alias('w')",
    "F.session_window('ts', F.when(F.col('v') > 2, '5 minutes').otherwise('1 minute'))",
    "F.expr(\"session_window(ts, '5 minutes')\")",
]
INPUTS = ["v", "v + 1", "length(k)", "CASE WHEN ok THEN v END", "inner.a", "get(tags, 1)", "hour(ts)", "money"]
INPUTS += ["y + 0", "CASE WHEN y > 0 THEN y END"]  # of which zero has no sign, for to Spark's min both are one
UNSUMMED = ["big", "k", "day", "ts", "local", "raw", "ok"]
BAD_INPUTS = ["explode(tags)", "rand(3)", "sum(v)", "row_number() OVER (ORDER BY v)", "monotonically_increasing_id()"]
CONDITIONS = [
    None,
    "v > 1",
    "k = 'a'",
    "ok",
    "ok IS NULL",
    "v IN (1, 3)",
    "y < 1",
    "big > 9007199254740992",
    "money < 1",
]
FLOATS = [0.0, -0.0, 0.5, -2.25, 2.0**40, float("nan"), float("inf"), float("-inf"), None]  # Spark sums these exactly
BIGINTS = [0, 2**53 - 1, 2**53 + 1, 2**63 - 1, -(2**63), -(2**63) + 7, None]
MONEY = [*map(Decimal, ("0.00", "-0.01", "99999999999999.99", "0.10")), None]
CHANGES = [
    dt.datetime(2024, 3, 31, 1),
    dt.datetime(2024, 10, 27, 0, 59, 59, 999_999),
    dt.datetime(1969, 12, 31, 23),
    None,
]


@pytest.fixture(scope="module")
def small_jobs(spark):
    with engines.settings(spark, engines.SMALL_JOBS):
        yield


@pytest.fixture(scope="module")
def df(spark):
    draws, start = random.Random(SEED), dt.datetime(2024, 3, 31, 0, 0)
    rows = [
        (
            *(draws.choice(["a", "B", "", None]), draws.choice([*range(5), None]), draws.choice([0.5, 1.5, None])),
            *(start + dt.timedelta(minutes=draws.randrange(300)) if draws.random() < 0.9 else None,),
            *(dt.date(2024, 1, draws.randint(1, 3)), draws.choice([True, False, None]), draws.randint(1, 3)),
            *((draws.randint(0, 1), draws.choice(["p", None])), draws.sample(range(4), draws.randint(0, 2))),
            *(
                draws.choice(FLOATS),
                draws.choice(BIGINTS),
                draws.choice(MONEY),
                draws.choice([b"", b"\0\xff", b"a", None]),
            ),
            draws.choice(CHANGES),
        )
        for _ in range(60)
    ]
    types = "k string, v int, x double, ts timestamp, day date, ok boolean, price int, inner struct<a:int,b:string>"
    nasty = "y double, big bigint, money decimal(18,2), raw binary, local timestamp_ntz"
    return spark.createDataFrame(rows, f"{types}, tags array<int>, {nasty}").coalesce(1).cache()


def columns_from(texts):
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    return [eval(text, {"F": F, "Window": Window}) for text in texts]


def results_of(column):
    """Name the results to be compared; a column that has no sum, or whose sum is too large, has none."""
    return ["n", "least", "most", *["s"] * (column not in UNSUMMED)]


def by_spark(df, keys, questions):
    """Group by Spark's own means, which analyzes at once."""
    from pyspark.sql import functions as F

    calls, columns = {"n": F.count, "s": F.sum, "least": F.min, "most": F.max}, []
    for number, (column, where) in enumerate(questions):
        value = F.expr(column) if where is None else F.expr(f"CASE WHEN {where} THEN ({column}) END")
        columns += [calls[name](value).alias(f"{name}{number}") for name in results_of(column)]
    answers = df.groupBy(*keys).agg(*columns)
    assert answers.schema
    return answers


def by_ours(df, keys, questions):
    import spark_udaf as su

    calls = {"n": aggr.count, "s": aggr.sum, "least": aggr.min, "most": aggr.max}
    numbered_questions = enumerate(questions)
    measures = {f"{name}{n}": calls[name](c, where=w) for n, (c, w) in numbered_questions for name in results_of(c)}
    return su.group_by(df, *keys).agg(**measures)


def rows_of(frames):
    """Compute many DataFrames in one job: the rows of each as text, in one order."""
    from pyspark.sql import functions as F

    labelled = [
        frame.select(F.lit(place).alias("place"), F.struct("*").cast("string")) for place, frame in enumerate(frames)
    ]
    rows_by_key = defaultdict(list)
    for place, text in reduce(lambda a, b: a.union(b), labelled).collect():
        rows_by_key[place].append(text)
    return [sorted(rows_by_key[place]) for place in range(len(frames))]


def drawn(draws, count):
    """Draw as many cases: sets of keys, each with its questions."""
    for left in range(count, 0, -QUESTIONS):
        questions = [(draws.choice(INPUTS + UNSUMMED), draws.choice(CONDITIONS)) for _ in range(min(left, QUESTIONS))]
        yield draws.sample(KEYS, draws.randint(0, 3)), questions


@pytest.mark.long
def test_random_groups(df, small_jobs):
    print("seed", SEED)
    cases = list(drawn(random.Random(SEED), CASES))
    for at in range(0, len(cases), TOGETHER):
        waiting = []
        for texts, questions in cases[at : at + TOGETHER]:
            keys = columns_from(texts)
            try:
                spark_frames = by_spark(df, keys, questions)
            except Exception:  # two windows, say: what Spark refuses, ours does as well
                with pytest.raises(Exception, match=r"\S"):
                    by_ours(df, keys, questions).collect()
            else:
                waiting.append(((texts, questions), spark_frames, by_ours(df, keys, questions)))
        all_questions, spark_frames, ours = zip(*waiting, strict=True)
        assert [frame.columns for frame in ours] == [frame.columns for frame in spark_frames], (SEED, all_questions)
        for questions_of_frame, expected, actual in zip(
            all_questions, rows_of(spark_frames), rows_of(ours), strict=True
        ):
            assert actual == expected, (SEED, questions_of_frame)


@pytest.mark.parametrize("text", REFUSED)
def test_keys_that_groupby_refuses(df, text):
    import spark_udaf as su

    (key,) = columns_from([text])
    with pytest.raises(Exception, match=r"\S"):
        _ = df.groupBy(key).count().schema
    with pytest.raises(Exception, match=r"\S"):
        su.group_by(df, key).agg(aggr.count())


@pytest.mark.parametrize("text", SESSIONS)
def test_session_windows_are_refused_by_name(df, text):
    import spark_udaf as su

    for keys in (columns_from([text]), [*columns_from([text]), "k"]):
        with pytest.raises(ValueError, match=r"cannot group by the session window .*su\.aggregate for sessions"):
            su.group_by(df, *keys).agg(aggr.count())


@pytest.mark.parametrize("text", NESTED)
def test_lists_and_maps_are_refused_by_name(df, text):
    import spark_udaf as su

    with pytest.raises(TypeError, match=r"the key 'wide' has type .*; keys must not be nested"):
        su.group_by(df, columns_from([text])[0].alias("wide")).agg(aggr.count())


@pytest.mark.long
def test_errors_of_tasks_name_what_the_user_named(df):
    import spark_udaf as su

    for calls, words in [
        ({"total": aggr.sum("v + 9223372036854775800")}, ("total, sum", "v + 9223372036854775800", "at K=")),
        ({"tail": aggr.hdr("v - 5")}, ("hdr(", "v - 5")),
        ({"n": aggr.count(where="v > 'a'")}, ("count(where=", "v > 'a'")),
    ]:
        with pytest.raises(Exception, match=r"\S") as error:
            su.group_by(df, columns_from(["F.upper('k').alias('K')"])[0]).agg(**calls).collect()
        message = str(error.value)
        assert all(word in message for word in words), message
        assert not any(word in message for word in ("result 0", "key 0", "input 1", "input 0")), message


@pytest.mark.parametrize("column", BAD_INPUTS)
def test_inputs_that_aggregates_refuse(df, column):
    from pyspark.sql import functions as F

    import spark_udaf as su

    with pytest.raises(Exception, match=r"\S"):
        _ = df.groupBy("k").agg(F.count(F.expr(column))).schema
    with pytest.raises(Exception, match=r"\S"):
        su.group_by(df, "k").agg(aggr.count(column))
