"""Conditions on keys skip row groups of files and are part of PostgreSQL's WHERE. The results do not change."""

from __future__ import annotations

import os
import random
import re
from dataclasses import replace
from decimal import Decimal
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import aggr
from aggr.arrow.bit_equality import digest
from aggr.sql import bounds, rows_where
from benchmarks.key_filter_bytes import bytes_ratio_of_one_key, bytes_read, write_month_store
from spark_udaf.store.options import from_options, to_options
from tests.random_conditions import Conditions, table
from tiltframe import FrameStore, Query, StoreError, TiltFrame, rollup
from tiltframe.store.backends.delta.constant_fields import ConstantFields
from tiltframe.store.backends.delta.row_groups import split_into_row_groups
from tiltframe.store.backends.key_bounds import bounds_of_keys
from tiltframe.store.backends.stored_types import stored

pytestmark = pytest.mark.store
TiltframeReader = pytest.importorskip("spark_udaf.store.data_source").TiltframeReader  # PySpark 3.5 has no data sources

RANDOM = int(os.environ.get("TILTFRAME_CONDITIONS", "1500"))
HOUR = 3_600_000_000
BEGIN = 1_714_521_600_000_000  # 2024-05-01


def plain(value: pa.Scalar):
    return value.value if pa.types.is_temporal(value.type) else value.as_py()


