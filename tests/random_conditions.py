"""Random conditions over a table with every type, in SQL that has the same meaning in DuckDB and Spark."""

from __future__ import annotations

import datetime as dt
import random
import re
from decimal import Decimal

import pyarrow as pa

NAN, INF = float("nan"), float("inf")
BIG = 2**53
ROWS = 97

INTEGER_TYPES = {
    "i8": (pa.int8(), [-128, 127, 0, 1, -1, 7]),
    "i16": (pa.int16(), [-32768, 32767, 0, 1, 200, -5]),
    "i32": (pa.int32(), [-(2**31), 2**31 - 1, 0, 1, 2, 500, -7]),
    "i64": (pa.int64(), [-(2**63), 2**63 - 1, BIG, BIG + 1, -BIG - 1, 0, 1, 3, -2]),
    "u8": (pa.uint8(), [0, 255, 1, 2, 17]),
    "u16": (pa.uint16(), [0, 65535, 1, 2, 500]),
    "u32": (pa.uint32(), [0, 2**32 - 1, 1, 2, 2**31]),
    "u64": (pa.uint64(), [0, 2**64 - 1, 2**63, BIG + 1, 1, 2]),
}
SMALL = ("i8", "i16", "u8", "u16")  # columns on which arithmetic does not overflow
DECIMALS = {
    "d1": (pa.decimal128(9, 2), [Decimal(x) for x in ("0.00", "1.50", "-1.50", "0.30", "1234567.89", "2.00")]),
    "d2": (pa.decimal128(20, 0), [Decimal(x) for x in (0, 1, BIG + 1, 2**63, -(2**63), 99)]),
    "d3": (pa.decimal128(12, 6), [Decimal(x) for x in ("0.000001", "1.500000", "-3.141593", "100000.000000")]),
}
DOUBLES = [0.0, -0.0, NAN, INF, -INF, 1.5, -1.5, 0.1, 0.3, float(BIG), 1e300, 5e-324, 2.0, 2.5, 3.0, -7.0]
SINGLES = [0.0, -0.0, NAN, INF, -INF, 1.5, -1.5, 0.5, 2.0, 2.5]
TEXTS = [
    "",
    "a",
    "A",
    "ab",
    "abc",
    "a%c",
    "a_c",
    "a\\c",
    "%",
    "_",
    "é",
    "É",
    "日本",
    "ab\nc",
    " a ",
    "it's",
    "a.c",
    "z" * 20,
]
TEXTS += ["10", "7", "b", "ß", "😀x", "a!c"]
TEXTS += ["1.5", "-2.25", "+3", " 4 ", ".5", "-", "1e2", "300", "-7", "2024-02-29", "2023-02-29", "2024-5-1"]
DAY = 86_400_000_000
MICROS = [0, 1, -1, DAY, DAY - 1, -DAY, 1_714_521_600_000_000, 1_714_521_600_000_001, 951_782_400_000_000]
TIMES = {
    "ts": pa.timestamp("us"),
    "tz": pa.timestamp("us", "UTC"),
    "ms": pa.timestamp("ms"),
    "ns": pa.timestamp("ns"),
    "zone": pa.timestamp("us", "Europe/Berlin"),
}
COMPARISONS = ("=", "<>", "<", "<=", ">", ">=", "!=", "==")


def table(seed: int = 1) -> pa.Table:
    """Return a table with all special values of each type, and nulls, in random rows."""
    rng = random.Random(seed)

    def column(values, kind):
        column_values = [*values, None] + [rng.choice([*values, None]) for _ in range(ROWS - len(values) - 1)]
        rng.shuffle(column_values)
        return pa.array(column_values, kind)

    columns = {name: column(values, kind) for name, (kind, values) in (INTEGER_TYPES | DECIMALS).items()}
    columns |= {name: column(DOUBLES, pa.float64()) for name in ("f", "g")}
    columns |= {name: column(SINGLES, pa.float32()) for name in ("h", "k")}
    columns |= {name: column(TEXTS, pa.string()) for name in ("s", "t")}
    columns |= {name: column([True, False], pa.bool_()) for name in ("p", "q")}
    for name, kind in TIMES.items():
        steps = {"ms": 1000, "us": 1, "ns": 1}[kind.unit]
        instants = [m // steps * (1000 if kind.unit == "ns" else 1) for m in MICROS] + (
            [1, -1] if kind.unit == "ns" else []
        )
        columns[name] = column(instants, pa.int64()).cast(pa.timestamp(kind.unit)).cast(kind)
    columns["day"] = column([0, 1, -1, 19844, 11016], pa.int32()).cast(pa.date32())
    return pa.table(columns)


