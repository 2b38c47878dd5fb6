"""The tables of a store in PostgreSQL: what they are called, what they are made of, and how they are made.

tiltframe               name, format, description            one row a store
<name>_<level>          window, keys, states as flat columns, writer, commit, and the part that a row is of
<name>_parts            which parts of which level are readable
<name>_covers           the last commit of each writer, for each level
<name>_<level>_current  a view of results, for tools that only speak SQL
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tiltframe.frame import END, START, TiltFrame
from tiltframe.store.current_view import current_view
from tiltframe.store.flat import flat_schema, sql_type
from tiltframe.store.pg_session import Session, listed, quoted
from tiltframe.store.stored import stored_schema
from tiltframe.store.tables import COMMIT, WRITER, StoreError

PART, WRITTEN = "_part", "_written"
_OLDEST = 150_000  # NULLS NOT DISTINCT
_REGISTRY = "CREATE TABLE tiltframe (name text PRIMARY KEY, format integer NOT NULL, description text NOT NULL)"


@dataclass(frozen=True)
class Layout:
    """How a store is laid out in tables, as its description says."""

    name: str
    levels: tuple[str, ...]
    frame: TiltFrame
    schema: pa.Schema  # of window_start, keys and states, as the caller knows them

    @classmethod
    def of(cls, name: str, description: Mapping[str, Any], schema: pa.Schema | None = None) -> Layout:
        """Read a description; raises `StoreError` for a damaged one."""
        try:
            if schema is None:
                schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(description["schema"])))
            return cls(name, tuple(description["levels"]), TiltFrame.from_dict(description["frame"]), schema)
        except (KeyError, TypeError, ValueError, pa.ArrowException) as error:
            raise StoreError(f"the store {name} is damaged: its description cannot be read: {error}") from None

    @property
    def columns(self) -> pa.Schema:
        """The flat columns, window_start first."""
        return flat_schema(stored_schema(self.schema))

    @property
    def unique(self) -> list[str]:
        """The columns that tell rows apart."""
        return [START, *flat_schema(pa.schema([self.schema.field(k) for k in self.frame.keys])).names, WRITER, COMMIT]

    @property
    def parts(self) -> str:
        """The table of parts, quoted."""
        return quoted(f"{self.name}_parts")

    @property
    def covers(self) -> str:
        """The table of covers, quoted."""
        return quoted(f"{self.name}_covers")

    def table(self, level: str) -> str:
        """Return the table of a level, quoted; raises `StoreError` for one that the store does not have."""
        if level not in self.levels:
            raise StoreError(f"the store {self.name} has no level {level!r}; it has {', '.join(self.levels)}")
        return quoted(f"{self.name}_{level}")

    def create(self, session: Session) -> None:
        """Make the tables and the views."""
        version = session.rows("SELECT current_setting('server_version_num')::integer AS version")[0]["version"]
        if version < _OLDEST:
            raise StoreError(f"a store needs PostgreSQL 15 or newer; this is {version // 10_000}")
        for taken in (END, WRITER, COMMIT, PART, WRITTEN):
            if taken in self.columns.names:
                raise StoreError(f"in PostgreSQL no key can be called {taken!r}: every table has such a column")
        session.run(
            f"CREATE TABLE {self.parts} (part bigint PRIMARY KEY, level text NOT NULL, writer text NOT NULL, "
            '"commit" bigint NOT NULL, least bigint NOT NULL, greatest bigint NOT NULL, rows bigint NOT NULL)'
        )
        session.run(
            f"CREATE TABLE {self.covers} (level text NOT NULL, writer text NOT NULL, number bigint NOT NULL, "
            "PRIMARY KEY (level, writer))"
        )
        for level in self.levels:
            session.run(self._level(level))
            session.run(current_view(self.frame, self.schema, self.table(level), self.parts, f"{self.name}_{level}"))

    def _level(self, level: str) -> str:
        types = {field.name: sql_type(field.type, field.name) for field in self.columns}
        states = [f"{quoted(name)} {kind}" for name, kind in types.items() if name != START]
        return (
            f"CREATE TABLE {self.table(level)} ({START} timestamptz NOT NULL, {END} timestamptz NOT NULL, "
            f'{"".join(f"{s}, " for s in states)}{WRITER} text COLLATE "C" NOT NULL, "{COMMIT}" bigint NOT NULL, '
            f"{PART} bigint NOT NULL, {WRITTEN} timestamptz NOT NULL DEFAULT now(), "
            f"UNIQUE NULLS NOT DISTINCT ({listed(self.unique)}))"
        )


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
        description = json.loads(rows[0]["description"])
        if not isinstance(description, dict):
            raise ValueError("it is no object")
    except ValueError as error:
        raise StoreError(f"the store {rows[0]['name']} is damaged: its description cannot be read: {error}") from None
    return rows[0]["name"], description


def register(session: Session, name: str, description: Mapping[str, Any]) -> None:
    """Note the description of a new store."""
    session.run(
        "INSERT INTO tiltframe (name, format, description) VALUES ($1, $2, $3)",
        name,
        int(description.get("format", 1)),
        json.dumps(description),
    )


def make_registry(session: Session) -> None:
    """Make the registry, where there is none."""
    if session.rows("SELECT to_regclass('tiltframe') IS NULL AS missing")[0]["missing"]:
        session.run(_REGISTRY)
