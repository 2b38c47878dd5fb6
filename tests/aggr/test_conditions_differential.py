"""Conditions choose the rows that DuckDB and Spark choose."""

from __future__ import annotations

import datetime
import os
import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
import sqlglot

import aggr
from aggr.sql import columns_of, rows_where, to_expression
from tests.random_conditions import Conditions, for_duckdb, table
from tiltframe import TiltFrame, finish, rollup

TRIALS = int(os.environ.get("TRIALS", "1500"))
SEED = int(os.environ.get("TILTFRAME_SEED", random.randrange(10**6)))
MOST_REFUSED = 0.05
BATCH = 20


@pytest.fixture(scope="module")
def duck():
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET threads = 1")
    # It turns -f <= 'nan' into f >= -'nan' AND NOT isnan(f), which is another answer than its own of the values
    connection.execute("SET disabled_optimizers = 'expression_rewriter'")
    connection.register("given", table(SEED))
    connection.execute("CREATE TABLE t AS SELECT * FROM given")
    yield connection
    connection.close()


def chosen_by_duckdb(connection, conditions):
    """Evaluate conditions together; None for each that DuckDB refuses or fails at."""
    columns = ", ".join(f"coalesce(({for_duckdb(text)}), false)" for text in conditions)
    try:
        chosen = connection.sql(f"SELECT {columns} FROM t").to_arrow_table()
    except duckdb.Error:
        if len(conditions) == 1:
            return [None]
        half = len(conditions) // 2
        return chosen_by_duckdb(connection, conditions[:half]) + chosen_by_duckdb(connection, conditions[half:])
    return [column.to_numpy() for column in chosen.columns]


def chosen_pairwise(connection, text):
    """Evaluate a condition with each BETWEEN written as two comparisons, as Spark takes it: see docs/conditions.md."""

    def two(node):
        if not isinstance(node, sqlglot.exp.Between):
            return node
        value, low, high = (node.args[name].sql("duckdb") for name in ("this", "low", "high"))
        return sqlglot.parse_one(f"(({value}) >= ({low}) AND ({value}) <= ({high}))", dialect="duckdb").transform(two)

    if "BETWEEN" not in text:
        return None
    tree = sqlglot.parse_one(for_duckdb(text), dialect="duckdb")
    return chosen_by_duckdb(connection, [tree.transform(two).sql("duckdb")])[0]


def chosen_by_us(text, rows):
    try:
        return rows_where(text, rows)
    except ValueError as error:
        return str(error)


@pytest.mark.slow
@pytest.mark.long
def test_random_conditions_choose_the_rows_that_duckdb_chooses(duck):
    """``TRIALS`` says how many conditions, ``TILTFRAME_SEED`` which.

    DuckDB works on the next batches meanwhile, in a thread.
    """
    make, rows, count = Conditions(SEED), table(SEED), TRIALS
    print(f"seed {SEED}")
    compared, refused, different = 0, Counter(), []
    batches = [[make.condition(depth=1 + i % 3) for i in range(BATCH)] for _ in range(0, count, BATCH)]
    with ThreadPoolExecutor(1) as beside:
        answers = beside.map(lambda batch: chosen_by_duckdb(duck, batch), batches)
        for text, expected in (
            pair for batch in zip(batches, answers, strict=True) for pair in zip(*batch, strict=True)
        ):
            if expected is None:
                continue
            compared += 1
            chosen = chosen_by_us(text, rows)
            if isinstance(chosen, str):
                refused[chosen[-100:]] += 1
            elif not np.array_equal(chosen, expected):
                different.append(text)
    different = [
        text for text in different if not np.array_equal(chosen_by_us(text, rows), chosen_pairwise(duck, text))
    ]
    shortest = "\n".join(sorted(different, key=len)[:5])
    assert not different, f"{len(different)} of {compared}:\n{shortest}"
    assert compared >= 0.9 * count
    assert refused.total() <= MOST_REFUSED * compared, refused.most_common(5)


@pytest.mark.slow
def test_an_expression_of_arrow_chooses_the_same_rows():
    make, rows = Conditions(7), table().append_column("row", pa.array(range(table().num_rows)))
    data = ds.dataset(rows)
    for _ in range(300):
        text = make.condition()
        chosen = chosen_by_us(text, rows)
        if not isinstance(chosen, str):
            filtered = data.to_table(columns=["row"], filter=to_expression(text, rows.schema))
            assert filtered.column("row").to_pylist() == np.flatnonzero(chosen).tolist(), text