@pytest.mark.parametrize("seed", range(4))
def test_rows_for_which_a_condition_is_true_lie_within_its_bounds(seed):
    rows, conditions, bound_count = table(seed), Conditions(seed), 0
    for i in range(RANDOM // 4):
        condition = conditions.condition(i % 3)
        try:
            chosen = rows.filter(pa.array(rows_where(condition, rows)))
        except ValueError:
            continue
        for name, bound in bounds(condition, rows.schema).items():
            bound_count += 1
            values = [plain(value) for value in pc.unique(chosen[name])]
            assert None not in values, condition
            assert all(bound.holds(value) for value in values), condition
            assert bound.values is None or bound.values.issuperset(values), condition
    assert bound_count


@pytest.mark.parametrize("name", ["text", "i64", "u64", "u8", "day", "ns", "ms", "tz", "amount"])
def test_keys_for_which_a_condition_is_true_lie_within_its_bounds(name):
    rows, rng, bound_count = pa.table({"k": TYPES[name]}), random.Random(name), 0
    for _ in range(RANDOM // 5):
        condition = condition_of(rng, name, 3)
        try:
            chosen = rows.filter(pa.array(rows_where(condition, rows)))
        except ValueError:
            continue
        for bound in bounds(condition, rows.schema).values():
            bound_count += 1
            values = [plain(value) for value in chosen["k"]]
            assert None not in values, condition
            assert all(bound.holds(value) for value in values), condition
            assert bound.values is None or bound.values.issuperset(values), condition
    assert bound_count > RANDOM // 20


EXACT = {
    # a condition, and what it leaves of a column: its values, or its ends
    "host = 'a'": {"host": {"a"}},
    "'a' = host": {"host": {"a"}},
    "host <=> 'a'": {"host": {"a"}},
    "host <=> NULL": {},
    "host = NULL": {"host": set()},
    "host IN ('b', NULL, 'a')": {"host": {"a", "b"}},
    "host IN ('b', other)": {},
    "host = 'a' OR host = 'b'": {"host": {"a", "b"}},
    "host = 'a' OR other = 'b'": {},
    "host = 'a' OR host IS NULL": {},
    "host = 'a' OR (host = 'b' AND host = 'c')": {"host": {"a"}},
    "host = 'b' AND host = 'c'": {"host": set()},
    "host = 'a' AND other = 'b'": {"host": {"a"}, "other": {"b"}},
    "NOT (host = 'a')": {},
    "host NOT IN ('a')": {},
    "host <> 'a'": {},
    "lower(host) = 'a'": {},
    "port > 5": {"port": (5, None)},
    "5 > port": {"port": (None, 5)},
    "port BETWEEN 5 AND 7": {"port": (5, 7)},
    "port NOT BETWEEN 5 AND 7": {},
    "port BETWEEN 7 AND 5": {"port": set()},
    "port >= 5 AND port <= 9 AND port IN (4, 5, 6)": {"port": {5, 6}},
    "port < 5 OR port = 9": {"port": (None, 9)},
    "port = 5.0": {"port": {5}},
    "port < 5.5": {},
    "port > 3000000000": {},
    "port = 2 + 3": {"port": {5}},
    "port = other": None,
    "x > 5e0": {},
    "day >= DATE '1970-01-03'": {"day": (2, None)},
    "day = '1970-01-03'": {"day": {2}},
    "at < '1970-01-01 00:00:01'": {"at": (None, 1_000_000)},
    "at = TIMESTAMP '1970-01-01 01:00:00+01:00'": {"at": {0}},
    "amount = 1.5": {"amount": {Decimal("1.50")}},
    "flag": {},
    "flag AND host = 'a'": {"host": {"a"}},
    "true": {},
    "host = 5": {},  # refused by whoever evaluates it
}
SCHEMA = pa.schema(
    [
        *(("host", pa.string()), ("other", pa.string()), ("port", pa.int32()), ("x", pa.float64())),
        *(("day", pa.date32()), ("at", pa.timestamp("us", "UTC")), ("amount", pa.decimal128(9, 2))),
        ("flag", pa.bool_()),
    ]
)


@pytest.mark.parametrize("condition", EXACT)
def test_bounds(condition):
    bounds_by_name = {
        name: set(bound.values) if bound.values is not None else (bound.low, bound.high)
        for name, bound in bounds(condition, SCHEMA).items()
    }
    assert bounds_by_name == (EXACT[condition] or {})


@pytest.mark.long
def test_chains_are_read_however_long():
    chain = " OR ".join(f"host = 'h{i}'" for i in range(20_000))
    assert len(bounds(chain, SCHEMA)["host"].values) == 20_000
    (bound,) = bounds_of_keys(chain, SCHEMA)
    assert bound.values is None
    assert (bound.low.as_py(), bound.high.as_py()) == ("h0", "h9999")


TYPES = {
    "text": pa.array(["a", "b", "it's", "Zürich", "日本", "\\x", ""]),
    "i64": pa.array([-(2**63), 2**63 - 1, 0, -5, 7, 8, 9]),
    "u64": pa.array([0, 1, 2**64 - 1, 2**63, 5, 6, 7], pa.uint64()),
    "u8": pa.array([0, 1, 255, 128, 5, 6, 7], pa.uint8()),
    "day": pa.array([-700_000, 0, 1, -1, 19_844, 11_016, 2_932_896], pa.int32()).cast(pa.date32()),
    "ns": pa.array([0, 1, -1, 999, 1_000, 10**18, -(10**18)]).cast(pa.timestamp("ns")),
    "ms": pa.array([0, 1, -1, 999, 1_000, 10**12, -(10**12)]).cast(pa.timestamp("ms")),
    "tz": pa.array([0, 1, -1, 999, 1_000, 10**15, -(10**15)]).cast(pa.timestamp("us", "Europe/Berlin")),
    "amount": pa.array([Decimal(n) / 100 for n in (0, 1, -1, 150, 10_000, 5, 123456)], pa.decimal128(9, 2)),
    "wide": pa.array([Decimal(n) for n in (0, 9, 10, -9, -10, 5, 10**45)], pa.decimal256(50, 0)),
    "f": pa.array([0.0, -0.0, float("nan"), float("inf"), -float("inf"), 1.5, 2.0]),
    "flag": pa.array([True, False, True, False, True, False, True]),
}
WRITTEN = {
    "text": ["'a'", "'it''s'", "'Zürich'", "'日本'", r"'\\x'", "''", "'zz'"],
    "i64": ["0", "-5", "-9223372036854775808", "9223372036854775807", "7.5", "8.0", "8e0"],
    "u64": ["18446744073709551615", "0", "9223372036854775808", "-1", "5.5", "6e0"],
    "u8": ["255", "256", "-1", "5", "6.0"],
    "day": ["'1970-01-01'", "DATE '2024-05-01'", "'0053-06-16'", "TIMESTAMP '1970-01-01 12:00:00'"],
    "ns": ["'1970-01-01'", "'1970-01-01 00:00:00.000000001'", "TIMESTAMP '2001-09-09 01:46:40'"],
    "ms": ["'1970-01-01'", "'1970-01-01 00:00:00.0005'", "TIMESTAMP '2001-09-09 01:46:40'"],
    "tz": ["'1970-01-01'", "'1970-01-01 01:00:00.001+01:00'", "'2001-09-09 01:46:40Z'", "DATE '1970-01-01'"],
    "amount": ["0", "1.5", "0.01", "-0.01", "0.015", "1e2", "1234.56"],
    "wide": ["0", "9", "-10", "1000000000000000000000000000000000000000000000"],
    "f": ["0", "1.5", "-0.0", "'NaN'", "2", "1e400"],
    "flag": ["true", "false"],
}


def condition_of(rng: random.Random, name: str, depth: int = 2) -> str:
    """Write a condition on a key."""
    pick = rng.random()
    if depth and pick < 0.3:
        parts = [f"({condition_of(rng, name, depth - 1)})" for _ in range(2)]
        return rng.choice([" AND ", " OR "]).join(parts)
    if depth and pick < 0.36:
        return f"NOT ({condition_of(rng, name, depth - 1)})"
    a, b = rng.choices(WRITTEN[name], k=2)
    if pick < 0.7:
        return f"k {rng.choice(['=', '<>', '<', '<=', '>', '>=', '<=>'])} {a}"
    if pick < 0.78:
        return rng.choice(["k IS NULL", "k IS NOT NULL"])
    return f"k BETWEEN {a} AND {b}" if pick < 0.86 else f"k {rng.choice(['', 'NOT '])}IN ({a}, {b})"


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.long
def test_random_conditions_answer_alike_narrowed_or_not(place, name):
    frame = TiltFrame(["1h", "1d"], "t", {"n": aggr.count(), "s": aggr.sum("x")}, keys=["k"])
    values = pa.concat_arrays([TYPES[name], pa.nulls(1, TYPES[name].type)])
    rng = np.random.default_rng(5)
    for number in range(2):
        events = pa.table(
            {
                "t": pa.array(BEGIN + rng.integers(0, 40 * 24 * HOUR, 600)).cast(pa.timestamp("us", "UTC")),
                "k": values.take(pa.array(rng.integers(0, len(values), 600))),
                "x": rng.integers(0, 1000, 600),
            }
        )
        store = FrameStore(place, frame)
        store.append(rollup(events, frame), "test", number)
        if number == 0:
            store.compact()
    every, choose = store.query("1d"), random.Random(name)
    ranged = store.query("1h", within=("2024-05-03", "2024-05-20"))
    for _ in range(12):  # `test_keys_for_which_a_condition_is_true_lie_within_its_bounds` tries 300, without stores
        condition = condition_of(choose, name)
        try:
            matching = pa.array(rows_where(condition, every))
        except ValueError as error:
            with pytest.raises(ValueError, match=re.escape(str(error))):
                store.query("1d", where=condition)
            continue
        assert digest_of(store.query("1d", where=condition)) == digest_of(every.filter(matching)), condition
        some_days = store.query("1h", within=("2024-05-03", "2024-05-20"), where=condition)
        assert digest_of(some_days) == digest_of(ranged.filter(pa.array(rows_where(condition, ranged)))), condition


def digest_of(results: pa.Table) -> list[str]:
    return [digest(column) for column in results.combine_chunks().columns]


def test_one_key_of_a_hundred_reads_a_fifth_at_most(tmp_path):
    store = write_month_store(tmp_path)
    every, one_host = store.query("1h"), store.query("1h", where="host = 'host-42'")
    assert digest_of(one_host) == digest_of(every.filter(pc.equal(every["host"], "host-42")))
    assert one_host.num_rows == 30 * 24
    assert bytes_ratio_of_one_key(store) <= 1 / 5
    day = ("2024-05-10", "2024-05-11")
    of_a_day = bytes_read(lambda: store.query("1h", within=day))
    assert of_a_day <= 0.6 * bytes_read(lambda: store.query("1h"))
    assert bytes_read(lambda: store.query("1h", within=day, where="host = 'host-42'")) < of_a_day / 2


def test_the_data_source_reads_as_little(tmp_path):
    store = write_month_store(tmp_path, rows_per_hour=1)
    readers = [
        TiltframeReader(question, question.schema, rows_per_task)
        for where in ({}, {"where": "host = 'host-42'"})
        for question, rows_per_task in [
            from_options(to_options(store.uri, Query("1h", **where), None, rows_per_task=10**6))
        ]
    ]
    every, one_host = (bytes_read(lambda reader=reader: read_all(reader)) for reader in readers)
    assert one_host <= every / 2  # a task looks at the store's log again, which takes as much as so small a store
    assert digest_of(read_all(readers[1])) == digest_of(store.query("1h", where="host = 'host-42'"))


def read_all(reader: TiltframeReader) -> pa.Table:
    return pa.Table.from_batches([batch for part in reader.partitions() for batch in reader.read(part)])


def test_the_database_leaves_out_rows(postgres):
    frame = TiltFrame(["1h"], "t", {"n": aggr.count()}, keys=["host", "port"])
    events = pa.table(
        {
            "t": pa.array([BEGIN] * 40).cast(pa.timestamp("us", "UTC")),
            "host": [["a", "b", "Zürich", "it's"][i % 4] for i in range(40)],
            "port": [i // 4 for i in range(40)],
        }
    )
    store = FrameStore(postgres, frame)
    store.append(rollup(events, frame), "test", 1)
    parts = store.backend.snapshot().of("1h")
    part_ranges = [(part, part.range) for part in parts]
    counts = {
        "host = 'Zürich'": 10,
        "host IN ('it''s', 'b')": 20,
        "host < 'a'": 20,  # 'a' itself may be read: ends are included
        "port = 3 AND host = 'a'": 1,
        "port BETWEEN 2 AND 4": 12,
        "port = 3 AND port = 4": 0,
    }
    if hasattr(pc, "remainder"):
        counts["port % 2 = 0"] = 40
    for where, rows in counts.items():
        read = store.backend.read(part_ranges, ["host", "port"], where)
        assert read.num_rows == rows, where
        assert rows_where(where, read).sum() == rows_where(where, store.query("1h")).sum()
    (row,) = store.query("1h", where="port = 3 AND host = 'Zürich'").to_pylist()
    assert (row["host"], row["port"], row["n"]) == ("Zürich", 3, 1)


@pytest.mark.parametrize("keys", [[], ["k"], ["k", "j"]])
@pytest.mark.parametrize("rows", [0, 1, 700, 50_000])
def test_the_layout_keeps_all_rows(keys, rows, monkeypatch):
    monkeypatch.setattr("tiltframe.store.backends.delta.row_groups._GROUP_BYTES", 1 << 14)
    rng = np.random.default_rng(rows)
    columns = {
        "window_start": pa.array(np.sort(rng.integers(0, 500, rows)) * HOUR).cast(pa.timestamp("us", "UTC")),
        "k": pa.array(rng.integers(0, 40, rows).astype(str)).take(pa.array(np.arange(rows))),
        "j": stored(pa.array(rng.integers(0, 3, rows), pa.uint8())),
        "n": pa.array(np.arange(rows)),
    }
    table = pa.table(columns)
    laid, sizes = split_into_row_groups(table, keys, ConstantFields.find(table))
    assert sum(sizes) == rows == laid.num_rows
    assert digest(laid.sort_by("n").combine_chunks()["n"]) == digest(table.combine_chunks()["n"])
    assert laid.sort_by("n").equals(table)
    assert rows == 0 or min(sizes) > 0
    if rows == 50_000:
        assert len(sizes) > 20
        places = np.cumsum([0, *sizes])
        starts = laid["window_start"].cast(pa.int64()).to_numpy()
        spans = [starts[a:b].max() - starts[a:b].min() for a, b in pairwise(places)]
        assert max(spans) < 400 * HOUR  # time is cut as well
        if keys:
            having = sum("7" in laid["k"].slice(a, b - a).to_pylist() for a, b in pairwise(places))
            assert having <= len(sizes) / 4


def test_a_file_that_has_lost_rows_is_noticed_also_when_little_of_it_is_read(tmp_path):
    store = write_month_store(tmp_path, rows_per_hour=1)
    parts = store.backend.snapshot().of("1h")
    (part,) = parts
    range_of_part = part.range
    with pytest.raises(StoreError, match=r"the file .* has [\d,]+ rows, and [\d,]+ were written"):
        store.backend.read([(replace(part, rows=part.rows + 1), range_of_part)], ["n"], "host = 'host-1'")
