"""A backend of a store in SQLite: one file that imports public names only."""

from __future__ import annotations

import contextlib
import json
import secrets
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

import aggr
from tiltframe import FrameStore, TiltFrame, rollup
from tiltframe.store.backends import (
    Conflict,
    Part,
    Range,
    Record,
    Snapshot,
    Transaction,
    Vacuumed,
    bucket_names,
    inside,
    instants_of,
)
from tiltframe.store.testing import check_backend
from windows import TimeWindow

pytestmark = pytest.mark.store

TABLES = """
CREATE TABLE IF NOT EXISTS store (id INTEGER PRIMARY KEY, version INTEGER, manifest TEXT, schema BLOB);
CREATE TABLE IF NOT EXISTS part (
    name TEXT PRIMARY KEY, level TEXT, first_start INTEGER, last_start INTEGER, row_count INTEGER, byte_count INTEGER,
    is_readable INTEGER DEFAULT 0, states BLOB);
CREATE TABLE IF NOT EXISTS record (name TEXT PRIMARY KEY, revision INTEGER, text TEXT);
"""
PART_COLUMNS = "level, first_start, last_start, row_count, byte_count, name"


@dataclass(frozen=True)
class SQLiteBackend:
    """A store in one file of SQLite: one row per part, which has the states as an Arrow stream, and one per record."""

    uri: str  # sqlite:// and a path

    @classmethod
    def at(cls, uri: str, name: str, options: Mapping[str, str], durable: bool) -> SQLiteBackend:
        return cls(uri)

    @property
    def display_uri(self) -> str:
        return self.uri

    def store_named(self, name: str) -> SQLiteBackend:
        return self

    @contextlib.contextmanager
    def transaction(self, kind: str = "IMMEDIATE") -> Iterator[sqlite3.Connection]:
        """Yield a connection with an open transaction, which is committed at the end unless there is an error."""
        path = self.uri.partition("://")[2]
        with contextlib.closing(sqlite3.connect(path, timeout=60, isolation_level=None)) as db:
            db.executescript(TABLES)
            db.execute(f"BEGIN {kind}")
            yield db
            db.execute("COMMIT")

    def create(self, manifest: Mapping[str, Any], schema: pa.Schema) -> None:
        contents = [json.dumps(manifest), schema.serialize().to_pybytes()]
        with self.transaction() as db:
            db.execute("INSERT OR IGNORE INTO store VALUES (0, 0, ?, ?)", contents)

    def check_values(self, states: pa.Table) -> None:
        """Do nothing: an Arrow stream can store every value."""

    def snapshot(self, recorded: Iterable[str] | None = ()) -> Snapshot | None:
        with self.transaction("DEFERRED") as db:
            return self.snapshot_in(db, recorded)

    def snapshot_in(self, db: sqlite3.Connection, names: Iterable[str] | None) -> Snapshot | None:
        store = db.execute("SELECT version, manifest FROM store").fetchone()
        if store is None:
            return None
        parts = [Part(*row) for row in db.execute(f"SELECT {PART_COLUMNS} FROM part WHERE is_readable")]
        all_records = {name: Record(revision, text) for name, revision, text in db.execute("SELECT * FROM record")}
        if names is None:
            return Snapshot(store[0], json.loads(store[1]), tuple(parts), all_records)
        records = {name: all_records[name] for name in names if name in all_records}
        return Snapshot(store[0], json.loads(store[1]), tuple(parts), records)

    def write(self, level: TimeWindow, states: pa.Table) -> list[Part]:
        names = bucket_names(instants_of(states), level)
        parts = []
        with self.transaction() as db:
            for bucket in dict.fromkeys(names.tolist()):
                rows = states.filter(pa.array(names == bucket))
                starts = instants_of(rows)
                part = Part(
                    level.name,
                    int(starts.min()),
                    int(starts.max()),
                    rows=rows.num_rows,
                    bytes=rows.nbytes,
                    name=secrets.token_hex(8),
                )
                values = [part.level, part.first_start, part.last_start, part.rows, part.bytes, part.name]
                insert = f"INSERT INTO part ({PART_COLUMNS}, states) VALUES (?, ?, ?, ?, ?, ?, ?)"
                db.execute(insert, [*values, to_bytes(rows)])
                parts.append(part)
        return parts

    def discard(self, parts: Sequence[Part]) -> None:
        with self.transaction() as db:
            db.executemany("DELETE FROM part WHERE name = ?", [(part.name,) for part in parts])

    def commit(self, transaction: Transaction) -> int:
        with self.transaction() as db:
            snapshot = self.snapshot_in(db, transaction.record_names)
            assert snapshot is not None
            if reason := transaction.conflict(snapshot):
                raise Conflict(reason)
            version = snapshot.version + 1
            changed = [(False, part.name) for part in transaction.removed]
            changed += [(True, part.name) for part in transaction.added]
            db.executemany("UPDATE part SET is_readable = ? WHERE name = ?", changed)
            records = [(name, version, text) for name, text in transaction.recorded.items()]
            db.executemany("INSERT OR REPLACE INTO record VALUES (?, ?, ?)", records)
            db.execute("UPDATE store SET version = ?", [version])
            if transaction.manifest and transaction.schema is not None:
                contents = [json.dumps(transaction.manifest), transaction.schema.serialize().to_pybytes()]
                db.execute("UPDATE store SET manifest = ?, schema = ?", contents)
            return version

    def read(self, parts: Sequence[tuple[Part, Range]], columns: Sequence[str], where: Any = None) -> pa.Table:
        with self.transaction("DEFERRED") as db:
            (serialized,) = db.execute("SELECT schema FROM store").fetchone()
            tables = [pa.ipc.read_schema(pa.py_buffer(serialized)).empty_table()]
            for part, span in parts:
                row = db.execute("SELECT states FROM part WHERE name = ?", [part.name]).fetchone()
                if row is None:
                    raise Conflict("a part has been removed, and vacuumed")
                states = pa.ipc.open_stream(row[0]).read_all()
                tables.append(states.filter(pa.array(inside(instants_of(states), [span]))))
        return pa.concat_tables(tables, promote_options="default").select(["window_start", *columns])

    def vacuum(self, older_than: Any) -> Vacuumed:
        with self.transaction() as db:
            return Vacuumed(db.execute("DELETE FROM part WHERE NOT is_readable").rowcount)

    def verify(self) -> list[str]:
        with self.transaction("DEFERRED") as db:
            (result,) = db.execute("PRAGMA integrity_check").fetchone()
        return [] if result == "ok" else [result]


