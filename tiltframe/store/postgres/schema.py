"""The tables of a store in PostgreSQL: what they are called, what they are made of, and how they are made.

tiltframe               name, format, description            one row a store
<name>_<level>          window, keys, states as flat columns, writer, commit, the row's part and its identity
<name>_parts            which parts of which level are readable
<name>_covers           the last commit of each writer, for each level
<name>_<level>_flat     results as plain columns, as old as the last compaction or export
<name>_flat             the parts that these were made from
<name>_<level>_current  a view of results, for tools that only speak SQL
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tiltframe.frame import END, START, TiltFrame
from tiltframe.names import COMMIT, WRITER
from tiltframe.store.core.backend import StoreError
from tiltframe.store.core.manifest import schemas_in
from tiltframe.store.core.stored_types import stored_schema
from tiltframe.store.postgres import flat_tables
from tiltframe.store.postgres.flat import flat_schema, sql_type
from tiltframe.store.postgres.limits import PART, ROW, WRITTEN, check_columns
from tiltframe.store.postgres.session import Session, quoted
from tiltframe.store.postgres.sql_view import Relations, sql_view

_OLDEST = 150_000  # the oldest that is tested
_REGISTRY = "CREATE TABLE tiltframe (name text PRIMARY KEY, format integer NOT NULL, description text NOT NULL)"


@dataclass(frozen=True)
class Layout:
    """How a store is laid out in tables, as its description says."""

    name: str
    levels: tuple[str, ...]
    frame: TiltFrame
    schema: pa.Schema  # of window_start, keys and all states, as the caller knows them
    evolved: bool = False

    @classmethod
    def of(cls, name: str, manifest: Mapping[str, Any], schema: pa.Schema | None = None) -> Layout:
        """Read a description; raises `StoreError` for a damaged one."""
        try:
            if schema is None:
                schema = pa.schema([field for each in schemas_in(manifest) for field in each])
            frame = TiltFrame.from_dict(manifest["frame"])
            return cls(name, tuple(manifest["levels"]), frame, schema, bool(manifest.get("generation")))
        except (KeyError, TypeError, ValueError, pa.ArrowException) as error:
            raise StoreError(f"the store {name} is damaged: its description cannot be read: {error}") from None

    @property
    def columns(self) -> pa.Schema:
        """The flat columns, window_start first."""
        return flat_schema(stored_schema(self.schema))

    @property
    def identity(self) -> list[str]:
        """The columns that tell rows apart; their SHA-256 is indexed, for an index takes values of some length only."""
        return [
            START,
            *flat_schema(stored_schema(pa.schema([self.schema.field(k) for k in self.frame.keys]))).names,
            WRITER,
            COMMIT,
        ]

    @property
    def parts(self) -> str:
        """The table of parts, quoted."""
        return quoted(f"{self.name}_parts")

    @property
    def txn_versions(self) -> str:
        """The table of the writers' last numbers, quoted."""
        return quoted(f"{self.name}_covers")

    def table(self, level: str) -> str:
        """Return the table of a level, quoted; raises `StoreError` for one that the store does not have."""
        if level not in self.levels:
            raise StoreError(f"the store {self.name} has no level {level!r}; it has {', '.join(self.levels)}")
        return quoted(f"{self.name}_{level}")

    @property
    def flat_parts(self) -> str:
        """The table of what plain tables were made from, quoted."""
        return quoted(f"{self.name}_flat")

    def flat(self, level: str) -> str:
        """Return the plain table of a level, quoted."""
        self.table(level)
        return quoted(f"{self.name}_{level}_flat")

    def relations(self, level: str) -> Relations:
        """Name what the view of a level reads, and the view."""
        view = quoted(f"{self.name}_{level}_current")
        return Relations(self.table(level), self.parts, self.txn_versions, self.flat(level), self.flat_parts, view)

    def create(self, session: Session) -> None:
        """Make the tables and the views."""
        version = session.rows("SELECT current_setting('server_version_num')::integer AS version")[0]["version"]
        if version < _OLDEST:
            raise StoreError(f"a store needs PostgreSQL 15 or newer; this is {version // 10_000}")
        check_columns(pa.schema(list(self.columns)[1:]))
        session.run(
            f"CREATE TABLE {self.parts} (part bigint PRIMARY KEY, level text NOT NULL, writer text NOT NULL, "
            '"commit" bigint NOT NULL, least bigint NOT NULL, greatest bigint NOT NULL, rows bigint NOT NULL)'
        )
        session.run(
            f"CREATE TABLE {self.txn_versions} (level text NOT NULL, writer text NOT NULL, digest bytea NOT NULL, "
            "number bigint NOT NULL, PRIMARY KEY (level, digest))"
        )
        for level in self.levels:
            session.run(self._level(level))
        self.make_results(session)

    def alter(self, session: Session, before: Layout) -> None:
        """Add the columns and tables that there were not before; results are of this frame then."""
        check_columns(pa.schema(list(self.columns)[1:]))
        there = before.columns.names
        new = [f"ADD COLUMN {n} {t}" for n, t in self._types() if n not in {quoted(name) for name in there}]
        for level in self.levels:
            if level not in before.levels:
                session.run(self._level(level))
            elif new:
                session.run(f"ALTER TABLE {self.table(level)} {', '.join(new)}")
        self.make_results(session)

    def make_results(self, session: Session) -> None:
        """Make the views of results, and the plain tables, empty, that they take the rest from.

        Plain tables that are there go; who may read them, and the views, may still.
        """
        names = [name for level in self.levels for name in (self.flat(level), self.relations(level).view)]
        grants = [statement for name in names for statement in _grants(session, name)]
        for level in self.levels:
            session.run(f"DROP VIEW IF EXISTS {self.relations(level).view}")
            session.run(f"DROP TABLE IF EXISTS {self.flat(level)}")
        session.run(f"DROP TABLE IF EXISTS {self.flat_parts}")
        session.run(flat_tables.create_parts(self.flat_parts))
        for level in self.levels:
            session.run(flat_tables.create(self.frame, self.schema, self.flat(level)))
            for statement in sql_view(self.frame, self.schema, self.relations(level), level, self.evolved):
                session.run(statement)
        for statement in grants:
            session.run(statement)

    def has_results(self, session: Session) -> bool:
        """Say whether there are plain tables; stores made by earlier releases have none."""
        return not session.rows("SELECT to_regclass($1::text) IS NULL AS missing", self.flat_parts)[0]["missing"]

    def _types(self) -> list[tuple[str, str]]:
        """Name the columns of a level, quoted, but for its start, and their types."""
        return [(quoted(f.name), sql_type(f.type, f.name)) for f in self.columns if f.name != START]

    def _level(self, level: str) -> str:
        states = [f"{name} {dtype}" for name, dtype in self._types()]
        return (
            f"CREATE TABLE {self.table(level)} ({START} timestamptz NOT NULL, {END} timestamptz NOT NULL, "
            f'{"".join(f"{s}, " for s in states)}{WRITER} text COLLATE "C" NOT NULL, "{COMMIT}" bigint NOT NULL, '
            f"{PART} bigint NOT NULL, {WRITTEN} timestamptz NOT NULL DEFAULT now(), "
            f"{ROW} bytea NOT NULL, UNIQUE ({START}, {ROW}))"
        )


