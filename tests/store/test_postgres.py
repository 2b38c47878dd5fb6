"""PostgreSQL: states are read with the same bits, and uncommitted data is not visible."""

from __future__ import annotations

import base64
import contextlib
import datetime as dt
import importlib
import math
import multiprocessing
import pickle
import random
import re
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import aggr
from aggr.arrow.bit_equality import digest
from tests.engines import FLAT, ORDER, rows
from tests.engines import FLAT_FRAME as FRAME
from tiltframe import FrameStore, TiltFrame, finish, rollup
from tiltframe.level_chain import with_level_column
from tiltframe.merged_windows import merge_level
from tiltframe.names import END, LEVEL, START
from tiltframe.store.backends import Transaction
from tiltframe.store.backends.postgres import schema, sql_results
from tiltframe.store.backends.postgres.backend import PostgresBackend
from tiltframe.store.backends.postgres.session import session
from tiltframe.store.log.errors import Conflict, DamagedStore, MissingStore, StoreError
from tiltframe.store.log.manifest import FORMAT
from windows import window

pytestmark = pytest.mark.store

ALL = (-(2**63), 2**63 - 1)
BY = ORDER[1:]
FINE = window("1s")
SMALL = TiltFrame(["1s", "1h"], "ts", {"n": aggr.count(), "s": aggr.sum("x"), "first": aggr.first("x")}, ["k"])


def description(frame: TiltFrame, schema: pa.Schema) -> dict:
    text = base64.b64encode(schema.serialize().to_pybytes()).decode()
    return {"format": FORMAT, "frame": frame.describe(), "levels": [w.name for w in frame.levels], "schema": text}


def states_of(frame: TiltFrame, data: pa.Table, level: str) -> pa.Table:
    states = rollup(data, frame)
    return states.filter(pc.equal(states.column(LEVEL), level)).drop([LEVEL, END])


def store(uri: str, frame: TiltFrame, schema: pa.Schema, name: str = "web") -> PostgresBackend:
    tables = PostgresBackend(uri, name)
    tables.create(description(frame, schema), schema)
    return tables


def small(at=range(10), keys=("a", None), x: int = 1) -> pa.Table:
    events = [{"ts": t * 1000, "x": x, "k": k} for t in at for k in keys]
    schema = pa.schema([("ts", pa.int64()), ("x", pa.int64()), ("k", pa.string())])
    return states_of(SMALL, pa.Table.from_pylist(events, schema), "1s")


def commit(tables: PostgresBackend, parts: list, remove=(), **recorded: str) -> None:
    tables.commit(transaction(tables.snapshot(recorded), parts, remove, recorded))


def transaction(snapshot, adds=(), removes=(), records=None, describes=None) -> Transaction:
    changes = Transaction(snapshot)
    changes.adds(adds)
    changes.removes(removes)
    for name, text in (records or {}).items():
        changes.records(name, text)
    if describes is not None:
        changes.describes(*describes)
    return changes


def read(tables: PostgresBackend, level: str = "1s", span=ALL) -> pa.Table:
    parts = tables.snapshot().of(level)
    return tables.read([(part, span) for part in parts], [n for n in small().column_names if n != START])


def total(tables: PostgresBackend, span=ALL) -> int:
    return sum(state["count"] for state in read(tables, span=span).column("n").to_pylist())


def same(a: pa.Table, b: pa.Table) -> bool:
    return a.schema == b.schema and all(digest(a[name]) == digest(b[name]) for name in a.column_names)


def test_ugly_states_come_back_bit_for_bit(postgres):
    states = states_of(FRAME, rows(3000), "1m")
    tables = store(postgres, FRAME, states.schema)
    parts = tables.write(FRAME.level("1m"), states)
    commit(tables, parts, w="1")
    snapshot = tables.snapshot(["w"])
    assert set(snapshot.parts) == set(parts)
    assert snapshot.texts == {"w": "1"}
    assert sum(part.rows for part in parts) == states.num_rows
    names = [name for name in states.column_names if name != START]
    back = tables.read([(part, ALL) for part in parts], names)
    assert same(back.sort_by(BY), states.sort_by(BY))
    chosen_columns = tables.read([(part, ALL) for part in parts], ["h", "host"])
    assert chosen_columns.column_names == [START, "h", "host"]
    assert all(part.bytes > 0 for part in parts)
    nothing = tables.read([], names)
    assert nothing.schema == states.schema


