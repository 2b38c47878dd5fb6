"""Keys and values of every type, from files to a store and back, compared with the groups of DuckDB."""

from __future__ import annotations

import datetime as dt
import decimal
import random
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tiltframe import FrameStore
from tiltframe.cli.app import main

N = 3000
DAY = dt.date(1970, 1, 1)


def random_integers(bits, signed=True):
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return lambda rng: rng.choice([low, high, 0, 1, rng.randrange(low, high)])


def decimals(digits, fraction):
    return lambda rng: decimal.Decimal(rng.randrange(-(10**digits) + 1, 10**digits)).scaleb(
        -fraction, decimal.Context(50)
    )


def text(rng):
    return "".join(rng.choices(["a", "B", "é", "007", "7", " ", ",", "0", "€", "NA", "null"], k=rng.randrange(1, 4)))


TYPES = {
    **{f"int{b}": (getattr(pa, f"int{b}")(), random_integers(b)) for b in (8, 16, 32, 64)},
    **{f"uint{b}": (getattr(pa, f"uint{b}")(), random_integers(b, False)) for b in (8, 16, 32, 64)},
    "bool": (pa.bool_(), lambda rng: rng.random() < 0.5),
    "float32": (pa.float32(), lambda rng: rng.choice([0.0, 1.5, -2.25, 3e38, rng.randrange(100) / 4])),
    "float64": (pa.float64(), lambda rng: rng.choice([0.1, 1e300, -5e-324, rng.random()])),
    "text": (pa.string(), text),
    "large text": (pa.large_string(), text),
    "dictionary": (pa.dictionary(pa.int32(), pa.string()), text),
    "bytes": (pa.binary(), lambda rng: rng.randbytes(rng.randrange(1, 4))),
    "date32": (pa.date32(), lambda rng: DAY + dt.timedelta(days=rng.randrange(-100_000, 100_000))),
    "date64": (pa.date64(), lambda rng: DAY + dt.timedelta(days=rng.randrange(-100_000, 100_000))),
    "time32": (pa.time32("ms"), lambda rng: rng.randrange(86_400_000)),
    "time64": (pa.time64("us"), lambda rng: rng.randrange(86_400_000_000)),
    **{
        f"timestamp {u}": (pa.timestamp(u), lambda rng: rng.randrange(-(10**9), 10**9)) for u in ("s", "ms", "us", "ns")
    },
    "timestamptz": (pa.timestamp("us", "Europe/Berlin"), lambda rng: rng.randrange(-(10**15), 10**15)),
    "decimal 5,2": (pa.decimal128(5, 2), decimals(5, 2)),
    "decimal 38,0": (pa.decimal128(38, 0), decimals(38, 0)),
    "decimal 38,10": (pa.decimal128(38, 10), decimals(38, 10)),
}


def table_of(kind, make, seed):
    """A few values of a type, null too, as keys, and many as values; times around 1970 in nanoseconds."""
    rng = random.Random(seed)
    few = [None, *(make(rng) for _ in range(12))]
    keys = pa.array([rng.choice(few) for _ in range(N)], kind)
    values = pa.array([None if rng.random() < 0.1 else make(rng) for _ in range(N)], kind)
    times = pa.array([rng.randrange(-2 * 86_400 * 10**9, 2 * 86_400 * 10**9) for _ in range(N)], pa.timestamp("ns"))
    return pa.table({"ts": times, "k": keys, "x": values})


def by_duckdb(source):
    """Group as DuckDB does: an hour's start, the key, how many rows, the minimum and the maximum."""
    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'")
        hour = "CAST(floor(epoch_ns(ts) / 3600000000000.0) AS BIGINT)"
        rows = db.sql(f"SELECT {hour}, k, count(*), count(x), min(x), max(x) FROM {source} GROUP BY ALL")
        return comparable(rows.to_arrow_table())


def by_us(capfd, file, *type_options):
    arguments = ["--time", "ts", "--key", "k", "--levels", "1m,1h", "--store", "st"]
    for measure in ("n=count()", "c=count(x)", "low=min(x)", "high=max(x)"):
        arguments += ["--measure", measure]
    try:
        main(["rollup", str(file), *arguments, *type_options])
    except SystemExit as end:
        raise AssertionError(capfd.readouterr().err) from end
    result = FrameStore("st").query("1h")
    hours = pa.array([at // 3_600_000_000 for at in result["window_start"].cast(pa.int64()).to_pylist()])
    return comparable(pa.table([hours, *(result[name] for name in ("k", "n", "c", "low", "high"))], list("hkncab")))


def comparable(table):
    """Rows that can be compared: times as numbers of nanoseconds."""
    columns = []
    for column in table.columns:
        kind = column.type
        if pa.types.is_dictionary(kind):
            column = column.cast(kind.value_type)
        if pa.types.is_timestamp(kind) or pa.types.is_time(kind):
            unit = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[kind.unit]
            integers = column.cast(pa.int32()) if pa.types.is_time32(kind) else column
            column = pa.array([None if v is None else v * unit for v in integers.cast(pa.int64()).to_pylist()])
        columns.append(column.to_pylist())
    return sorted(zip(*columns, strict=True), key=repr)


@pytest.mark.slow
@pytest.mark.parametrize("name", TYPES)
def test_parquet_of_every_type(name, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    pq.write_table(table_of(*TYPES[name], seed=name), "a.parquet")
    assert by_us(capfd, Path("a.parquet")) == by_duckdb("'a.parquet'")


TYPE_NAMES = {
    "int64": "int64",
    "uint64": "uint64",
    "bool": "bool",
    "float64": "float64",
    "text": "text",
    "date32": "date",
    "timestamp us": "timestamp",
    "decimal 5,2": "decimal(5,2)",
    "decimal 38,0": "decimal(38)",
    "decimal 38,10": "decimal(38,10)",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", TYPE_NAMES)
def test_csv_of_every_type_that_can_be_told(name, tmp_path, monkeypatch, capfd):
    """DuckDB writes the file, and groups the rows that it wrote."""
    monkeypatch.chdir(tmp_path)
    table = table_of(*TYPES[name], seed=name)
    with duckdb.connect() as db:
        db.register("given", table)
        db.execute("COPY given TO 'a.csv' (HEADER)")
    pq.write_table(table, "a.parquet")
    type_options = [part for column in "kx" for part in ("--type", f"{column}={TYPE_NAMES[name]}")]
    assert by_us(capfd, Path("a.csv"), *type_options) == by_duckdb("'a.parquet'")


@pytest.mark.parametrize("name", ["int64", "uint64", "bool", "float64", "text"])
def test_json_of_every_type_that_can_be_told(name, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    table = table_of(*TYPES[name], seed=name)
    with duckdb.connect() as db:
        db.register("given", table)
        db.execute("COPY given TO 'a.json'")
    pq.write_table(table, "a.parquet")
    type_options = [part for column in "kx" for part in ("--type", f"{column}={TYPE_NAMES[name]}")]
    assert by_us(capfd, Path("a.json"), *type_options) == by_duckdb("'a.parquet'")
