"""Conditions: every part of the language, the texts that are rejected, and the time for long conditions."""

from __future__ import annotations

import datetime as dt
import logging
import re
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

from aggr.sql import check_condition, columns_of, evaluate, rows_where, to_expression, value_type
from aggr.sql.function_table import TABLE as FUNCTIONS

NAN, INF = float("nan"), float("inf")
BIG = 2**53
TABLE = pa.table(
    {
        "i": pa.array([1, BIG, BIG + 1, -7, None]),
        "small": pa.array([1, 2, 127, -128, None], pa.int8()),
        "u": pa.array([0, 1, 2**63, 2**64 - 1, None], pa.uint64()),
        "f": [1.5, NAN, INF, -0.0, None],
        "single": pa.array([0.1, NAN, 1.0, -0.0, None], pa.float32()),
        "d": pa.array([Decimal(x) for x in ("0.30", "1.50", "-2.00", "9007199254740993.00")] + [None]),
        "s": ["abc", "a%c", "A\nc", "日本_", None],
        "p": [True, False, None, True, None],
        "ts": pa.array([0, 1, -1, 1_714_566_615_250_000, None], pa.timestamp("us", "UTC")),
        "local": pa.array([0, 1, -1, 1_714_566_615_250_000, None], pa.timestamp("us")),
        "ns": pa.array([0, 1, -1, 1_714_566_615_250_000_000, None], pa.timestamp("ns")),
        "seconds": pa.array([0, 1, -1, 1_714_566_615, None], pa.timestamp("s", "Asia/Kolkata")),
        "day": pa.array([dt.date(1970, 1, 1), dt.date(2024, 5, 1), dt.date(1969, 12, 31), dt.date(1, 1, 1), None]),
        "a.b": [1, 2, 3, 4, 5],
        "word": pa.array(["x", "y", None, "x", "z"]).dictionary_encode(),
    }
)

