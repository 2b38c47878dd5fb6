"""The tables of a store in PostgreSQL: their names, columns and creation.

tiltframe               name, format, description, version   one row per store
<name>_states           level, window, keys, states as flat columns, the row's part
<name>_parts            the parts; an unreadable part has the time at which it was written or replaced
<name>_recorded         the records: names with texts
<name>_<level>_flat     results as plain columns, as of the last compaction or export
<name>_flat             the parts from which the plain columns were computed
<name>_<level>_current  a view of results, for programs that can only use SQL
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import pyarrow as pa

from tiltframe import TiltFrame
from tiltframe.store.backends import END, FORMAT, LEVEL, START, DamagedStore, StoreError, schemas_in, stored_schema
from tiltframe.store.backends.postgres import result_tables
from tiltframe.store.backends.postgres.limits import PART, check_columns
from tiltframe.store.backends.postgres.literals import quoted
from tiltframe.store.backends.postgres.session import Session
from tiltframe.store.backends.postgres.sql_view import sql_view
from tiltframe.store.backends.postgres.state_columns import flat_schema, sql_type

# The oldest version of PostgreSQL that is tested, 15, in the form of its setting server_version_num.
_MIN_SERVER_VERSION = 150_000
_REGISTRY = (
    "CREATE TABLE tiltframe (name text PRIMARY KEY, format integer NOT NULL, description text NOT NULL, "
    "version bigint NOT NULL)"
)


@dataclass(frozen=True)
class Layout:
    """The names and columns of a store's tables, derived from its manifest."""

    name: str
    levels: tuple[str, ...]
    frame: TiltFrame
    # The fields window_start, the keys and the columns of states, in the types of the frame.
    schema: pa.Schema
    # Whether the frame has changed. If it has, rows may lack the states of added measures.
    is_evolved: bool = False

    @classmethod
    def from_manifest(cls, name: str, manifest: Mapping[str, Any], schema: pa.Schema | None = None) -> Layout:
        """Return the layout for a manifest; raise `DamagedStore` if the manifest is damaged."""
        try:
            if schema is None:
                schema = pa.schema([field for schema_part in schemas_in(manifest) for field in schema_part])
            frame = TiltFrame.from_dict(manifest["frame"])
            return cls(
                name, tuple(manifest["levels"]), frame=frame, schema=schema, is_evolved=bool(manifest.get("generation"))
            )
        except (KeyError, TypeError, ValueError, pa.ArrowException) as error:
            raise _damaged_manifest(name, error) from None

    @property
    def columns(self) -> pa.Schema:
        """The columns of the table of states: window_start, the keys, and one column for each field of a state."""
        return flat_schema(stored_schema(self.schema))

    def table(self, suffix: str) -> str:
        """Return the quoted name of a table or view of the store that ends in ``suffix``: ``states``, ``parts``,
        ``recorded``, ``flat`` or, for example, ``1h_current``.
        """
        return quoted(f"{self.name}_{suffix}")

    def flat(self, level: str) -> str:
        """Return the quoted name of the plain table of a level, which has the results of the level as columns."""
        if level not in self.levels:
            raise StoreError(f"the store {self.name} has no level {level!r}; it has {', '.join(self.levels)}")
        return self.table(f"{level}_flat")

    def create(self, session: Session) -> None:
        """Create the tables and the views of a new store."""
        version = session.rows("SELECT current_setting('server_version_num')::integer AS version")[0]["version"]
        if version < _MIN_SERVER_VERSION:
            raise StoreError(f"a store needs PostgreSQL 15 or newer; this server has version {version // 10_000}")
        check_columns(pa.schema(list(self.columns)[1:]))
        states = "".join(f"{name} {dtype}, " for name, dtype in self._types())
        session.run(
            f'CREATE TABLE {self.table("states")} ({LEVEL} text COLLATE "C" NOT NULL, {START} timestamptz NOT NULL, '
            f"{END} timestamptz NOT NULL, {states}{PART} bigint NOT NULL)"
        )
        session.run(f"CREATE INDEX ON {self.table('states')} ({LEVEL}, {START})")
        session.run(
            f"CREATE TABLE {self.table('parts')} (part bigint PRIMARY KEY, level text NOT NULL, "
            "first_start bigint NOT NULL, last_start bigint NOT NULL, rows bigint NOT NULL, bytes bigint NOT NULL, "
            "unread_since timestamptz)"
        )
        session.run(
            f"CREATE TABLE {self.table('recorded')} (digest bytea PRIMARY KEY, name text NOT NULL, text text NOT NULL)"
        )
        self.create_result_tables(session)

    def alter(self, session: Session, before: Layout) -> None:
        """Change the tables of the layout ``before`` to this layout: add columns of states, and create the views and
        the plain tables again.
        """
        check_columns(pa.schema(list(self.columns)[1:]))
        old_names = before.columns.names
        new = [f"ADD COLUMN {n} {t}" for n, t in self._types() if n not in {quoted(name) for name in old_names}]
        if new:
            session.run(f"ALTER TABLE {self.table('states')} {', '.join(new)}")
        self.create_result_tables(session)

    def create_result_tables(self, session: Session) -> None:
        """Create the views of results. Also create the plain tables (``<name>_<level>_flat``), without rows, from which
        the views read some columns.

        Existing plain tables are dropped. The permissions on the plain tables and on the views are preserved.
        """
        names = [name for level in self.levels for name in (self.flat(level), self.table(f"{level}_current"))]
        grants = [statement for name in names for statement in _grants(session, name)]
        for level in self.levels:
            session.run(f"DROP VIEW IF EXISTS {self.table(f'{level}_current')}")
            session.run(f"DROP TABLE IF EXISTS {self.flat(level)}")
        session.run(f"DROP TABLE IF EXISTS {self.table('flat')}")
        session.run(result_tables.create_parts_sql(self.table("flat")))
        for level in self.levels:
            session.run(result_tables.create_table_sql(self.frame, self.schema, self.flat(level)))
            for statement in sql_view(
                self.frame, self.schema, table=self.table, level=level, is_evolved=self.is_evolved
            ):
                session.run(statement)
        for statement in grants:
            session.run(statement)

    def has_results(self, session: Session) -> bool:
        """Return whether the plain tables of results exist. Stores of earlier releases do not have such tables."""
        return not session.rows("SELECT to_regclass($1::text) IS NULL AS missing", self.table("flat"))[0]["missing"]

    def _types(self) -> list[tuple[str, str]]:
        return [(quoted(f.name), sql_type(f.type, f.name)) for f in self.columns if f.name != START]