def to_bytes(rows: pa.Table) -> bytes:
    """Return a table as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return sink.getvalue().to_pybytes()


def test_the_backend_keeps_the_protocol(tmp_path):
    check_backend(lambda: SQLiteBackend(f"sqlite://{tmp_path}/{secrets.token_hex(4)}.db"))


def test_a_store_answers_like_one_in_a_folder(tmp_path):
    frame = TiltFrame(["1m", "1h"], "ts", {"n": aggr.count(), "latency": aggr.dds("ms", [0.5])}, ["host"])
    rows = pa.table({"ts": [0, 61_000, 3_600_000], "host": ["a", "b", "a"], "ms": [3.0, 4.0, 5.0]})
    answers = []
    for place in (SQLiteBackend(f"sqlite://{tmp_path}/web.db"), str(tmp_path / "web")):
        store = FrameStore(place, frame)
        for number in range(3):
            assert store.append(rollup(rows.slice(number, 1), frame), "w", number)
            assert not store.append(rollup(rows.slice(number, 1), frame), "w", number)
        store.compact()
        store.vacuum()
        again = FrameStore(place)
        assert again.verify().problems == ()
        answers.append([again.query(per, order_by=["window_start", "host"]) for per in ("1m", "1h", "all")])
    own, folder = answers
    assert [results.num_rows for results in own] == [3, 3, 2]
    assert own == folder