def test_null_beside_a_number_beyond_bigint_is_null(duck):
    """As in DuckDB; Spark answers by the number alone, and so chooses rows where the column is null."""
    for sign in ("<", "<=", ">", ">=", "=", "<>"):
        for number in (2**63, -(2**63) - 1, 2**64):
            for text in (f"i32 {sign} {number}", f"NOT (i64 {sign} {number})"):
                (expected,) = chosen_by_duckdb(duck, [text])
                assert np.array_equal(chosen_by_us(text, table(SEED)), expected), text


def test_constants_of_a_type_among_others(duck):
    for text in (
        "f NOT IN (0e0, nullif(0e0, 0e0))",
        "f IN (1.5, nullif(1, 1))",
        "NOT (i32 IN (1, coalesce(nullif(2, 2), NULL), 7))",
        "s NOT IN ('a', nullif('b', 'b'))",
        "nullif(1, 1) NOT IN (i32, 2)",
        "NOT (i32 = nullif(1, 1))",
        "NOT (i32 < nullif(1.5, 1.5))",
        "(i32 <> nullif(1, 1)) IS NULL",
        "CASE i32 WHEN nullif(1, 1) THEN true ELSE false END",
        "i32 BETWEEN nullif(1, 1) AND 0",
        "NOT (i32 BETWEEN nullif(1, 1) AND 0)",
        "i32 IS NOT DISTINCT FROM nullif(1, 1)",
        # and all of IN in one type: as doubles, 2^53 + 1 is 2^53
        "i64 IN (d1, 9007199254740992, f)",
        "i64 NOT IN (9007199254740993, 1.5e0)",
    ):
        (expected,) = chosen_by_duckdb(duck, [text])
        assert np.array_equal(chosen_by_us(text, table(SEED)), expected), text


def values_of(make, count):
    """Write expressions of every kind whose values DuckDB, Spark and Python write alike."""
    kinds = [make.number, make.number, make.double, make.single, make.text, make.date, make.condition]
    return [make.rng.choice(kinds)() for _ in range(count)]


def plain(value):
    """Give a value as one that compares with other types of numbers: NaN equals itself, both zeros are one."""
    if isinstance(value, float):
        return "nan" if value != value else value + 0.0
    if isinstance(value, datetime.datetime):  # Spark's are of a zone, here UTC
        return value.replace(tzinfo=None)
    return value


def by_duckdb(connection, query, texts):
    """Ask for several expressions at once; None for each that DuckDB refuses or fails at."""
    try:
        return connection.sql(query(texts)).to_arrow_table().to_pylist()
    except duckdb.Error:
        return None


INPUTS = {"n": aggr.count, "low": aggr.min, "high": aggr.max}


def results_of(rows, texts):
    """Aggregate expressions by q; None if one is refused."""
    measures = {f"{name}{i}": make(text) for i, text in enumerate(texts) for name, make in INPUTS.items()}
    frame = TiltFrame(["all"], "ts0", measures, ["q"])
    try:
        return {row["q"]: row for row in finish(rollup(rows, frame), frame).to_pylist()}
    except (ValueError, TypeError):
        return None


def select_list(texts):
    """Write the same as columns of SQL."""
    return ", ".join(
        f"count({t}) n{i}, min({t}) low{i}, max({t}) high{i}" for i, t in enumerate(f"({t})" for t in texts)
    )


def same(actual, expected):
    """Say whether rows by q have equal values."""
    expected = {row["q"]: row for row in expected}
    return expected.keys() == actual.keys() and all(
        plain(value) == plain(actual[q][name]) for q, row in expected.items() for name, value in row.items()
    )