CHOSEN = {
    # what was read as something else, or not at all
    "s NOT LIKE 'a%'": [2, 3],
    "NOT s LIKE 'a%'": [2, 3],
    "s NOT ILIKE 'a%'": [3],
    # NaN is the greatest number and equal to itself
    "f > 1": [0, 1, 2],
    "f >= 1e308": [1, 2],
    "f < 2": [0, 3],
    "1 < f": [0, 1, 2],
    "f = f": [0, 1, 2, 3],
    "f <> f": [],
    "f = CAST('NaN' AS DOUBLE)": [1],
    "f <> CAST('NaN' AS DOUBLE)": [0, 2, 3],
    "f <= CAST('NaN' AS DOUBLE)": [0, 1, 2, 3],
    "f BETWEEN 1 AND 'NaN'": [0, 1, 2],
    "f NOT BETWEEN 1 AND 5": [1, 2, 3],
    "NOT f < 1": [0, 1, 2],
    "NOT f > 1": [3],
    "f IN (0, 'nan')": [1, 3],
    "f NOT IN (1.5)": [1, 2, 3],
    "-f IN ('nan', 0)": [1, 3],
    "f IS DISTINCT FROM f": [],
    "f IS NOT DISTINCT FROM CAST('NaN' AS DOUBLE)": [1],
    "CASE f WHEN 'NaN' THEN true WHEN 0 THEN true END": [1, 3],
    "nullif(f, 'NaN') IS NULL": [1, 4],
    "greatest(f, 2) = 'NaN'": [1],
    "least(f, 2) = 2": [1, 2, 4],
    "isnan(f)": [1],
    "f = 0": [3],
    "single > 1": [1],
    # numbers lose no digits
    "i = 9007199254740993": [2],
    "i = 9007199254740993.0": [2],
    "i > 9007199254740992.5": [2],
    "i IN (9007199254740993, 1.5)": [2],
    "d = 9007199254740993": [3],
    "d = i + 1": [],
    "d = 0.3e0": [0],
    "u > 9223372036854775807": [2, 3],
    "u = 18446744073709551615": [3],
    "u > -1": [0, 1, 2, 3],
    "u > i": [2, 3],
    "i < 99999999999999999999": [0, 1, 2, 3],
    "i > -9223372036854775808": [0, 1, 2, 3],
    "small + small = 254": [2],
    "small * 1000 = -128000": [3],
    "single = 0.1": [],
    # arithmetic
    "i % 2 = -1": [3],
    "i % 0 IS NULL": [0, 1, 2, 3, 4],
    "i / 2 = 0.5": [0],
    "i / 0 IS NULL": [0, 1, 2, 3, 4],
    "i DIV 2 = -3": [3],
    "-i = 7": [3],
    "- -i = 1": [0],
    "f % 1 = 0.5": [0],
    "abs(i) = 7": [3],
    "round(d) = 2": [1],
    "round(f, 1) = 1.5": [0],
    "floor(f) = 1 OR ceil(f) = 2": [0],
    "sqrt(i) = 1": [0],
    # null
    "i IS NULL": [4],
    "i IS NOT NULL AND p": [0, 3],
    "p IS TRUE": [0, 3],
    "p IS NOT TRUE": [1, 2, 4],
    "p IS FALSE": [1],
    "p = true": [0, 3],
    "p IS NOT FALSE": [0, 2, 3, 4],
    "i <=> NULL": [4],
    "i IS DISTINCT FROM 1": [1, 2, 3, 4],
    "i NOT IN (1, NULL)": [],
    "i IN (1, NULL)": [0],
    "NULL OR p": [0, 3],
    "NULL = NULL": [],
    # choices
    "CASE WHEN i > 5 THEN 'big' WHEN i IS NULL THEN 'none' ELSE 'small' END = 'small'": [0, 3],
    "CASE small WHEN 1 THEN 'one' END = 'one'": [0],
    "COALESCE(i, 1) = 1": [0, 4],
    "ifnull(i, 1) = nvl(i, 1)": [0, 1, 2, 3, 4],
    "NULLIF(i, 1) IS NULL": [0, 4],
    "IF(p, 1, 2) = 2": [1, 2, 4],
    # text
    "s LIKE 'a_c'": [0, 1],
    "s LIKE 'a\\%c'": [1],
    "s LIKE 'a!%c' ESCAPE '!'": [1],
    "s LIKE '%!_' ESCAPE '!'": [3],
    "s LIKE 'A_c'": [2],
    "s LIKE ''": [],
    "s LIKE '%'": [0, 1, 2, 3],
    "s LIKE '日__'": [3],
    "s ILIKE 'A%C'": [0, 1, 2],
    "s RLIKE '^a.c$'": [0, 1],
    "s REGEXP '[0-9]'": [],
    "s NOT RLIKE 'c'": [3],
    "lower(s) = 'a\\nc'": [2],
    "UPPER(s) = 'ABC'": [0],
    "length(s) = 3": [0, 1, 2, 3],
    "substr(s, 2, 1) = 'b'": [0],
    "substring(s, -1) = 'c'": [0, 1, 2],
    "substring(s FROM 1 FOR 2) = 'ab'": [0],
    "left(s, 1) || right(s, 1) = 'ac'": [0, 1],
    "concat(s, '!') = 'abc!'": [0],
    "trim('  abc ') = s": [0],
    "starts_with(s, 'ab') OR endswith(s, '_')": [0, 3],
    "contains(s, '%')": [1],
    "replace(s, 'b', 'x') = 'axc'": [0],
    's = "abc"': [0],
    "s = 'a''b'": [],
    "s > 'a'": [0, 1, 3],
    "word = 'x'": [0, 3],
    # times
    "ts >= TIMESTAMP '2024-05-01 12:30:15.25'": [3],
    "ts = '2024-05-01T12:30:15.250'": [3],
    "ts = '2024-05-01T14:30:15.25+02:00'": [3],
    "ts = '2024-05-01 14:30:15.25 +02'": [3],
    "ts = '20240501T123015.25Z'": [3],
    "ts = '2024-05-01 12:30:15,25z'": [3],
    "local = ts": [0, 1, 2, 3],
    "ts < DATE '1970-01-01'": [2],
    "ns = TIMESTAMP '1970-01-01 00:00:00.000000001'": [1],
    "ns > TIMESTAMP '3000-01-01'": [],
    "ns < local": [1],
    "seconds = TIMESTAMP '1970-01-01 05:30:01+05:30'": [1],
    "seconds < '1970-01-01 00:00:00.5'": [0, 2],
    "day = '2024-05-01'": [1],
    "day = DATE '2024-5-1'": [1],
    "day < ts": [2, 3],
    "day IN ('1970-01-01', '0001-01-01')": [0, 3],
    "ts BETWEEN '1970-01-01' AND '1970-01-02'": [0, 1],
    "CAST(ts AS DATE) = '1969-12-31'": [2],
    "year(ts) = 2024 AND month(ts) = 5": [3],
    "EXTRACT(HOUR FROM ts) = 23": [2],
    "date_trunc('month', ts) = '2024-05-01'": [3],
    "ts + INTERVAL '1' DAY > '1970-01-02'": [1, 3],
    "day + 1 = '2024-05-02'": [1],
    # names
    "`a.b` = 1": [0],
    "a.b = 1": [0],
    "i = 1 IS TRUE": [0],
    "i == 1": [0],
    "i != 1": [1, 2, 3],
    "i = '1'": [0],
    "CAST('7' AS INT) = -i": [3],
    "i::STRING = '1'": [0],
    "i = 1 -- a comment": [0],
}


