"""PostgreSQL: a store's tables in a database, Arrow in and Arrow out.

Every row says which part it is of, and is readable while that part is listed; writing a row again takes it over from a
part that is not listed, and a part is listed only if it still has all of its rows. So what crashed, stays unseen.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from aggr.kernels.digest import digest
from aggr.kernels.normalize import one_array
from tiltframe.frame import END, INSTANT, START
from tiltframe.level_chain import instants_of
from tiltframe.names import COMMIT, WRITER
from tiltframe.store.core.backend import Conflict, Part, Range, Snapshot, StoreError
from tiltframe.store.core.buckets import bucket_names
from tiltframe.store.core.manifest import check_name
from tiltframe.store.core.narrowing import key_bounds
from tiltframe.store.core.stored_types import stored, stored_schema
from tiltframe.store.postgres import flat_tables
from tiltframe.store.postgres.address import checked_address, shown, without_password
from tiltframe.store.postgres.commit import commit, last_numbers, readable
from tiltframe.store.postgres.flat import flatten
from tiltframe.store.postgres.limits import PART, ROW, WRITTEN, check_values
from tiltframe.store.postgres.reading import read_level
from tiltframe.store.postgres.schema import Layout, find, make_registry, register
from tiltframe.store.postgres.session import Session, listed, quoted, session

_INCOMING = "tiltframe_incoming"
_SAME_TEXT = "SELECT " + ", ".join(  # the same values are the same text in every session
    f"set_config('{name}', '{value}', true)"
    for name, value in {
        "TimeZone": "UTC",
        "DateStyle": "ISO, YMD",
        "extra_float_digits": "1",
        "bytea_output": "hex",
    }.items()
)


@dataclass(frozen=True)
class PostgresBackend:
    """The tables of one store in a database. See `tiltframe.store.core.backend.Backend`.

    Parameters
    ----------
    uri : str
        As libpq takes it: ``postgresql://user:password@host/database``, each of ``@/?#%`` in a name as its code.
    name : str
        Of the store; may be left out where the database holds one store only.
    durable : bool
        Whether a commit waits for the disk also where the server is set to acknowledge it before.
    """

    uri: str = field(repr=False)
    name: str = ""
    durable: bool = False

    def __post_init__(self) -> None:
        """Check the URI."""
        checked_address(self.uri)

    @property
    def place(self) -> str:
        """The URI without its password: a later command takes it, where the password comes from elsewhere."""
        return without_password(self.uri)

    def named(self, name: str) -> PostgresBackend:
        """Say which of the database's stores is meant."""
        return replace(self, name=name)

    def describe(self) -> dict[str, Any] | None:
        """Read the store's description; None where there is no store."""
        with session(self.uri, snapshot=True) as db:
            found = find(db, self.name)
        return found and found[1]

    def create(self, manifest: Mapping[str, Any], schema: pa.Schema) -> None:
        """Make the tables; whoever comes second changes nothing, and finds the first one's description."""
        name = check_name(self.name)
        layout = Layout.of(name, manifest, schema)
        with session(self.uri) as db:
            db.lock("create")
            make_registry(db)
            if find(db, name) is None:
                layout.create(db)
                register(db, name, manifest)

    def alter(self, manifest: Mapping[str, Any], schema: pa.Schema, seen: Mapping[str, Any]) -> None:
        """Replace the description, and add columns and tables, in one transaction; commits wait for it."""
        with self._store() as (db, _):
            db.lock("create")
            found = find(db, self.name)
            if found is None or found[1] != seen:
                raise Conflict("the description has been changed meanwhile")
            before, after = Layout.of(*found), Layout.of(found[0], manifest, schema)
            if (before.schema, before.frame) != (after.schema, after.frame):
                for level in before.levels:
                    db.lock(before.name, level)
                after.alter(db, before)
            db.run("UPDATE tiltframe SET description = $1 WHERE name = $2", json.dumps(manifest), before.name)

    def check_values(self, states: pa.Table) -> None:
        """Raise `StoreError` for values that PostgreSQL cannot hold."""
        check_values(states)

    def view(self, levels: Sequence[str], writers: Iterable[str] = ()) -> list[Snapshot]:
        """Take snapshots of levels, all of one moment; each has the last numbers of all writers of its level."""
        with self._store(snapshot=True) as (db, layout):
            return [
                Snapshot(level, tuple(readable(db, layout, level)), last_numbers(db, layout, level)) for level in levels
            ]

    def write(self, level: str, states: pa.Table, writer: str, commit: int) -> list[Part]:
        """Write states that nobody reads yet; many tasks may write for one commit at once, and write again."""
        with self._store() as (db, layout):
            layout.table(level)
            columns = _columns(layout, states)
            parts, of_rows = _parts(layout, level, columns, writer, commit)
            size = layout.frame.level(level)
            ends = pa.array(size.ends(instants_of(columns))).cast(INSTANT)
            for name, values in ((END, ends), (WRITER, writer), (COMMIT, commit), (PART, of_rows)):
                columns = columns.append_column(name, values if isinstance(values, pa.Array) else _all(values, columns))
            if columns.num_rows:
                _insert(db, layout, level, columns)
            return parts

    def discard(self, parts: Sequence[Part]) -> None:
        """Leave rows to `clean`: another process that writes the same may have taken them over."""

    def commit(
        self,
        level: str,
        add: Sequence[Part],
        cut: Sequence[tuple[Part, Range]] = (),
        txn_versions: Mapping[str, int] | None = None,
        seen: Snapshot | None = None,
        notes: Mapping[str, int] | None = None,
    ) -> None:
        """Make parts readable, cut ranges out of others, and note the last numbers of writers, at once."""
        with self._store() as (db, layout):
            if self.durable:
                db.run("SET LOCAL synchronous_commit TO on")
            commit(db, layout, level, list(dict.fromkeys(add)), cut, txn_versions or {}, seen, notes or {})

    def read(self, parts: Sequence[tuple[Part, Range]], columns: Sequence[str], where: str | None = None) -> pa.Table:
        """Read the rows of parts whose windows start in the ranges: window_start and the columns asked for.

        The database leaves out rows by what the condition says of single keys; rows that are lost go unnoticed then.
        """
        with self._store(snapshot=True) as (db, layout):
            fields = [START, *(name for name in columns if name != START)]
            missing = [name for name in fields if name not in layout.schema.names]
            if missing:
                raise StoreError(f"the store {layout.name} has no column {missing[0]!r}")
            schema = pa.schema([layout.schema.field(name) for name in fields]).remove_metadata()
            bounds = key_bounds(where, layout.schema)
            levels = [] if bounds is None else list(dict.fromkeys(part.level for part, _ in parts))
            found = [
                read_level(
                    db, layout, level, [given for given in parts if given[0].level == level], schema, bounds or ()
                )
                for level in levels
            ]
        return pa.concat_tables(found) if found else schema.empty_table()

    def clean(self, older_than: float) -> int:
        """Remove rows that nobody reads, and that were written more than some seconds ago."""
        removed = 0
        with self._store(snapshot=True) as (_, layout):
            levels = layout.levels
        for level in levels:  # a transaction each: no commit waits for more than one level
            with self._store() as (db, layout):
                db.lock(layout.name, level)
                rows = db.rows(
                    f"WITH gone AS (DELETE FROM {layout.table(level)} AS t "
                    f"WHERE {WRITTEN} < now() - $1 * interval '1 second' "
                    f"AND NOT EXISTS (SELECT FROM {layout.parts} AS p WHERE p.part = t.{PART}) RETURNING 1) "
                    "SELECT count(*) AS rows FROM gone",  # the driver does not say how many rows a statement changed
                    float(older_than),
                )
                removed += rows[0]["rows"]
        return removed

    def flat_parts(self, level: str) -> dict[str, Range]:
        """Read what a level's plain table was made from."""
        with self._store(snapshot=True) as (db, layout):
            return flat_tables.read_parts(db, layout.flat_parts, level) if layout.has_results(db) else {}

    def write_flat(self, level: str, ranges: Sequence[Range], results: pa.Table, parts: Mapping[str, Range]) -> None:
        """Replace rows of a level's plain table, and note what it is made from; writers take turns."""
        with self._store() as (db, layout):
            if not layout.has_results(db):
                db.lock("create")
                if not layout.has_results(db):
                    layout.make_results(db)
            db.lock(layout.name, level, "flat", 0)
            flat_tables.replace(db, layout.flat(level), layout.flat_parts, level, ranges, results, parts)

    def size(self, level: str) -> int:
        """Return the bytes that a level's table takes, with its index."""
        with self._store(snapshot=True) as (db, layout):
            rows = db.rows("SELECT pg_total_relation_size($1::text::regclass) AS bytes", layout.table(level))
        return int(rows[0]["bytes"])

    def check(self, levels: Sequence[str]) -> list[str]:
        """Return nothing: the database looks after its tables, and parts that have lost rows are noticed when read."""
        self.view(levels)
        return []

    @contextmanager
    def _store(self, snapshot: bool = False) -> Iterator[tuple[Session, Layout]]:
        """Open a transaction, and look up how the store is laid out."""
        with session(self.uri, snapshot) as db:
            found = find(db, self.name)
            if found is None:
                named = f"no store {self.name!r}" if self.name else "no store"
                raise StoreError(f"there is {named} in PostgreSQL at {shown(self.uri)}")
            yield db, Layout.of(*found)

    def __repr__(self) -> str:
        """Show where it is, without the password."""
        return f"PostgresBackend({shown(self.uri)}, {self.name!r})"