class Conditions:
    """A generator of random conditions. With ``spark``, types and syntax that Spark does not have are left out."""

    def __init__(self, seed: int, spark: bool = False) -> None:
        self.rng, self.spark = random.Random(seed), spark

    def condition(self, depth: int = 3) -> str:
        """Return a condition with at most ``depth`` levels of AND, OR, NOT and CASE."""
        pick = self.rng.random()
        if depth and pick < 0.22:
            word = self.rng.choice(["AND", "OR"])
            parts = [f"({self.condition(depth - 1)})" for _ in range(self.rng.randint(2, 3))]
            return f" {word} ".join(parts)
        if depth and pick < 0.3:
            return f"NOT ({self.condition(depth - 1)})"
        if depth and pick < 0.34:
            a, b, c = (self.condition(depth - 1) for _ in range(3))
            return self.rng.choice(
                [f"CASE WHEN {a} THEN {b} ELSE {c} END", f"CASE WHEN {a} THEN {b} END", f"IF({a}, {b}, {c})"]
            )
        if depth and pick < 0.38:
            truth = self.rng.choice(["TRUE", "FALSE", "NOT TRUE", "NOT FALSE", "NULL", "NOT NULL"])
            return f"({self.condition(depth - 1)}) IS {truth}"
        if pick < 0.42:
            return self.rng.choice(
                ["p", "q", "NOT p", "p = q", "p <> TRUE", "q IS NOT TRUE", "coalesce(p, q)", "p = false"]
            )
        kinds = [self.number, self.number, self.double, self.single, self.text, self.text, self.time, self.date]
        return self.leaf(self.rng.choice(kinds if self.spark else [*kinds, self.fine]))

    def leaf(self, kind) -> str:
        """Return a condition on values of a kind. ``kind`` is a method that returns a value, such as `number`."""
        value, pick, negated = kind(), self.rng.random(), self.rng.choice(["", "NOT "])
        if self.rng.random() < 0.05:
            value = self.null_value(kind)
        if kind == self.text and pick < 0.35:
            return self.pattern(negated)
        if pick < 0.5:
            return f"{value} {self.rng.choice(COMPARISONS)} {kind()}"
        if pick < 0.6:
            return f"{value} IS {negated}DISTINCT FROM {kind()}"
        if pick < 0.7:
            items = [kind() for _ in range(self.rng.randint(1, 4))] + (["NULL"] if self.rng.random() < 0.2 else [])
            return f"{value} {negated}IN ({', '.join(items)})"
        if pick < 0.85:
            return f"{value} {negated}BETWEEN {kind()} AND {kind()}"
        if pick < 0.93:
            return f"{value} IS {negated}NULL"
        return f"CASE {value} WHEN {kind()} THEN p WHEN {kind()} THEN q ELSE {self.rng.choice(['true', 'p'])} END"

    def null_value(self, kind) -> str:
        """Return a value of a kind that is null in all or most rows."""
        if kind == self.text:
            texts = ["NULL", "nullif(s, s)", "substr(nullif(t, t), 1, 2)", "CAST(NULL AS STRING)", "lower(NULL)"]
            texts += ["s || NULL", "trim(NULL)", "left(NULL, 2)", "reverse(nullif('a', 'a'))", "replace(s, NULL, 'a')"]
            return self.rng.choice([*texts, "regexp_replace(nullif(t, t), 'a', 'b')"])
        if kind in (self.time, self.date, self.fine):
            return self.rng.choice(
                [
                    "NULL",
                    "nullif(ts, ts)",
                    "date_trunc('day', nullif(ts, ts))",
                    "CAST(NULL AS DATE)",
                    "TRY_CAST('x' AS DATE)",
                ]
            )
        texts = ["NULL", "nullif(i32, i32)", "length(nullif(s, s))", "abs(nullif(i16, i16))", "-CAST(NULL AS INT)"]
        texts += [
            "f + NULL",
            "round(CAST(NULL AS DECIMAL(9, 2)), 1)",
            "year(CAST(NULL AS DATE))",
            "CAST(NULL AS INT) % 7",
        ]
        return self.rng.choice([*texts, "TRY_CAST(nullif(s, s) AS DOUBLE)", "TRY_CAST('x' AS INT)"])

    def choice(self, kind) -> str:
        """Return an expression that chooses one of two values of a kind."""
        a, b = kind(1), kind(1)
        pick = ["coalesce({a}, {b})", "nullif({a}, {b})", "greatest({a}, {b})", "least({a}, {b})", "if({c}, {a}, {b})"]
        pick += ["CASE WHEN {c} THEN {a} ELSE {b} END", "CASE WHEN {c} THEN {a} WHEN {c} THEN {b} END"]
        return self.rng.choice(pick).format(a=a, b=b, c=self.condition(0))

    def number(self, depth: int = 2) -> str:
        """Return a whole number or a decimal."""
        pick = self.rng.random()
        integers = [name for name in INTEGER_TYPES if not (self.spark and name == "u64")]
        if pick < 0.4:
            return self.rng.choice([*integers, *DECIMALS])
        if pick < 0.75 or not depth:
            texts = ["0", "1", "-1", "2", "7", "500", "1.5", "-1.5", "0.30", "255", "0.000001", "1234567.89", "-7.25"]
            far = [str(BIG + 1), str(2**63 - 1), "-9223372036854775807"]
            # Spark compares null whole numbers with a literal beyond bigint, as docs/conditions.md describes.
            far += [f"CAST({n} AS DECIMAL(20, 0))" if self.spark else str(n) for n in (2**63, 2**64 - 1)]
            return self.rng.choice(texts * 2 + far)
        if pick < 0.95:
            a, b = self.rng.choice(SMALL), self.rng.choice([*SMALL, "3", "-2", "7"])
            forms = ["{a} + {b}", "{a} - {b}", "{a} * 3", "-{a}", "abs({a})", "{a} + {b} * 2", "({a} - {b}) * 2"]
            forms += [
                "d1 + {b}",
                "d1 * 2",
                "d1 - d3",
                "round(d1, 1)",
                "floor(d1)",
                "ceil(d3)",
                "abs(d1)",
                "-d1",
                "d1 * d3",
                "TRY_CAST(s AS DECIMAL(9, 3))",
                "CASE WHEN s RLIKE '[.e]' THEN {b} ELSE TRY_CAST(s AS BIGINT) END",
                "CASE WHEN s RLIKE '[.e]' THEN {b} ELSE TRY_CAST(trim(s) AS TINYINT) END",
                "CASE WHEN s RLIKE '^[0-9]+$' THEN CAST(s AS BIGINT) ELSE {b} END",
                "CASE WHEN s RLIKE '^[0-9]+$' THEN CAST(s AS BIGINT) WHEN i32 > 0 THEN CAST({b} AS BIGINT) END",
                "TRY_CAST(i32 AS TINYINT)",
                "TRY_CAST(i64 AS INT)",
            ]
            forms += ["CAST({a} AS BIGINT)", "length(s)", "CAST({a} AS DECIMAL(10, 2))", "round({a}, -1)", "{a} % 7"]
            forms += [
                "year(ts)",
                "month(day)",
                "hour(tz)",
                "extract(minute from ts)",
                "d1 + 0.25",
                "{a} % 5 + 1",
                "round(d1)",
            ]
            forms += [
                "{a} % nullif({b}, 0)",
                "mod({a}, nullif({b}, 0))",
                "{b} * {a}",
                "{a} + {b} - {a}",
                "greatest({a}, {b})",
                "quarter(ts)",
                "second(zone)",
                "year(day)",
                "least({a}, NULL, {b})",
                "sign({a})",
                "length(s || CAST({b} AS STRING))",
                "TRY_CAST('1e3' AS DECIMAL(9, 2))",
            ]
            forms += ["u64 % 7", "u64 % u8", "abs(u64)", "-u32"] if not self.spark else []
            forms += [f"extract({part} from {ts})" for part in ("dow", "isodow") for ts in ("ms", "tz", "day")] * (
                not self.spark
            )
            form = self.rng.choice(forms)
            if self.rng.random() < 0.15:
                missing = self.rng.choice(["year(nullif(ts, ts))", "CAST(NULL AS INT)", "nullif(i32, i32)"])
                slot = self.rng.choice(["{a}", "{b}"])
                form = form.replace(slot, missing)
            a = f"CAST({a} AS INT)" if re.search(r"[-+*]|abs|round", form) else a
            return "(" + form.format(a=a, b=b if b.lstrip("-").isdigit() else f"CAST({b} AS INT)") + ")"
        return self.choice(self.number)

    def double(self, depth: int = 2) -> str:
        """Return a double, or a number of another type that can be compared with doubles."""
        pick = self.rng.random()
        if pick < 0.45:
            return self.rng.choice(["f", "g"])
        if pick < 0.75 or not depth:
            texts = ["0", "1", "1.5", "-1.5", "0.1", "0.3", "1e300", "0e0", "-0.0e0", "2", "1e0", "9007199254740992"]
            return self.rng.choice(
                [*texts, "i32", "i64", "u32", "d1", "CAST('nan' AS DOUBLE)", "CAST('-inf' AS DOUBLE)"]
            )
        if pick < 0.95:
            forms = [
                "f + g",
                "f - 1",
                "f * 2",
                "f / 2",
                "i32 / 4",
                "f / nullif(g, 0)",
                "i8 / 3",
                "abs(f)",
                "-f",
                "f + i8",
            ]
            forms += [
                "f % 2",
                "sqrt(abs(f))",
                "CAST(i32 AS DOUBLE)",
                "f * 0.5",
                "i64 / 1000",
                "u8 / 16",
                "CAST(d1 AS DOUBLE)",
            ]
            forms += ["TRY_CAST(s AS DOUBLE)", "TRY_CAST(nullif(t, '-') AS DOUBLE)", "TRY_CAST(s AS DOUBLE) * 2"]
            forms += ["CASE WHEN TRY_CAST(s AS DOUBLE) IS NULL THEN f ELSE CAST(s AS DOUBLE) END"]
            forms += ["CASE WHEN s RLIKE '[a-z]' THEN g WHEN s RLIKE '^[0-9.]+$' THEN CAST(s AS DOUBLE) ELSE 0.5 END"]
            forms += [] if self.spark else ["floor(f)", "ceil(g)", "round(f)"]
            return "(" + self.rng.choice(forms) + ")"
        return self.choice(self.double)

    def single(self, depth: int = 1) -> str:
        """Return a float32, or a number that float32 represents exactly."""
        pick = self.rng.random()
        if pick < 0.6:
            return self.rng.choice(["h", "k"])
        return self.rng.choice(["0", "1.5", "-1.5", "2", "0.5", "abs(h)", "(-k)", "(h + k)", "coalesce(h, k)"])

    def text(self, depth: int = 2) -> str:
        """Return a text."""
        pick = self.rng.random()
        if pick < 0.4:
            return self.rng.choice(["s", "t"])
        if pick < 0.7 or not depth:
            return self.quoted(self.rng.choice(TEXTS))
        if pick < 0.95:
            n, m = self.rng.randint(1, 4), self.rng.randint(0, 3)
            forms = [
                "lower(s)",
                "upper(t)",
                f"substr(s, {n}, {m})",
                f"substring(t, {n})",
                f"left(s, {m})",
                f"right(s, {m})",
            ]
            forms += [
                "trim(s)",
                "ltrim(s)",
                "rtrim(t)",
                "s || t",
                "s || 'x'",
                "reverse(t)",
                "replace(s, 'a', 'xy')",
                "concat('x', 'y')",
            ]
            forms += ["regexp_replace(s, '[0-9]+', '#')", "regexp_replace(t, '([a-c])(.)', '$2<$1>')", "nullif(s, t)"]
            forms += [f"substr(s, -{n}, {m})", "CAST(i32 AS STRING)", "lower(upper(t))", f"substr(t, -{n})"]
            forms = [f for f in forms if not (self.spark and "upper" in f)]
            return self.rng.choice(forms)
        return self.choice(self.text)

    def quoted(self, text: str) -> str:
        """Return a text in quotes."""
        return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"

    def pattern(self, negated: str) -> str:
        """Return a condition that searches in a text."""
        value = self.rng.choice(["s", "t", "lower(s)"])
        pieces = ["%", "_", "a", "b", "c", "é", "日", "A", ".", "(", "%%", "'", "\n", "x"]
        pattern = "".join(self.rng.choice(pieces) for _ in range(self.rng.randint(0, 4)))
        forms = [f"{value} {negated}LIKE {self.quoted(pattern)}"] * 3
        forms += [f"{value} {negated}ILIKE {self.quoted(pattern)}"]
        escaped_pattern = "".join(
            self.rng.choice(["!%", "!_", "!!", "%", "_", "a", "c"]) for _ in range(self.rng.randint(1, 4))
        )
        forms += [f"{value} {negated}LIKE '{escaped_pattern}' ESCAPE '!'"]
        regex = self.rng.choice(
            ["^a", "c$", "a.c", "[a-c]+", "^.{2}$", "a|b", "(ab)*c", "^$", "[0-9]", "^[^a]", "(?i)a"]
        )
        forms += [f"{'NOT ' if negated else ''}s RLIKE '{regex}'"]
        literal = self.rng.choice([*map(self.quoted, ["a", "ab", "c", "", "日", "'"]), "NULL"])
        forms += [f"{negated}{function}({value}, {literal})" for function in ("contains", "startswith", "endswith")]
        return self.rng.choice(forms)

    def time(self, depth: int = 2) -> str:
        """Return a time."""
        pick = self.rng.random()
        if pick < 0.5:
            return self.rng.choice(["ts", "tz", "zone"])
        if pick < 0.85 or not depth:
            moment = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=self.rng.choice(MICROS))
            return f"TIMESTAMP '{moment.isoformat(sep=' ')}'"
        forms = [
            "date_trunc('day', ts)",
            "ts + INTERVAL '1' DAY",
            "tz - INTERVAL '90' MINUTE",
            "coalesce(ts, tz)",
            "greatest(ts, tz)",
        ]
        return self.rng.choice([*forms, "date_trunc('month', ts)", "date_trunc('hour', tz)", "CAST(day AS TIMESTAMP)"])

    def fine(self, depth: int = 2) -> str:
        """Return a time without a zone, also in milliseconds or nanoseconds."""
        return self.rng.choice(["ms", "ns", "ts", self.time(0).replace("tz", "ns").replace("zone", "ms")])

    def date(self, depth: int = 2) -> str:
        """Return a date, or a time that can be compared with dates."""
        moment = dt.date(1970, 1, 1) + dt.timedelta(days=self.rng.choice([0, 1, -1, 19844, 11016]))
        of_text = ["TRY_CAST(s AS DATE)", "CASE WHEN s LIKE '2024-%' THEN CAST(s AS DATE) ELSE day END"]
        days = ["day", f"DATE '{moment}'"]
        return self.rng.choice([*days, *days, *of_text, "CAST(ts AS DATE)", "ts", "day + 1", "day - 30", self.time(0)])


def for_duckdb(text: str) -> str:
    """Return a condition in the syntax of DuckDB, whose functions have other names, and in which a backslash in a text
    is an ordinary character.
    """
    text = re.sub(r"\bs RLIKE ('(?:[^'])*')", r"regexp_matches(s, \1)", text)
    text = re.sub(r"(regexp_replace\((?:[^()]|\([^()]*\))*?'[^']*', '[^']*')\)", r"\1, 'g')", text)
    text = re.sub(r"\$([0-9])", r"\\\\\1", text)
    text = text.replace("startswith(", "starts_with(").replace("endswith(", "ends_with(")
    return text.replace("\\\\", "\\")