@pytest.mark.long
@pytest.mark.slow
def test_random_expressions_as_inputs_have_the_values_of_duckdb(duck):
    count, make = TRIALS // 4, Conditions(SEED)
    rows, texts = table(SEED).append_column("ts0", pa.array([0] * table().num_rows)), values_of(make, count)
    compared, refused = 0, 0

    def compare(texts):
        nonlocal compared, refused
        expected = by_duckdb(duck, lambda t: f"SELECT q, {for_duckdb(select_list(t))} FROM t GROUP BY q", texts)
        result = None if expected is None else results_of(rows, texts)
        if result is not None and expected is not None:
            compared += len(texts)
            if not same(result, expected):
                single_texts = [[text] for text in texts] if len(texts) > 1 else []
                assert single_texts, texts
                for single_text in single_texts:
                    compare(single_text)
        elif len(texts) > 1:
            for half in (texts[: len(texts) // 2], texts[len(texts) // 2 :]):
                compare(half)
        else:
            refused += expected is not None

    for at in range(0, count, BATCH):
        compare(texts[at : at + BATCH])
    assert compared >= 0.9 * count
    assert refused <= MOST_REFUSED * compared


@pytest.mark.long
@pytest.mark.slow
def test_random_expressions_as_keys_make_the_groups_of_duckdb(duck):
    make, rows = Conditions(SEED), table(SEED).append_column("ts0", pa.array([0] * table().num_rows))
    print(f"seed {SEED}")
    texts = values_of(make, 400)
    constants = [text for text in texts if not columns_of(text, "expression")]
    for text in constants:
        with pytest.raises(ValueError, match=r"is the constant .*, but a key must use a column"):
            rollup(rows, TiltFrame(["all"], "ts0", {"n": aggr.count()}, {"k": text}))
    reading_columns = [text for text in texts if text not in constants]
    compared = 0
    for text in reading_columns:
        expected = by_duckdb(duck, lambda t: f"SELECT {for_duckdb(t)} k, count(*) n FROM t GROUP BY 1", text)
        frame = TiltFrame(["all"], "ts0", {"n": aggr.count()}, {"k": text})
        try:
            result = finish(rollup(rows, frame), frame).to_pylist()
        except (ValueError, TypeError):
            continue
        if expected is not None:
            assert {plain(r["k"]): r["n"] for r in result} == {plain(r["k"]): r["n"] for r in expected}, text
            compared += 1
    assert compared >= 0.9 * len(reading_columns)
    assert len(reading_columns) >= 250


WIDER = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64()}
ZONE = "spark.sql.session.timeZone"


@pytest.fixture
def spark_view(spark):
    """Make a view of the rows in the types that Spark has."""
    rows = table().drop_columns(["u64", "ms", "ns"])
    rows = rows.cast(pa.schema([(f.name, WIDER.get(f.type, f.type)) for f in rows.schema]))
    before = spark.conf.get(ZONE)
    spark.conf.set(ZONE, "UTC")
    numbered = rows.append_column("row", pa.array(range(rows.num_rows)))
    spark.createDataFrame(numbered).coalesce(1).createOrReplaceTempView("conditions_rows")
    yield rows
    spark.catalog.dropTempView("conditions_rows")
    spark.conf.set(ZONE, before)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.long
def test_random_conditions_choose_the_rows_that_spark_chooses(spark, spark_view):
    make, refused, batch_count = Conditions(3, spark=True), 0, 5  # DuckDB answers 4,000, by the same code of ours
    for _ in range(batch_count):
        conditions = [make.condition() for _ in range(100)]
        columns = ", ".join(f"coalesce(({text}), false) c{i}" for i, text in enumerate(conditions))
        result = spark.sql(f"SELECT row, {columns} FROM conditions_rows").toArrow().sort_by("row")
        for i, text in enumerate(conditions):
            ours = chosen_by_us(text, spark_view)
            if isinstance(ours, str):
                refused += 1
            else:
                assert np.array_equal(ours, result.column(f"c{i}").to_numpy()), text
    assert refused <= MOST_REFUSED * 100 * batch_count


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.long
def test_random_expressions_have_the_values_of_spark(spark, spark_view):
    make, rows = Conditions(11, spark=True), spark_view.append_column("ts0", pa.array([0] * spark_view.num_rows))
    compared = 0
    for _ in range(15):
        texts = values_of(make, 20)
        texts = [text for text in texts if results_of(rows, [text]) is not None]
        expected = spark.sql(f"SELECT q, {select_list(texts)} FROM conditions_rows GROUP BY q").toArrow().to_pylist()
        result = results_of(rows, texts)
        for i, text in enumerate(texts):
            names = ["q", f"n{i}", f"low{i}", f"high{i}"]
            assert same(result, [{name: row[name] for name in names} for row in expected]), text
        compared += len(texts)
    assert compared >= 270
