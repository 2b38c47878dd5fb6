"""PostgreSQL: a store in the tables of a database, which are read and written as Arrow tables.

Every row of states has the name of its part; a part consists of the rows of one level that were written together. A
commit makes some parts readable and others unreadable in one transaction. During a commit, the store's row in the table
of all stores is locked. `vacuum` removes rows that a writer has not committed because it crashed.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from aggr.extend.arguments import nearest
from aggr.extend.columns import one_array
from tiltframe.store.backends import (
    END,
    INSTANT,
    LEVEL,
    START,
    Conflict,
    DamagedStore,
    KeyBound,
    MissingStore,
    OtherFrame,
    Part,
    Range,
    Record,
    Snapshot,
    StoreError,
    Transaction,
    Vacuumed,
    bounds_of_keys,
    bucket_names,
    cast_stored,
    check_name,
    instants_of,
    stored,
    stored_schema,
)
from tiltframe.store.backends.postgres import result_tables
from tiltframe.store.backends.postgres.address import parse_address, shown, without_password
from tiltframe.store.backends.postgres.address import secrets as passwords
from tiltframe.store.backends.postgres.conditions import bound_conditions
from tiltframe.store.backends.postgres.limits import PART, check_values
from tiltframe.store.backends.postgres.literals import moment, numbers, quoted
from tiltframe.store.backends.postgres.schema import Layout, StoredLayout, find_store, make_registry, register_store
from tiltframe.store.backends.postgres.session import Session, session
from tiltframe.store.backends.postgres.state_columns import column_name, flat_schema, flatten, unflatten
from windows import TimeWindow

PartRanges: TypeAlias = Sequence[tuple[Part, Range]]

_PART_FIELDS = "part bigint, level text, first_start bigint, last_start bigint, rows bigint, bytes bigint"


@dataclass(frozen=True)
class PostgresBackend:
    """The tables of one store in a PostgreSQL database. See `tiltframe.store.backends.protocol.Backend`."""

    # A URI for libpq. The characters ``@/?#%`` in names are percent-encoded.
    uri: str = field(repr=False)
    # The name of the store. It is optional if the database contains only one store.
    name: str = ""
    # Whether a commit waits for the disk, even if the configuration of the server does not require this.
    durable: bool = False

    def __post_init__(self) -> None:
        parse_address(self.uri)

    @classmethod
    def at(cls, uri: str, name: str, options: Mapping[str, str], durable: bool) -> PostgresBackend:
        """Return the backend of a URI in the form of libpq."""
        if options:
            raise ValueError(
                "storage_options cannot be used with PostgreSQL; write options in the URI, postgresql://…?option=value"
            )
        return cls(uri, name, durable)

    @property
    def display_uri(self) -> str:
        """The URI without its password."""
        return without_password(self.uri) if passwords(self.uri) else self.uri

    def store_named(self, name: str) -> PostgresBackend:
        """Return the backend of another store in the database."""
        return replace(self, name=name)

    def create(self, manifest: Mapping[str, Any], schema: pa.Schema) -> None:
        """Create the tables. If the store already exists, its manifest is not changed."""
        name = check_name(self.name)
        layout = Layout.from_manifest(name, manifest, schema)
        with session(self.uri) as db:
            db.lock("create")
            make_registry(db)
            if find_store(db, name) is None:
                layout.create(db)
                register_store(db, name, manifest)

    def check_values(self, states: pa.Table) -> None:
        """Raise `StoreError` if PostgreSQL cannot store a key or a state in ``states``."""
        check_values(states)

    def snapshot(self, recorded: Iterable[str] | None = ()) -> Snapshot | None:
        """Return the parts and the records of the store at one moment, read in one transaction. Return None if there is
        no store.
        """
        with session(self.uri, snapshot=True) as db:
            store = find_store(db, self.name)
            if store is None:
                return None
            records = _records(db, store.layout, recorded)
            return Snapshot(store.version, store.manifest, _readable_parts(db, store), records)

    def write(self, level: TimeWindow, states: pa.Table) -> list[Part]:
        """Write states as new parts, one for each bucket of time. They are not readable before they are committed."""
        with self._store() as (db, store):
            columns = _columns(store.layout, states)
            if not columns.num_rows:
                return []
            starts = instants_of(columns)
            names, bucket = np.unique(bucket_names(starts, level), return_inverse=True)
            ids = np.array([secrets.randbits(63) for _ in names], np.int64)
            sizes = pa.table({"bucket": bucket, "at": starts}).group_by("bucket")
            sizes = sizes.aggregate([("at", "min"), ("at", "max"), ("at", "count")]).sort_by("bucket")
            row_bytes = columns.nbytes // columns.num_rows
            parts = [
                Part(
                    level.name,
                    row["at_min"],
                    last_start=row["at_max"],
                    rows=row["at_count"],
                    bytes=row_bytes * row["at_count"],
                    name=str(identity),
                )
                for row, identity in zip(sizes.to_pylist(), ids.tolist(), strict=True)
            ]
            columns = columns.append_column(LEVEL, pa.repeat(pa.scalar(level.name), columns.num_rows))
            columns = columns.append_column(END, pa.array(level.ends(starts)).cast(INSTANT))
            db.append_rows(f"{store.name}_states", columns.append_column(PART, pa.array(ids[bucket])))
            rows_of_parts = [{"part": int(part.name), **asdict(part)} for part in parts]
            rows = f"json_to_recordset($1::json) AS p ({_PART_FIELDS})"
            db.run(f"INSERT INTO {store.layout.table('parts')} SELECT *, now() FROM {rows}", json.dumps(rows_of_parts))
            return parts

    def discard(self, parts: Sequence[Part]) -> None:
        """Do nothing, because `vacuum` removes the parts."""

    def commit(self, transaction: Transaction) -> int:
        """Apply all changes in one transaction. Other commits to the store wait for this transaction."""
        with self._store(lock=True) as (db, store):
            if self.durable:
                db.run("SET LOCAL synchronous_commit TO on")
            # If the transaction has read ranges, the check for conflicts needs all readable parts. Otherwise it needs
            # only the removed parts, and the UPDATE below checks that these are still readable.
            parts = _readable_parts(db, store) if transaction.ranges else tuple(transaction.removed)
            records = _records(db, store.layout, transaction.record_names)
            current = Snapshot(store.version, store.manifest, parts, records)
            if reason := transaction.conflict(current):
                raise Conflict(f"{reason} in the store {store.name}")
            for changed_parts, is_readable, unread_since in (
                (transaction.removed, True, "now()"),
                (transaction.added, False, "NULL"),
            ):
                ids = [int(part.name) for part in changed_parts]
                # The statement counts the updated rows, because the driver does not return their number.
                changed = db.rows(
                    f"WITH changed AS (UPDATE {store.layout.table('parts')} SET unread_since = {unread_since} "
                    f"WHERE part = ANY({numbers(ids)}) AND (unread_since IS NULL) = {is_readable} RETURNING 1) "
                    "SELECT count(*) AS parts FROM changed"
                )
                if changed[0]["parts"] != len(ids):
                    raise Conflict(f"parts of the store {store.name} were replaced or removed by another process")
            if transaction.recorded:
                db.run(
                    f"INSERT INTO {store.layout.table('recorded')} "
                    "SELECT sha256(convert_to(r.key, 'UTF8')), r.key, r.value FROM json_each_text($1::json) AS r "
                    "ON CONFLICT (digest) DO UPDATE SET text = EXCLUDED.text",
                    json.dumps(transaction.recorded),
                )
            if transaction.manifest is not None:
                _write_manifest(db, store, transaction.manifest, transaction.schema or store.layout.schema)
            db.run("UPDATE tiltframe SET version = version + 1 WHERE name = $1", store.name)
            return store.version + 1

    def read(self, parts: Sequence[tuple[Part, Range]], columns: Sequence[str], where: str | None = None) -> pa.Table:
        """Return window_start and the requested columns of rows: for each pair of a part and a range, the rows of the
        part whose windows start in the range.

        If the database filters rows by bounds of keys, lost rows are not detected.
        """
        with self._store(snapshot=True) as (db, store):
            stored_fields = store.layout.schema
            names = list(dict.fromkeys([START, *columns]))
            if missing := [name for name in names if name not in stored_fields.names]:
                raise StoreError(
                    f"the store {store.name} has no column {missing[0]!r}; {nearest(missing[0], stored_fields.names)}"
                )
            schema = pa.schema([stored_fields.field(name) for name in names]).remove_metadata()
            bounds = bounds_of_keys(where, stored_fields)
            levels = [] if bounds is None else list(dict.fromkeys(part.level for part, _ in parts))
            tables = [schema.empty_table()]
            for level in levels:
                pieces = [piece for piece in parts if piece[0].level == level]
                tables.append(
                    _read_level(db, store.layout, level=level, parts=pieces, schema=schema, bounds=bounds or ())
                )
        return pa.concat_tables(tables)

    def vacuum(self, older_than: float) -> Vacuumed:
        """Remove the rows of parts that have been unreadable for at least ``older_than`` seconds."""
        with self._store() as (db, store):
            deleted = db.rows(
                f"DELETE FROM {store.layout.table('parts')} WHERE unread_since < now() - $1 * interval '1 second' "
                "RETURNING part",
                float(older_than),
            )
            rows = db.rows(
                f"WITH gone AS (DELETE FROM {store.layout.table('states')} "
                f"WHERE {PART} = ANY({numbers([row['part'] for row in deleted])}) RETURNING 1) "
                "SELECT count(*) AS rows FROM gone"
            )
            unreadable = db.rows(
                "SELECT count(*) AS parts, extract(epoch FROM max(unread_since))::float8 AS since "
                f"FROM {store.layout.table('parts')} WHERE unread_since IS NOT NULL"
            )[0]
            kept_until = unreadable["since"] + older_than if unreadable["parts"] else None
            return Vacuumed(rows[0]["rows"], kept=unreadable["parts"], kept_until=kept_until)

    def result_sources(self, level: str) -> dict[str, Range]:
        """Return the parts from which a level's plain table (its results as plain columns) was computed, as part name →
        range of window starts. The dict is empty if the table has not been written.
        """
        with self._store(snapshot=True) as (db, store):
            layout = store.layout
            return result_tables.read_parts(db, layout.table("flat"), level) if layout.has_results(db) else {}

    def write_results(
        self, level: str, ranges: Sequence[Range], results: pa.Table, sources: Mapping[str, Range]
    ) -> None:
        """In a level's plain table, remove the rows of the windows that start in ``ranges``, and add the rows of
        ``results``. In the same transaction, store ``sources`` as the list of the parts from which the table was
        computed. Concurrent writers wait for each other.
        """
        with self._store() as (db, store):
            layout = store.layout
            if not layout.has_results(db):
                db.lock("create")
                if not layout.has_results(db):
                    layout.create_result_tables(db)
            db.lock(layout.name, level, "flat", 0)
            result_tables.replace(
                db,
                layout.flat(level),
                parts_table=layout.table("flat"),
                level=level,
                ranges=ranges,
                results=results,
                sources=sources,
            )

    def verify(self) -> list[str]:
        """Return an empty list: the database checks its own tables, and reading raises an error if rows of a part are
        missing.
        """
        self.snapshot()
        return []

    @contextmanager
    def _store(self, snapshot: bool = False, lock: bool = False) -> Iterator[tuple[Session, StoredLayout]]:
        """Open a transaction, and yield the session of the transaction and the store. With ``snapshot``, the
        transaction is read-only and sees the database at one moment. With ``lock``, other commits to the store wait for
        the end of the transaction. Raise `MissingStore` if the store does not exist.
        """
        with session(self.uri, snapshot) as db:
            store = find_store(db, self.name, lock)
            if store is None:
                store_text = f"no store {self.name!r}" if self.name else "no store"
                raise MissingStore(
                    f"there is {store_text} in PostgreSQL at {shown(self.uri)}; correct its name or address, or "
                    "create it with a first commit"
                )
            yield db, store

    def __repr__(self) -> str:
        return f"PostgresBackend({shown(self.uri)}, {self.name!r})"


def _readable_parts(db: Session, store: StoredLayout) -> tuple[Part, ...]:
    rows = db.rows(
        "SELECT level, first_start, last_start, rows, bytes, part::text AS name "
        f"FROM {store.layout.table('parts')} WHERE unread_since IS NULL ORDER BY first_start, part"
    )
    return tuple(Part(**row) for row in rows)


def _records(db: Session, layout: Layout, names: Iterable[str] | None) -> dict[str, Record]:
    """Return the records with the names ``names``, or all records if ``names`` equals None.

    The revision of a record is the number of the transaction that wrote the record. The server stores this number with
    each row.
    """
    requested = None if names is None else list(names)
    if requested == []:
        return {}
    all_records = f"SELECT name, text, xmin::text::bigint AS revision FROM {layout.table('recorded')}"
    digests = "SELECT sha256(convert_to(n, 'UTF8')) FROM json_array_elements_text($1::json) AS n"
    requested_records = f"{all_records} WHERE digest IN ({digests})"
    rows = db.rows(all_records) if requested is None else db.rows(requested_records, json.dumps(requested))
    return {row["name"]: Record(row["revision"], row["text"]) for row in rows}


def _write_manifest(db: Session, store: StoredLayout, manifest: Mapping[str, Any], schema: pa.Schema) -> None:
    before = store.layout
    after = Layout.from_manifest(store.name, manifest, schema)
    if (before.schema, before.frame) != (after.schema, after.frame):
        after.alter(db, before)
    db.run("UPDATE tiltframe SET description = $1 WHERE name = $2", json.dumps(manifest), store.name)


def _columns(layout: Layout, states: pa.Table) -> pa.Table:
    """Return ``states`` as a table with one column for each innermost field of a state. A column of states that is
    missing becomes null. Raise `OtherFrame` if window_start or a key is missing, or if a column has another type than
    in the store.
    """
    check_values(states)
    arrays = []
    for stored_field in layout.schema:
        is_present = stored_field.name in states.column_names
        if not is_present and stored_field.name in (START, *layout.frame.keys):
            raise OtherFrame(
                f"these are not states of the store {layout.name}, because they lack its column {stored_field.name!r}; "
                "roll up the rows with the frame of the store"
            )
        values = (
            one_array(states.column(stored_field.name)) if is_present else pa.nulls(states.num_rows, stored_field.type)
        )
        if values.type != stored_field.type:
            raise OtherFrame(
                f"the store {layout.name} contains {stored_field.type} in {stored_field.name!r}; got {values.type}; "
                "convert the data to the type in the store, or write to another store"
            )
        arrays.append(stored(values))
    return flatten(pa.table(arrays, schema=stored_schema(layout.schema)))


def _read_level(
    db: Session, layout: Layout, level: str, parts: PartRanges, schema: pa.Schema, bounds: Sequence[KeyBound] = ()
) -> pa.Table:
    """Return rows of parts of a level, in the types of the frame. For each pair of a part and a range, these are the
    rows of the part whose windows start in the range. ``bounds`` are conditions on keys with which the database filters
    rows.

    Raise `Conflict` if the rows of a part were removed, and `DamagedStore` if rows of a part that is read completely
    are missing.
    """
    part_ranges = [(part, common_range) for part, span in parts if (common_range := part.within(span))]
    if not part_ranges:
        return schema.empty_table()
    ids = sorted({int(part.name) for part, _ in part_ranges})
    readable = db.rows(f"SELECT count(*) AS parts FROM {layout.table('parts')} WHERE part = ANY({numbers(ids)})")
    if readable[0]["parts"] < len(ids):
        raise Conflict(f"parts of the level {level} of the store {layout.name} were removed by another process")
    conditions = [text for bound in bounds for text in bound_conditions(f"t.{quoted(column_name(bound.key))}", bound)]
    stored_fields = stored_schema(schema)
    flat = flat_schema(stored_fields)
    rows = db.ask(_query(layout.table("states"), flat, part_ranges, conditions), level)
    if not conditions:
        _check_rows(rows, part_ranges, f"the store {layout.name} is damaged: the table {layout.name}_states")
    nested = unflatten(rows.select(range(1, rows.num_columns)).rename_columns(flat.names), stored_fields)
    arrays = [cast_stored(one_array(c), f.type) for c, f in zip(nested.columns, schema, strict=True)]
    return pa.table(arrays, schema=schema)


def _query(table: str, flat: pa.Schema, part_ranges: PartRanges, conditions: Sequence[str]) -> str:
    ids, lows, highs = zip(*((int(part.name), *span) for part, span in part_ranges), strict=True)
    names = [f"t.{quoted(f.name)}::text" if pa.types.is_decimal(f.type) else f"t.{quoted(f.name)}" for f in flat]
    limits = [f"t.{START} >= {moment(str(min(lows)))}", f"t.{START} < {moment(str(max(highs)))}"]
    return (
        f"SELECT t.{PART} AS {quoted(PART)}, {', '.join(names)} FROM {table} AS t "
        f"JOIN unnest({numbers(ids)}, {numbers(lows)}, {numbers(highs)}) AS w (part, low, high) "
        f"ON t.{PART} = w.part AND t.{START} >= {moment('w.low')} AND t.{START} < {moment('w.high')} "
        f"WHERE t.{LEVEL} = $1 AND {' AND '.join([*limits, *conditions])}"
    )


def _check_rows(rows: pa.Table, part_ranges: PartRanges, where: str) -> None:
    counts = dict(zip(*(c.tolist() for c in np.unique(rows.column(PART).to_numpy(), return_counts=True)), strict=True))
    for part, span in part_ranges:
        count = counts.get(int(part.name), 0)
        if span == part.range and count != part.rows:
            raise DamagedStore(
                f"{where} has {count:,} rows of the part {part.name} of {part.level}, and {part.rows:,} were written; "
                "restore the table from a backup"
            )