def test_leaves_of_every_type_come_back_bit_for_bit(postgres):
    rng = np.random.default_rng(1)
    n = 500
    extremes = np.array([-math.inf, math.inf, math.nan, -0.0, 5e-324, -math.nan])
    nan = np.array([0x7FF8000000000001], np.int64).view(np.float64)  # a NaN with a payload
    wide = [Decimal(int(a) * 10**19 + int(b)).scaleb(-7) for a, b in rng.integers(-(2**60), 2**60, (n, 2))]
    leaves = {
        "int8": pa.array(rng.integers(-128, 128, n), pa.int8()),
        "uint64": pa.array(np.append(rng.integers(0, 2**63, n - 1, np.uint64), np.uint64(2**64 - 1))),
        "float": pa.array(np.resize(np.concatenate([extremes, nan, rng.normal(size=20)]), n)),
        "float32": pa.array(np.resize(extremes, n).astype(np.float32)),
        "decimal": pa.array(wide, pa.decimal128(38, 7)),
        "small": pa.array([Decimal(int(v)).scaleb(-37) for v in rng.integers(-5, 5, n)], pa.decimal128(38, 37)),
        "text": pa.array(np.resize(["", "'; DROP TABLE x; --", "\\", "%s $1", "ä\U0001f600", '"'], n)),
        "bytes": pa.array([bytes([i % 256, 0]) for i in range(n)]),
        "fixed": pa.array([bytes([i % 256, 0]) for i in range(n)], pa.binary(2)),
        "bool": pa.array(rng.random(n) < 0.5),
        "date": pa.array(rng.integers(-700_000, 2_900_000, n).astype(np.int32)).cast(pa.date32()),
        "naive": pa.array(rng.integers(-(2**55), 2**58, n)).cast(pa.timestamp("us")),
        "ns": pa.array(rng.integers(-(2**62), 2**62, n)).cast(pa.timestamp("ns", "UTC")),
        "duration": pa.array(rng.integers(-(2**62), 2**62, n)).cast(pa.duration("us")),
        "floats": pa.array([[math.nan, -0.0, None], [], None, [1.0]] * (n // 4), pa.list_(pa.float64())),
        "texts": pa.array([["", None, "ä"], [], None, ["{}"]] * (n // 4)),
        "decimals": pa.array([[Decimal("1.50"), None], [], None, []] * (n // 4), pa.list_(pa.decimal128(9, 2))),
    }
    holes = {name: pc.if_else(pa.array(rng.random(n) < 0.9), a, None) for name, a in leaves.items()}
    inner = pa.StructArray.from_arrays(list(holes.values()), names=list(holes))
    inner = pc.if_else(pa.array(rng.random(n) < 0.8), inner, None)
    version = pa.array(np.ones(n, np.int8))
    outer = pa.StructArray.from_arrays([version, inner], names=["version", "in"])
    states = pa.table({START: pa.array(np.arange(n) * 10**6).cast(pa.timestamp("us", "UTC")), "n": outer})
    frame = TiltFrame(["1s"], "ts", {"n": aggr.first("x")})
    tables = PostgresBackend(postgres, "types")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema, "sql_view", lambda *a, **options: [])
        patch.setattr(schema.result_tables, "result_column_types", lambda *a: {})  # nothing finishes these states
        tables.create(description(frame, states.schema), states.schema)
    parts = tables.write(window("1s"), states)
    commit(tables, parts)
    back = tables.read([(part, ALL) for part in parts], ["n"]).sort_by(START)
    for name in holes:
        field = [pc.struct_field(t.column("n"), ["in", name]) for t in (back, states)]
        assert digest(field[0]) == digest(field[1]), name
    assert same(back, states)


def test_what_is_not_committed_is_not_there(postgres):
    tables = store(postgres, SMALL, small().schema)
    parts = tables.write(FINE, small())
    assert total(tables) == 0
    commit(tables, parts)
    assert total(tables) == 20
    with pytest.raises(Conflict, match="replaced or removed"):
        commit(tables, parts)
    assert total(tables) == 20


def test_what_is_never_committed_is_removed(postgres):
    tables = store(postgres, SMALL, small().schema)
    crashed = tables.write(FINE, small(range(20), x=7))
    commit(tables, tables.write(FINE, small(range(10), x=5)))
    assert tables.vacuum(3600) == 0
    assert tables.vacuum(0) == 40
    assert same(read(tables).sort_by([(START, "ascending"), ("k", "ascending")]), small(range(10), x=5))
    with pytest.raises(Conflict, match="replaced or removed"):
        commit(tables, crashed)


def test_what_was_removed_can_be_read_by_older_snapshots_until_it_is_vacuumed(postgres):
    tables = store(postgres, SMALL, small().schema)
    (part,) = parts = tables.write(FINE, small(range(100)))
    commit(tables, parts)
    second = 1_000_000
    commit(tables, tables.write(FINE, small(range(10, 20), x=3)), [part])
    assert total(tables) == 20
    assert tables.read([(part, (5 * second, 12 * second))], ["n"]).num_rows == 14
    with pytest.raises(Conflict, match="replaced or removed"):
        commit(tables, [], [part])
    assert tables.vacuum(0) == 200
    for where in (None, "k = 'a'"):
        with pytest.raises(Conflict, match="were removed"):
            tables.read([(part, (0, second))], ["n"], where)
    assert total(tables) == 20


def test_a_lost_row_is_damage(postgres):
    tables = store(postgres, SMALL, small().schema)
    commit(tables, tables.write(FINE, small()))
    with session(postgres) as db:
        db.run("DELETE FROM web_states WHERE k IS NULL AND window_start = 'epoch'")
    with pytest.raises(DamagedStore, match=r"19 rows of the part \d+ of 1s, and 20 were written; restore the table"):
        total(tables)


def test_names_and_values_stay_data(postgres):
    key = "k\"e'y; DROP TABLE tiltframe; -- %s $1 \\ ä"
    long = ["x" * 62 + end for end in ("ab", "ac")]
    measures = {long[0]: aggr.sum("x"), long[1]: aggr.min("x"), 'a"; --': aggr.avg("x")}
    frame = TiltFrame(["1s"], "ts", measures, [key, "Ключ" * 20])
    values = ["'", '"', ";", "\\", "%s", "$1", "\n", "ä\U0001f600", "{}", "NULL", "", None]
    data = pa.table({"ts": [0] * 12, "x": range(12), key: values, "Ключ" * 20: values})
    states = states_of(frame, data, "1s")
    tables = store(postgres, frame, states.schema)
    writer = "w'\"; DROP TABLE tiltframe; -- \\ %s ä {}"
    parts = tables.write(FINE, states)
    commit(tables, parts, **{writer: writer})
    snapshot = tables.snapshot([writer])
    assert (snapshot.parts, snapshot.texts) == (tuple(parts), {writer: writer})
    back = tables.read([(part, ALL) for part in parts], states.column_names[1:])
    order = [(key, "ascending")]
    assert same(back.sort_by(order), states.sort_by(order))
    with pytest.raises(ValueError, match="letters, digits"):
        PostgresBackend(postgres, 'a"b').create({}, states.schema)
    assert PostgresBackend(postgres, "'; --").snapshot() is None


def test_descriptions(postgres):
    tables = PostgresBackend(postgres, "web")
    assert tables.snapshot() is None
    assert PostgresBackend(postgres).snapshot() is None
    with pytest.raises(MissingStore, match="there is no store 'web'"):
        tables.write(FINE, small())
    schema = small().schema
    tables.create(description(SMALL, schema), schema)
    tables.create({**description(SMALL, schema), "second": True}, schema)
    snapshot = tables.snapshot()
    assert (snapshot.manifest, snapshot.parts) == (description(SMALL, schema), ())
    only = PostgresBackend(postgres)
    more = {**description(SMALL, schema), "more": "ä'"}
    with pytest.raises(Conflict):
        tables.commit(transaction(replace(snapshot, manifest={"not": "this"}), describes=(more, schema)))
    tables.commit(transaction(snapshot, describes=(more, schema)))
    assert only.snapshot().manifest["more"] == "ä'"
    store(postgres, SMALL, schema, "other")
    with pytest.raises(StoreError, match="several stores; name one of them: other, web"):
        only.snapshot()


def test_a_store_of_another_format_is_refused_by_name(postgres):
    tables = store(postgres, SMALL, small().schema)
    with session(postgres) as db:
        db.run("UPDATE tiltframe SET format = 4")
    with pytest.raises(StoreError, match="has format 4, and this release can read format 5"):
        tables.snapshot()


def test_what_cannot_be_kept_is_refused(postgres):
    tables = PostgresBackend(postgres, "web")
    nested = pa.struct([("pairs", pa.list_(pa.struct([("a", pa.int64())])))])
    schema = small().schema
    bad = schema.set(schema.get_field_index("s"), pa.field("s", nested))
    with pytest.raises(StoreError, match=r"PostgreSQL cannot store 's.pairs'.*Delta"):
        tables.create(description(SMALL, bad), bad)
    assert tables.snapshot() is None
    frame = TiltFrame(["1s"], "ts", {"n": aggr.count()}, ["_part"])
    states = states_of(frame, pa.table({"ts": [0], "_part": [1]}), "1s")
    with pytest.raises(StoreError, match="a key cannot be called '_part'"):
        tables.create(description(frame, states.schema), states.schema)
    tables = store(postgres, SMALL, schema)
    with pytest.raises(StoreError, match="NUL character"):
        tables.write(FINE, small(keys=["a\0b"]))
    hollow = pa.array([{"version": None, "count": None}] * 20, schema.field("n").type)
    with pytest.raises(StoreError, match="whose fields are all null"):
        tables.write(FINE, small().set_column(2, "n", hollow))


@pytest.mark.parametrize(
    "uri",
    [
        "postgresql://bob:s3cret@localhost:1/x",
        "postgresql://bob:s3%20cret@localhost:1/x?options=-c%20nope",
        "postgresql://localhost:1/x?user=bob&password=s3cret",
    ],
)
def test_errors_do_not_show_the_password(uri):
    with pytest.raises(StoreError) as caught:
        PostgresBackend(uri, "web").snapshot()
    assert not re.search("s3.*cret", str(caught.value) + repr(PostgresBackend(uri)))
    assert "\n" not in str(caught.value)


def test_a_reader_needs_no_more_than_select(postgres):
    tables = store(postgres, SMALL, small().schema)
    commit(tables, tables.write(FINE, small()))
    with session(postgres) as db:
        db.run("DROP ROLE IF EXISTS tiltframe_reader")
        db.run("CREATE ROLE tiltframe_reader LOGIN")
        db.run("GRANT SELECT ON ALL TABLES IN SCHEMA public TO tiltframe_reader")
    reader = PostgresBackend(postgres.replace("//postgres:", "//tiltframe_reader:"), "web")
    assert total(reader) == 20
    with pytest.raises(StoreError, match="permission denied"):
        reader.write(FINE, small())
    with session(postgres) as db:
        db.run("DROP OWNED BY tiltframe_reader")
        db.run("DROP ROLE tiltframe_reader")


def test_the_current_view_shows_results(postgres):
    both = [states_of(FRAME, rows(1500, seed), "1d") for seed in (1, 2)]
    tables = store(postgres, FRAME, both[0].schema)
    for states in both:
        commit(tables, tables.write(FRAME.level("1d"), states))
    tables.write(FRAME.level("1d"), both[0])  # unread
    level = FRAME.level("1d")
    expected = finish(with_level_column(merge_level(pa.concat_tables(both), FRAME, level), FRAME, level), FRAME)
    with session(postgres) as db:
        got = db.rows("SELECT * FROM web_1d_current ORDER BY window_start, host, shelf")
    assert len(got) == expected.num_rows
    for row, right in zip(got, expected.to_pylist(), strict=True):
        for name in [START, END, "host", "shelf", *FRAME.measures]:
            if name in ("d", "h"):
                for part in ("count", "min", "max", *(("sum", "mean") if name == "d" else ())):
                    assert repr(row[f"{name}_{part}"]) == repr(right[name][part])
            elif name in (START, END):
                assert row[name] == right[name], name
                assert row[name].utcoffset() == dt.timedelta(0), name  # timestamptz has no zone
            elif name not in ("whole", "money", *FLAT):  # of these the view has some; test_ways_out reads them
                assert repr(row[name]) == repr(right[name]), name
    with session(postgres) as db:
        got = db.ask("SELECT whole::text AS w, money::text AS m FROM web_1d_current ORDER BY window_start, host, shelf")
    assert got["w"].to_pylist() == [str(v) for v in expected["whole"].to_pylist()]
    assert got["m"].to_pylist() == [str(v) for v in expected["money"].to_pylist()]


def test_the_current_view_of_extremes(postgres):
    frame = TiltFrame(
        ["1s"],
        "ts",
        {
            "s": aggr.sum("x"),
            "mean": aggr.avg("x"),
            "v": aggr.var("x"),
            "at": aggr.avg("at"),
            "cents": aggr.hdr("c", unit=0.01),
            "cents_min": aggr.count(),
            "yes": aggr.max("b"),
            "raw": aggr.min("raw"),
        },
        ["k"],
    )
    cases = [[1.7e308, 1.7e308], [5e-324, 0.0, 0.0], [1e-200, 2e-200], [1e200, -1e200, 1.0], [math.inf, -math.inf]]
    events = [
        {"ts": 0, "k": k, "x": x, "at": -2 * i - k, "c": i * 0.1, "b": i == 1, "raw": bytes([9 - i])}
        for k, values in enumerate(cases)
        for i, x in enumerate(values)
    ]
    data = pa.Table.from_pylist(events)
    data = data.set_column(3, "at", data["at"].cast(pa.timestamp("ms")))
    states = states_of(frame, data, "1s")
    tables = store(postgres, frame, states.schema)
    commit(tables, tables.write(FINE, states))
    level = frame.levels[0]
    expected = finish(with_level_column(merge_level(states, frame, level), frame, level), frame).to_pylist()
    with session(postgres) as db:
        got = db.ask("SELECT * FROM web_1s_current ORDER BY k").to_pylist()
    for row, right in zip(got, expected, strict=True):
        for name in ("k", "s", "mean", "v", "at", "cents_min", "yes", "raw"):
            assert repr(row[name]) == repr(right[name]), (name, row["k"])
        assert row["cents_max"] == right["cents"]["max"]


def weighted(rows):
    """Σwx / Σw by fractions, rounded once."""
    rows = [(x, w) for x, w in rows if x is not None and w is not None]
    infinite = {x * w for x, w in rows if not math.isfinite(x)}
    if any(math.isnan(x) or not math.isfinite(w) for x, w in rows) or len(infinite | {0.0 * i for i in infinite}) > 2:
        return math.nan
    total = sum((Fraction(w) for _, w in rows), Fraction(0))
    if not total:
        return None
    if infinite:
        return infinite.pop() * (1 if total > 0 else -1)
    return float(sum(Fraction(x) * Fraction(w) for x, w in rows) / total)


def test_the_current_view_of_functions_of_two_columns(postgres):
    """DuckDB tells which row is least or greatest, fractions what the means are; ties go by value."""
    measures = {
        "at_least": aggr.arg_min("x", by="w"),
        "at_most": aggr.arg_max("x", by="w"),
        "mean": aggr.weighted_avg("x", weight="w"),
        "exactly": aggr.weighted_avg("money", weight="money"),
        "it's": aggr.dds("x", [0.5], 0.01),
    }
    frame = TiltFrame(["1s"], "ts", measures, ["k"])
    cases = [
        [(0.1, 0.7), (0.2, 1e300), (None, 5.0)],
        [(1.0, 1.0), (3.0, -1.0)],
        [(1.5, 3e-320), (2.5, 5e-324)],
        [(math.inf, -2.0), (1.0, 1.0)],
        [(math.inf, 1.0), (-math.inf, 1.0)],
        [(1.0, math.inf)],
        [(1e-200, 1e308), (1e-300, 1e308), (-1e-250, 3.0)],
        [(None, 1.0)],
    ]
    chance = random.Random(8)
    weights = (0.5, 1.0, 2.0, 3e-310, 7e299, -1.0, None)
    cases += [
        [(chance.gauss(0, 1) * 10.0 ** chance.randrange(-9, 9), chance.choice(weights)) for _ in range(n)]
        for n in range(1, 40)
    ]
    events = [
        {"ts": 0, "k": k, "x": x, "w": w, "money": Decimal(i - 3) / 100}
        for k, pairs in enumerate(cases)
        for i, (x, w) in enumerate(pairs)
    ]
    states = states_of(frame, pa.Table.from_pylist(events), "1s")
    tables = store(postgres, frame, states.schema)
    for states_of_commit in (states, states.slice(1, 3)):
        commit(tables, tables.write(FINE, states_of_commit))
    duck = duckdb.connect().register("events", pa.Table.from_pylist(events))
    extremes = (
        "arg_min(x, row(w, x)) FILTER (WHERE w IS NOT NULL) a, arg_max(x, row(w, x)) FILTER (WHERE w IS NOT NULL) b"
    )
    expected = duck.sql(f"SELECT k, {extremes} FROM events GROUP BY k ORDER BY k").fetchall()
    with session(postgres) as db:
        got = db.ask("SELECT * FROM web_1s_current ORDER BY k").to_pylist()
        (comment,) = db.rows("SELECT obj_description('web_1s_current'::regclass) AS text")
    for row, (k, lowest, highest), pairs in zip(got, expected, cases, strict=True):
        assert (row["k"], repr(row["at_least"]), repr(row["at_most"])) == (k, repr(lowest), repr(highest))
        assert repr(row["mean"]) == repr(weighted(pairs)), k
        money = [event["money"] for event in events if event["k"] == k]
        assert repr(row["exactly"]) == repr(weighted(zip(money, money, strict=True))), k
    assert comment["text"] == (
        "All measures are in this view. As of the last compact or export, and null in windows with newer rows: it's_p50"
    )


def test_the_current_view_names_what_it_leaves_out(postgres):
    frame = TiltFrame(["1s"], "ts", {"d": aggr.dds("x", [0.5], 0.01), "d_min": aggr.count(), "n": aggr.count()}, ["k"])
    states = states_of(frame, pa.table({"ts": [0], "x": [1.0], "k": ["a"]}), "1s")
    store(postgres, frame, states.schema)
    with session(postgres) as db:
        (comment,) = db.rows("SELECT obj_description('web_1s_current'::regclass) AS text")
    assert comment["text"] == "Not in this view: d (dds): d_min; d (dds): d_p50"


SPREAD = """
from dataclasses import dataclass
import aggr, pyarrow.compute as pc
from aggr.extend import GREATEST, LEAST, PlainState

@dataclass(frozen=True)
class Spread(aggr.Function):
    name, keeps, returns, guarantee = "spread_of_pg", "least and greatest value", "the input's type", "exact"
    own_state = PlainState("spread_of_pg", {"low": LEAST, "high": GREATEST})

    def finish_states(self, states):
        return pc.subtract(states.field("high"), states.field("low"))
"""
SPREAD_IN_SQL = """
from spread_of_pg import Spread
from tiltframe.store.backends.postgres.sql_results import register_sql
from tiltframe.store.backends.postgres.sql_terms import column_of

@register_sql(Spread)
def spread(function, merged, state, dtype):
    low, high = merged(f"min({column_of(state, 'low')})"), merged(f"max({column_of(state, 'high')})")
    return {"": f"{high} - {low}"}
"""


def test_the_current_view_computes_functions_of_other_distributions(postgres, tmp_path, monkeypatch):
    """Two commits of one window are merged in SQL, without an export of results."""
    folder = tmp_path / "spread_of_pg-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: spread-of-pg\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text("[tiltframe.sql_results]\nspread = spread_in_sql_of_pg\n")
    (tmp_path / "spread_of_pg.py").write_text(SPREAD)
    (tmp_path / "spread_in_sql_of_pg.py").write_text(SPREAD_IN_SQL)
    monkeypatch.syspath_prepend(tmp_path)
    sql_results._load_entry_points.cache_clear()
    function = aggr.register(importlib.import_module("spread_of_pg").Spread)
    try:
        frame = TiltFrame(["1s"], "ts", {"s": aggr.caller("spread_of_pg")("x")}, ["k"])
        commits = [states_of(frame, pa.table({"ts": [0, 1], "x": x, "k": ["a", "a"]}), "1s") for x in ([3, 9], [-2, 4])]
        tables = store(postgres, frame, commits[0].schema)
        for states in commits:
            commit(tables, tables.write(FINE, states))
        with session(postgres) as db:
            assert db.ask("SELECT s FROM web_1s_current").to_pylist() == [{"s": 11}]
    finally:
        aggr.unregister(function)


def _task(tables: PostgresBackend, i: int) -> list:
    """Write as four threads of a process."""
    with ThreadPoolExecutor(4) as pool:
        keys = [f"{i}-{j}" for j in range(4)]
        written = list(pool.map(lambda key: tables.write(FINE, small(keys=[key])), keys))
    return [part for parts in written for part in parts]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["spawn", "fork"])
@pytest.mark.long
def test_many_processes_write_at_once(postgres, method):
    tables = store(postgres, SMALL, small().schema)
    assert pickle.loads(pickle.dumps(tables)) == tables
    with ProcessPoolExecutor(4, mp_context=multiprocessing.get_context(method)) as pool:
        parts = [part for parts in pool.map(_task, [tables] * 8, range(8)) for part in parts]
    commit(tables, parts)
    assert total(tables) == 320


@pytest.mark.slow
def test_many_at_once_agree(postgres):
    """Creators, commits that record the same, and vacuums, all at the same time."""
    tables = PostgresBackend(postgres, "web")
    schema = small().schema
    won, errors = [], []

    def run(i: int) -> None:
        try:
            tables.create(description(SMALL, schema), schema)
            for number in range(3):
                parts = tables.write(FINE, small(range(20 * number, 20 * number + 20)))
                with suppress(Conflict):
                    unread = replace(tables.snapshot(), records={})
                    tables.commit(transaction(unread, parts, records={f"w{number}": ""}))
                    won.append(number)
                tables.vacuum(60)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert sorted(won) == sorted(set(won))
    assert total(tables) == 40 * len(won)


def test_a_password_is_shown_nowhere(postgres, capfd, tmp_path):
    from tiltframe.cli.app import main

    uri = postgres.replace("postgres:@", "postgres:s3cret@")
    (tmp_path / "a.csv").write_text("ts,x\n0,1\n")
    frame = TiltFrame(["1m"], "ts", {"n": aggr.count()})
    assert "s3cret" not in repr(FrameStore(uri, frame))
    arguments = ["--time", "ts", "--measure", "n=count()", "--levels", "1m", "--store", uri]
    for command in (
        ["rollup", str(tmp_path / "a.csv"), *arguments],
        ["rollup", str(tmp_path / "a.csv"), *arguments],
        ["rollup", str(tmp_path / "a.csv"), *arguments, "--timezone", "Asia/Tokyo"],
        ["inspect", uri],
        ["inspect", uri, "--format", "json"],
        ["compact", uri],
        ["expire", uri],
        ["query", uri, "--per", "7s"],
        ["query", uri, "--per", "1m", "--name", "nope"],
    ):
        with contextlib.suppress(SystemExit):
            main(command)
        output = "".join(capfd.readouterr())
        assert output
        assert "s3cret" not in output


def test_the_current_view_sums_decimals_of_a_sketch_exactly(postgres):
    """Their decimal places travel in the exponent of the sum: 0.10 + 0.20 is 0.3, its mean 0.15."""
    frame = TiltFrame(["1s"], "ts", {"d": aggr.dds("x", [0.5])}, ["k"])
    cents = ["0.10", "0.20", "-0.30", "1.00", "90071992547409.93"]
    events = [{"ts": 0, "k": k, "x": Decimal(x)} for k in range(3) for x in cents[: k + 2]]
    events += [{"ts": 0, "k": 3, "x": Decimal(x)} for x in ("0.10", "-0.10")]
    events += [{"ts": 0, "k": 4, "x": Decimal(cents[-1])}]
    states = states_of(frame, pa.Table.from_pylist(events), "1s")
    tables = store(postgres, frame, states.schema)
    for part in (states, states.slice(1, 2)):
        commit(tables, tables.write(FINE, part))
    with session(postgres) as db:
        rows = db.ask("SELECT * FROM web_1s_current ORDER BY k").to_pylist()
    doubled = (1, 2)
    for row in rows:
        values = [Fraction(event["x"]) for event in events if event["k"] == row["k"]] * (
            2 if row["k"] in doubled else 1
        )
        assert (row["d_count"], row["d_sum"]) == (len(values), float(sum(values)))
        assert row["d_mean"] == float(sum(values) / len(values))