def _columns(layout: Layout, states: pa.Table) -> pa.Table:
    """Give the flat columns of states; raises `StoreError` unless they are of the store's types."""
    check_values(states)
    arrays = []
    for kept in layout.schema:
        given = kept.name in states.column_names
        if not given and kept.name in (START, *layout.frame.keys):
            raise StoreError(f"these are no states of the store {layout.name}: they have no column {kept.name!r}")
        values = one_array(states.column(kept.name)) if given else pa.nulls(states.num_rows, kept.type)
        if values.type != kept.type:
            raise StoreError(f"the store {layout.name} keeps {kept.type} in {kept.name!r}, and this is {values.type}")
        arrays.append(stored(values))
    return flatten(pa.table(arrays, schema=stored_schema(layout.schema)))


def _parts(layout: Layout, level: str, columns: pa.Table, writer: str, commit: int) -> tuple[list[Part], pa.Array]:
    """Make a part for each bucket, and say which part each row is of.

    A part's name is a hash of all that was written: the same states written again are the same part, so that a task
    that is run twice does no harm to itself. One without rows has nothing to protect, and a name of its own.
    """
    if not columns.num_rows:
        name = str(secrets.randbits(63))
        return [Part(level, writer, commit, 0, 0, 0, name=name)], pa.array([], pa.int64())
    starts = instants_of(columns)
    names, bucket = np.unique(bucket_names(starts, layout.frame.level(level)), return_inverse=True)
    content = [f"{n} {digest(c)}" for n, c in zip(columns.column_names, columns.columns, strict=True)]
    all_of_it = repr((level, writer, commit, content))
    hashes = [hashlib.sha256(f"{all_of_it} {name}".encode()).digest()[:8] for name in names.tolist()]
    ids = np.frombuffer(b"".join(hashes), np.int64)
    rows = pa.table({"bucket": bucket, "at": starts}).group_by("bucket")
    sizes = rows.aggregate([("at", "min"), ("at", "max"), ("at", "count")]).sort_by("bucket").to_pylist()
    parts = [
        Part(level, writer, commit, size["at_min"], size["at_max"], size["at_count"], name=str(identity))
        for size, identity in zip(sizes, ids.tolist(), strict=True)
    ]
    return parts, pa.array(ids[bucket])


