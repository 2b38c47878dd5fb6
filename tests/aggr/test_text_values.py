"""try_cast of text to numbers and dates, regexp_replace, and branches of expressions that are not evaluated."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

from aggr.sql import evaluate

TEXTS = ["1e400", "+5", "inf", "nan", "-nan", "5.", ".5", "1e-18", "1e3", "", "-", ".", "+", "1.5", "2.5", "-1.5", None]
TEXTS += ["99999999999999999999", " 2 ", "1e", "1e+3", "\t2\n", "٣", "-.5e1", "9999999999999.9999", "007", "-0", "300"]
TEXTS += ["2024-05-01", "2024-5-1", "2024-02-30", " 2024-05-01 ", "2024-05-01 10:00", "20240501", "2024-05-01x"]
TEXTS += ["0001-01-01", "2024-02-29", "2023-02-29", "2024-04-31", "2024-12-31", "1900-02-29", "2000-02-29", "12 ms"]


@pytest.mark.parametrize("kind", ["DOUBLE", "FLOAT", "DECIMAL(18, 3)", "DECIMAL(4, 1)", "BIGINT", "TINYINT", "DATE"])
def test_try_cast_gives_what_duckdb_gives(kind):
    is_integer = kind in (
        "BIGINT",
        "TINYINT",
    )  # of a text with a point or an exponent no whole number is made, as in Spark
    texts = [text for text in TEXTS if not (is_integer and text and ("." in text or "e" in text))]
    rows = pa.table({"s": [text for text in texts if kind != "DATE" or text != "inf"]})  # DuckDB has infinite dates
    expected = duckdb.sql(f"SELECT TRY_CAST(s AS {kind}) x FROM rows").fetchall()
    assert repr(evaluate(f"TRY_CAST(s AS {kind})", rows).to_pylist()) == repr([x for (x,) in expected])


def test_cast_refuses_what_try_cast_gives_null_for():
    with pytest.raises(ValueError, match="the text '12 ms' cannot be read as DOUBLE; TRY_CAST returns null"):
        evaluate("CAST(s AS DOUBLE)", pa.table({"s": ["1", "12 ms"]}))
    assert evaluate("TRY_CAST(i AS TINYINT)", pa.table({"i": [127, 128, -129, None]})).to_pylist() == [127, *[None] * 3]


@pytest.mark.parametrize(
    "text",
    [
        "CASE WHEN s = '-' OR s = 'x' THEN -1 ELSE CAST(s AS BIGINT) END",
        "CASE s WHEN '-' THEN -1 WHEN 'x' THEN -2 ELSE CAST(s AS BIGINT) END",
        "IF(s IN ('-', 'x'), -1, CAST(s AS BIGINT))",
        "CASE WHEN s IN ('-', 'x') THEN -1 WHEN CAST(s AS BIGINT) > 5 THEN 1 ELSE CAST(s AS BIGINT) END",
        "CASE WHEN i < 9 THEN i * 9223372036854775807 END",
        "CASE WHEN s = 'x' THEN CASE WHEN s = '-' THEN CAST(s AS BIGINT) ELSE 7 END END",
    ],
)
def test_only_the_branch_that_is_taken_is_computed(text):
    rows = pa.table({"s": ["5", "-", None, "x", "12"], "i": [0, 10, 11, 12, None]})
    expected = duckdb.sql(f"SELECT {text} x FROM rows").fetchall()
    assert evaluate(text, rows).to_pylist() == [x for (x,) in expected]


def test_what_is_taken_may_fail():
    with pytest.raises(ValueError, match="the text 'x' cannot be read as BIGINT"):
        evaluate("CASE WHEN s = '-' THEN 0 ELSE CAST(s AS BIGINT) END", pa.table({"s": ["-", "x"]}))


def test_regexp_replace_replaces_all_and_names_groups_as_spark_does():
    rows = pa.table({"s": ["10 ms", None, "a$\\1"]})
    assert evaluate("regexp_replace(s, '([0-9])([0-9])', '$2$1')", rows).to_pylist() == ["01 ms", None, "a$\\1"]
    assert evaluate(r"regexp_replace(s, '[a-z]', '\\$')", rows).to_pylist() == ["10 $$", None, "$$\\1"]
    for put, excerpt in (("$3", "uses a group"), ("$", "write \\$1"), (r"\\1", "write \\$1")):
        with pytest.raises(ValueError, match=excerpt):
            evaluate(f"regexp_replace(s, '(a)', '{put}')", rows)