@pytest.mark.parametrize("condition", CHOSEN)
def test_a_condition_chooses_its_rows(condition):
    if " % " in condition and not hasattr(pc, "remainder"):
        pytest.skip("this pyarrow has no remainder")
    assert rows_where(condition, TABLE).nonzero()[0].tolist() == CHOSEN[condition]
    rows = TABLE.append_column("row", pa.array(range(5)))
    filtered = ds.dataset(rows).to_table(columns=["row"], filter=to_expression(condition, rows.schema))
    assert filtered.column("row").to_pylist() == CHOSEN[condition]
    for row in CHOSEN[condition]:
        assert rows_where(condition, TABLE.slice(row, 1).to_batches()[0]).tolist() == [True]
    assert rows_where(condition, TABLE.slice(0, 0)).tolist() == []


REFUSED = {
    "i BETWEEN SYMMETRIC 3 AND 1": r"cannot use BETWEEN SYMMETRIC; write x BETWEEN least\(a, b\) AND greatest\(a, b\)",
    "i IN (SELECT 1)": "cannot use 'i IN \\(SELECT 1\\)'",
    "i = ANY(p)": "cannot use",
    "s LIKE ANY ('a', 'b')": "cannot use",
    "s COLLATE utf8 = 'a'": "cannot use",
    "count(i) > 1": "cannot use 'COUNT\\(i\\)'",
    "sum(i) OVER () > 1": "cannot use",
    "rand() > 0.5": "cannot use",
    "nosuch(i) = 1": "cannot use 'NOSUCH\\(i\\)'",
    "i = ?": "cannot use",
    "i; p": "cannot read",
    "SELECT 1": "cannot read",
    "DROP TABLE x": "cannot read",
    "SHOW TABLES": "cannot read",
    "i = ": "cannot read the condition 'i = ' as SQL: the error is at",
    "i = 'a": "a quote or a comment is not closed",
    "": "the text is empty; write a condition",
    "-- a comment": "the text is empty; write a condition",
    "host = 'a'; host = 'b'": "the text contains several expressions; write only one",
    ";": "as SQL: it ends before the expression is complete",
    "i XOR p": "as SQL",
    "i = 1 = p": "put parentheses around",
    "i = 1 BETWEEN 0 AND 1": "put parentheses around",
    "i < u = p": "put parentheses around",
    "s = 'a\\d'": "has a backslash before 'd'",
    "s LIKE 'a\\\\b'": "must be followed by %, _ or itself",
    "s LIKE 'a' ESCAPE 'ab'": "ESCAPE needs exactly one character",
    "s LIKE s": "must be a constant",
    "s RLIKE '(?=a)'": "is not valid in RE2",
    "s > 5": "cannot compare text with int64|cannot compare int64 with text",
    "i > 'x'": "the text 'x' cannot be compared with a column of int64",
    "i = '1.5'": "cannot be compared with a column of int64",
    "p = 1": "cannot compare",
    "ts > 5": "cannot compare",
    "ts > 'yesterday'": "the time 'yesterday' cannot be read; write a local time such as '2024-05-01'",
    "ts > '2024-13-01'": "cannot be read: month must be in 1..12",
    "ts > '2024-05-01 25:00'": "cannot be read: hour must be in 0..23",
    "ts > '2024-05-01T12+99'": "cannot be read",
    "DATE 'x' = day": "the date 'x' cannot be read",
    "i AND p": "need conditions; got a value of type int64",
    "NOT i": "need conditions",
    "i + 1": "has values of type int64; a condition must be true or false",
    "s + 1 = 2": "\\+ needs numbers; got text",
    "p + 1 = 2": "\\+ needs numbers; got bool",
    "ts + 1 > ts": "add an interval to a time",
    "CAST(f AS INT) = 1": "use floor or round",
    "CAST(f AS STRING) = 'x'": "engines write such values differently",
    "CAST(i AS MAP<INT, INT>) = 1": "cannot",
    "CAST(s AS INT) = 1": "cannot compute",
    "substr(s, 0, 1) = 'a'": "count from 1",
    "substr(s, small) = 'a'": "must be a constant",
    "extract(century FROM ts) = 20": "the allowed parts are YEAR",
    "i * i > 1": "an intermediate result is too large for its type",
    "nope = 1": "names the column 'nope', which does not exist; there are i, small",
    "I = 1": "names the column 'I', which does not exist",
    "lower(i) = 'a'": "lower needs text; got int64",
    "abs(s) = 1": "abs needs numbers; got text",
    "i IS 5": "IS must be followed by NULL",
    "(" * 3000 + "p" + ")" * 3000: "nested too deeply",
    "NOT " * 3000 + "p": "nested too deeply",
}