_GRANTS_SQL = (
    "SELECT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END AS role, "
    "a.privilege_type AS what FROM pg_class AS c, aclexplode(c.relacl) AS a "
    "WHERE c.oid = to_regclass($1::text) AND a.grantee <> c.relowner"
)


def _grants(session: Session, table: str) -> list[str]:
    return [f"GRANT {row['what']} ON {table} TO {row['role']}" for row in session.rows(_GRANTS_SQL, table)]


class StoredLayout(NamedTuple):
    """A store in the database, with its layout."""

    name: str
    manifest: dict[str, Any]
    version: int
    layout: Layout


def find_store(session: Session, name: str, lock: bool = False) -> StoredLayout | None:
    """Return the store with the name ``name``, or the only store if ``name`` is empty. Return None if there is no such
    store. With ``lock``, the store is locked until the transaction ends.

    Raise `StoreError` if ``name`` is empty and the database contains several stores. The message has their names.
    """
    if session.rows("SELECT to_regclass('tiltframe') IS NULL AS missing")[0]["missing"]:
        return None
    stores = session.rows("SELECT name, format FROM tiltframe WHERE $1 IN (name, '') ORDER BY name", name)
    if len(stores) > 1:
        raise StoreError(
            f"the database contains several stores; name one of them: {', '.join(row['name'] for row in stores)}"
        )
    if not stores:
        return None
    name = stores[0]["name"]
    if stores[0]["format"] != FORMAT:
        raise StoreError(
            f"the store {name} has format {stores[0]['format']}, and this release can read format {FORMAT}; upgrade "
            f"tiltframe, or roll up the rows again into a new store"
        )
    for_update = " FOR UPDATE" if lock else ""
    row = session.rows(f"SELECT description, version FROM tiltframe WHERE name = $1{for_update}", name)[0]
    try:
        manifest = json.loads(row["description"])
        if not isinstance(manifest, dict):
            raise ValueError("the manifest is not a JSON object")
    except ValueError as error:
        raise _damaged_manifest(name, error) from None
    return StoredLayout(name, manifest, row["version"], layout_of(name, row["description"]))


def _damaged_manifest(name: str, error: Exception) -> DamagedStore:
    """Return the error for a store whose manifest cannot be read because of ``error``."""
    return DamagedStore(
        f"the store {name} is damaged: its manifest, in the column description of the table tiltframe, cannot be read: "
        f"{error}; restore this table from a backup"
    )


@lru_cache(maxsize=16)
def layout_of(name: str, description: str) -> Layout:
    """Return the layout of a store from ``description``, its manifest as JSON. Raise `DamagedStore` if the manifest is
    damaged.
    """
    return Layout.from_manifest(name, json.loads(description))


def register_store(session: Session, name: str, manifest: Mapping[str, Any]) -> None:
    """Write the manifest of a new store to the registry, the table of all stores."""
    session.run(
        "INSERT INTO tiltframe (name, format, description, version) VALUES ($1, $2, $3, 0)",
        name,
        int(manifest.get("format", 1)),
        json.dumps(manifest),
    )


def make_registry(session: Session) -> None:
    """Create the registry, the table of all stores, if it does not exist."""
    if session.rows("SELECT to_regclass('tiltframe') IS NULL AS missing")[0]["missing"]:
        session.run(_REGISTRY)
