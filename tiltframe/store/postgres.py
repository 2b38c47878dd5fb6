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

from aggr.bits import digest
from aggr.plain import one_array
from tiltframe.frame import END, INSTANT, START
from tiltframe.store.flat import flat_schema, flatten, unflatten
from tiltframe.store.pg_commit import check_seen, commit, covered, readable
from tiltframe.store.pg_session import Session, listed, moment, numbers, quoted, session, shown
from tiltframe.store.pg_tables import PART, WRITTEN, Layout, find, make_registry, register
from tiltframe.store.stored import restored, stored, stored_schema
from tiltframe.store.tables import COMMIT, WRITER, Part, Range, StoreError, View, bucket_names, check_name
from windows import window

_INCOMING = "tiltframe_incoming"


@dataclass(frozen=True)
class PostgresTables:
    """The tables of one store in a database; see `tiltframe.store.tables.Tables`.

    Parameters
    ----------
    uri : str
        As libpq takes it: ``postgresql://user:password@host/database``.
    name : str
        Of the store; may be left out where the database holds one store only.
    """

    uri: str = field(repr=False)
    name: str = ""

    @property
    def place(self) -> str:
        """Server and database, without who asks."""
        return f"postgresql://{shown(self.uri)}"

    def named(self, name: str) -> PostgresTables:
        """Say which of the database's stores is meant."""
        return replace(self, name=name)

    def describe(self) -> dict[str, Any] | None:
        """Read the store's description; None where there is no store."""
        with session(self.uri, snapshot=True) as db:
            found = find(db, self.name)
        return found and found[1]

    def create(self, description: Mapping[str, Any], schema: pa.Schema) -> None:
        """Make the tables; whoever comes second changes nothing, and finds the first one's description."""
        name = check_name(self.name)
        layout = Layout.of(name, description, schema)
        with session(self.uri) as db:
            db.lock("create")
            make_registry(db)
            if find(db, name) is None:
                layout.create(db)
                register(db, name, description)

    def alter(self, description: Mapping[str, Any]) -> None:
        """Replace the description."""
        with self._store() as (db, layout):
            db.run("UPDATE tiltframe SET description = $1 WHERE name = $2", json.dumps(description), layout.name)

    def view(self, levels: Sequence[str], writers: Iterable[str] = ()) -> list[View]:
        """Look at levels, all as of one moment; each view knows the last numbers of all writers of its level."""
        with self._store(snapshot=True) as (db, layout):
            return [View(level, tuple(readable(db, layout, level)), covered(db, layout, level)) for level in levels]

    def write(self, level: str, states: pa.Table, writer: str, commit: int) -> list[Part]:
        """Write states that nobody reads yet; many tasks may write for one commit at once, and write again."""
        with self._store() as (db, layout):
            layout.table(level)
            columns = _columns(layout, states)
            parts, of_rows = _parts(layout, level, columns, writer, commit)
            size = window(level, layout.frame.timezone)
            ends = pa.array(size.ends(_micros(columns))).cast(INSTANT)
            for name, values in ((END, ends), (WRITER, writer), (COMMIT, commit), (PART, of_rows)):
                columns = columns.append_column(name, values if isinstance(values, pa.Array) else _all(values, columns))
            if columns.num_rows:
                _insert(db, layout, level, columns)
            return parts

    def commit(
        self,
        level: str,
        add: Sequence[Part],
        cut: Sequence[tuple[Part, Range]] = (),
        covers: Mapping[str, int] | None = None,
        seen: View | None = None,
    ) -> None:
        """Make parts readable, cut ranges out of others, and note the last numbers of writers, at once."""
        with self._store() as (db, layout):
            commit(db, layout, level, list(dict.fromkeys(add)), cut, covers or {}, seen)

    def read(self, parts: Sequence[tuple[Part, Range]], columns: Sequence[str]) -> pa.Table:
        """Read the rows of parts whose windows start in the ranges: window_start and the columns asked for."""
        with self._store(snapshot=True) as (db, layout):
            fields = [START, *(name for name in columns if name != START)]
            missing = [name for name in fields if name not in layout.schema.names]
            if missing:
                raise StoreError(f"the store {layout.name} has no column {missing[0]!r}")
            schema = pa.schema([layout.schema.field(name) for name in fields]).remove_metadata()
            levels = dict.fromkeys(part.level for part, _ in parts)
            found = [
                _read(db, layout, level, [given for given in parts if given[0].level == level], schema)
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

    def size(self, level: str) -> int:
        """Return the bytes that a level's table takes, with its index."""
        with self._store(snapshot=True) as (db, layout):
            rows = db.rows("SELECT pg_total_relation_size($1::text::regclass) AS bytes", layout.table(level))
        return int(rows[0]["bytes"])

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
        return f"PostgresTables({shown(self.uri)}, {self.name!r})"


def _columns(layout: Layout, states: pa.Table) -> pa.Table:
    """Give the flat columns of states; raises `StoreError` unless they are of the store's types."""
    arrays = []
    for kept in layout.schema:
        if kept.name not in states.column_names:
            raise StoreError(f"these are no states of the store {layout.name}: they have no column {kept.name!r}")
        values = one_array(states.column(kept.name))
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
    starts = _micros(columns)
    names, bucket = np.unique(bucket_names(starts, window(level, layout.frame.timezone)), return_inverse=True)
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
    db.run(f"CREATE TEMP TABLE {_INCOMING} ON COMMIT DROP AS SELECT {listed(names)} FROM {table} WITH NO DATA")
    db.fill(_INCOMING, columns)
    db.lock(layout.name, level, columns[WRITER][0].as_py(), columns[COMMIT][0].as_py(), shared=True)
    taken = [f"{quoted(n)} = EXCLUDED.{quoted(n)}" for n in names if n not in layout.unique]
    db.run(
        f"INSERT INTO {table} AS t ({listed(names)}) SELECT {listed(names)} FROM {_INCOMING} "
        f"ORDER BY {listed(layout.unique)} ON CONFLICT ({listed(layout.unique)}) "
        f"DO UPDATE SET {', '.join(taken)}, {WRITTEN} = now() "
        f"WHERE NOT EXISTS (SELECT FROM {layout.parts} AS p WHERE p.part = t.{PART})"
    )


def _read(db: Session, layout: Layout, level: str, parts: Sequence[tuple[Part, Range]], schema: pa.Schema) -> pa.Table:
    """Read what is asked of one level, in one query."""
    check_seen(db, layout, level, [part for part, _ in parts])
    asked = [(part, both) for part, span in parts if (both := part.within(span)) and part.rows]
    if not asked:
        return schema.empty_table()
    ids, lows, highs = zip(*((int(part.name), *span) for part, span in asked), strict=True)
    kept = stored_schema(schema)
    flat = flat_schema(kept)
    names = [f"t.{quoted(f.name)}" + "::text" * pa.types.is_decimal(f.type) for f in flat]
    rows = db.ask(
        f"SELECT t.{PART} AS {quoted(PART)}, {', '.join(names)} FROM {layout.table(level)} AS t "
        f"JOIN unnest({numbers(ids)}, {numbers(lows)}, {numbers(highs)}) AS w (part, low, high) "
        f"ON t.{PART} = w.part AND t.{START} >= {moment('w.low')} AND t.{START} < {moment('w.high')} "
        f"WHERE t.{START} >= {moment(str(min(lows)))} AND t.{START} < {moment(str(max(highs)))}"
    )
    counts = dict(zip(*(c.tolist() for c in np.unique(rows.column(PART).to_numpy(), return_counts=True)), strict=True))
    for part, (low, high) in asked:
        if (low, high) == (part.least, part.greatest + 1) and counts.get(int(part.name), 0) != part.rows:
            raise StoreError(f"the store {layout.name} is damaged: the level {level} has lost rows of {part.writer}")
    nested = unflatten(rows.select(range(1, rows.num_columns)).rename_columns(flat.names), kept)
    arrays = [restored(one_array(c), f.type) for c, f in zip(nested.columns, schema, strict=True)]
    return pa.table(arrays, schema=schema)


def _micros(columns: pa.Table) -> Any:
    return one_array(columns.column(START)).cast(INSTANT).cast(pa.int64()).to_numpy()


def _all(value: str | int, columns: pa.Table) -> pa.Array:
    return pa.repeat(pa.scalar(value, pa.string() if isinstance(value, str) else pa.int64()), columns.num_rows)