@pytest.mark.parametrize("condition", REFUSED)
def test_what_is_not_read_is_refused_by_a_sentence(condition, caplog, capfd):
    with caplog.at_level(logging.DEBUG, "sqlglot"), pytest.raises(ValueError, match=REFUSED[condition]) as error:
        rows_where(condition, TABLE)
    message = str(error.value)
    assert not [word for word in ("\n", "sqlglot", "<class") if word in message.replace(condition, "")]
    assert len(message) < 600
    assert not caplog.records
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("condition", [None, 5, b"p", ["p"]])
def test_a_condition_is_text(condition):
    with pytest.raises(ValueError, match="a condition must be text"):
        rows_where(condition, TABLE)


@pytest.mark.parametrize("terms", [500, 2000])
@pytest.mark.parametrize(
    ("term", "joint", "rows"),
    [
        ("i = {0}", " OR ", [0]),
        ("i <> {0}", " AND ", [1, 2, 3]),
        ("NOT i = {0}", " AND ", [1, 2, 3]),
        ("s LIKE '%{0}'", " OR ", []),
    ],
)
def test_long_chains(terms, term, joint, rows):
    condition = joint.join(term.format(n) for n in range(terms))
    assert rows_where(condition, TABLE).nonzero()[0].tolist() == rows


@pytest.mark.slow
@pytest.mark.parametrize("terms", [500, 2000])
@pytest.mark.long
def test_long_sums_lists_and_choices(terms):
    rows = pa.table({"x": [1, 2], "f": [0.1, 1e16], "s": ["a", "b"]})
    assert evaluate(" + ".join(["x"] * terms), rows).to_pylist() == [terms, 2 * terms]
    total = [0.0, 0.0]
    for _ in range(terms):
        total = [total[0] + 0.1, total[1] + 1e16]
    assert evaluate("0e0 + " + " + ".join(["f"] * terms), rows).to_pylist() == total
    assert rows_where(f"x IN ({', '.join(str(n) for n in range(2, terms))})", rows).tolist() == [False, True]
    assert evaluate(" || ".join(["s"] * terms), rows).to_pylist() == ["a" * terms, "b" * terms]
    assert evaluate(f"coalesce({', '.join(['NULL', 'x'] * terms)})", rows).to_pylist() == [1, 2]
    assert evaluate(f"greatest({', '.join(['x'] * terms)})", rows).to_pylist() == [1, 2]
    cases = " ".join(f"WHEN x = {n} THEN {n * n}" for n in range(2, terms))
    assert evaluate(f"CASE {cases} END", rows).to_pylist() == [None, 4]