_GRANTED = (
    "SELECT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END AS who, "
    "a.privilege_type AS what FROM pg_class AS c, aclexplode(c.relacl) AS a "
    "WHERE c.oid = to_regclass($1::text) AND a.grantee <> c.relowner"
)


def _grants(session: Session, table: str) -> list[str]:
    """Write the statements that give others what they may do with a table or view."""
    return [f"GRANT {row['what']} ON {table} TO {row['who']}" for row in session.rows(_GRANTED, table)]


def find(session: Session, name: str) -> tuple[str, dict[str, Any]] | None:
    """Find a store's name and description; without a name, those of the only one. None if there is none.

    Raises `StoreError` naming the stores where there are several and no name.
    """
    if session.rows("SELECT to_regclass('tiltframe') IS NULL AS missing")[0]["missing"]:
        return None
    if name:
        rows = session.rows("SELECT name, description FROM tiltframe WHERE name = $1", name)
    else:
        rows = session.rows("SELECT name, description FROM tiltframe ORDER BY name")
    if len(rows) > 1:
        raise StoreError(f"the database holds several stores, say which: {', '.join(row['name'] for row in rows)}")
    if not rows:
        return None
    try:
        manifest = json.loads(rows[0]["description"])
        if not isinstance(manifest, dict):
            raise ValueError("it is no object")
    except ValueError as error:
        raise StoreError(f"the store {rows[0]['name']} is damaged: its description cannot be read: {error}") from None
    return rows[0]["name"], manifest


def register(session: Session, name: str, manifest: Mapping[str, Any]) -> None:
    """Note the description of a new store."""
    session.run(
        "INSERT INTO tiltframe (name, format, description) VALUES ($1, $2, $3)",
        name,
        int(manifest.get("format", 1)),
        json.dumps(manifest),
    )


def make_registry(session: Session) -> None:
    """Make the registry, where there is none."""
    if session.rows("SELECT to_regclass('tiltframe') IS NULL AS missing")[0]["missing"]:
        session.run(_REGISTRY)