def _insert(db: Session, layout: Layout, level: str, columns: pa.Table) -> None:
    """Insert rows, or take them over from parts that are not readable.

    Commits of the same writer and number wait, or have been: between looking at the parts and taking over a row,
    none may list the row's part. In the order of the key, so that two writers of the same rows cannot block each other.
    """
    table, names = layout.table(level), columns.column_names
    db.run(_SAME_TEXT)
    db.run(f"CREATE TEMP TABLE {_INCOMING} ON COMMIT DROP AS SELECT {listed(names)} FROM {table} WITH NO DATA")
    db.fill(_INCOMING, columns)
    db.lock(layout.name, level, columns[WRITER][0].as_py(), columns[COMMIT][0].as_py(), shared=True)
    taken = [f"{quoted(n)} = EXCLUDED.{quoted(n)}" for n in names if n not in layout.identity]
    identity = f"sha256(convert_to(ROW({listed(layout.identity)})::text, 'UTF8'))"
    db.run(
        f"INSERT INTO {table} AS t ({listed(names)}, {ROW}) SELECT {listed(names)}, {identity} AS {ROW} "
        f"FROM {_INCOMING} ORDER BY {START}, {ROW} ON CONFLICT ({START}, {ROW}) "
        f"DO UPDATE SET {', '.join(taken)}, {WRITTEN} = now() "
        f"WHERE NOT EXISTS (SELECT FROM {layout.parts} AS p WHERE p.part = t.{PART})"
    )


def _all(value: str | int, columns: pa.Table) -> pa.Array:
    return pa.repeat(pa.scalar(value, pa.string() if isinstance(value, str) else pa.int64()), columns.num_rows)