def test_the_page_lists_the_functions_of_the_table():
    page = (Path(__file__).parents[2] / "docs" / "conditions.md").read_text()
    section = page.split("## Supported syntax")[1].split("`CASE` and `IF` compute")[0]
    listed = re.findall(r"`([a-z_]+)(?:\(… from …\))?`", section)
    assert sorted(listed) == sorted({name for rule in FUNCTIONS.values() for name in rule.names})


UNREAD = {  # each was read as something else, or failed by an error that is none of ours
    "mod(i, 2, 3)": "mod takes at most 2 arguments; got 3",
    "date(s, i)": "date takes at most 1 argument; got 2",
    "ltrim('a', s, 'b')": "ltrim takes at most 2 arguments; got 3",
    "from_utc_timestamp(ts, 'Asia/Tokyo')": "cannot use .FROM_UTC_TIMESTAMP",
    "ceil()": "an argument is missing",
    "year()": "an argument is missing",
    "replace(s, 'a')": "an argument is missing",
    "regexp_replace(s, 'a')": "an argument is missing",
    "substr(s)": "an argument is missing",
    "substr(s, CAST(NULL AS INT))": "the start of a substring must be a constant, written as a whole number",
    "1e": "the number '1e' cannot be read",
}


@pytest.mark.parametrize("text", UNREAD)
def test_wrong_numbers_of_arguments_are_refused(text):
    with pytest.raises(ValueError, match=UNREAD[text]) as error:
        evaluate(text, TABLE)
    assert len(str(error.value)) <= 300


def test_a_text_that_is_written_out_is_cast_as_one_in_a_column():
    rows = pa.table({"s": ["1e5"]})
    for kind in ("DECIMAL(9, 2)", "DOUBLE", "FLOAT"):
        assert evaluate(f"TRY_CAST('1e5' AS {kind})", rows) == evaluate(f"TRY_CAST(s AS {kind})", rows)
    assert evaluate("CAST('1e5' AS DECIMAL(9, 2))", rows).to_pylist() == [Decimal(100000)]
    if hasattr(pc, "remainder"):  # pyarrow 26
        assert evaluate("u % u", pa.table({"u": pa.array([2**64 - 1], pa.uint64())})).to_pylist() == [0]


def test_values_and_their_types():
    rows = pa.table({"price": [1.5, None], "quantity": pa.array([2, 3], pa.int32()), "route": ["A-B", "c"]})
    for text, kind, expected in [
        ("price * quantity", pa.float64(), [3.0, None]),
        ("lower(route)", pa.string(), ["a-b", "c"]),
        ("quantity", pa.int32(), [2, 3]),
        ("quantity + 1", pa.int64(), [3, 4]),
        ("quantity * 1.50", pa.decimal128(14, 2), [Decimal("3.00"), Decimal("4.50")]),
        ("'all'", pa.string(), ["all", "all"]),
    ]:
        result = evaluate(text, rows)
        assert (result.type, result.to_pylist()) == (kind, expected), text
        assert value_type(text, rows.schema) == kind
    assert columns_of("price * quantity + length(route) * price") == ("price", "quantity", "route")


def test_checking_needs_no_rows():
    schema = pa.schema([("status", pa.int64())])
    check_condition("status >= 500", schema)
    check_condition("nope >= 500")
    for text, message in [("nope = 1", "does not exist"), ("status = 'x'", "'x'"), ("status", "must be true or false")]:
        with pytest.raises(ValueError, match=message):
            check_condition(text, schema)


def test_files_are_left_out_by_an_expression(tmp_path):
    for n in range(4):
        ds.write_dataset(pa.table({"n": pa.array([n], pa.int32()), "f": [n / 2]}), tmp_path / str(n), format="parquet")
    files = [f for n in range(4) for f in (tmp_path / str(n)).iterdir()]
    data = ds.dataset(files, format="parquet")
    for fragment in data.get_fragments():
        fragment.ensure_complete_metadata()
    for condition, expected in [("n = 2", 1), ("n >= 2.0 AND n < 3", 1), ("n IN (1, 2)", 2), ("f < 0.75e0", 2)]:
        row_groups = 0
        for fragment in data.get_fragments():
            fragment.ensure_complete_metadata()
            row_groups += len(fragment.split_by_row_group(to_expression(condition, data.schema)))
        assert row_groups == expected, condition
