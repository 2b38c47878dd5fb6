"""A backend in memory: the shortest implementation of the protocol, for tests and examples."""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar
from weakref import WeakValueDictionary

import pyarrow as pa

from tiltframe.instants import instants_of
from tiltframe.names import START
from tiltframe.ranges import Range, inside
from tiltframe.store.backends.buckets import split_by_bucket
from tiltframe.store.backends.protocol import Part, Record, Snapshot, Transaction, Vacuumed
from tiltframe.store.log.errors import Conflict, MissingStore
from windows import TimeWindow


@dataclass
class _StoreContents:
    """The contents of a store in memory. All backends with the same name share one such object."""

    version: int = 0
    manifest: str = ""
    schema: pa.Schema | None = None
    parts: dict[str, Part] = field(default_factory=dict)  # the parts that are readable, by name
    records: dict[str, Record] = field(default_factory=dict)
    # The rows of each part, as name → rows. Parts that are not readable are included.
    rows: dict[str, pa.Table] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)


_STORES: WeakValueDictionary[str, _StoreContents] = WeakValueDictionary()


@dataclass(frozen=True)
class MemoryBackend:
    """Tables in the memory of this process. Only the name of a backend is pickled, so a copy in another process does
    not see the contents.

    Parameters
    ----------
    name : str, optional
        The name of the store; backends with the same name have the same contents. By default a new name.
    retains : bool
        Whether older snapshots can read removed rows until `vacuum`, as with files of Delta Lake. If False, reading
        removed rows raises `Conflict`.

    Examples
    --------
    >>> import aggr, pyarrow as pa
    >>> from tiltframe import FrameStore, TiltFrame, rollup
    >>> frame = TiltFrame(["1m", "1h"], "ts", {"n": aggr.count()})
    >>> store = FrameStore(MemoryBackend(), frame)
    >>> store.append(rollup(pa.table({"ts": [0, 1]}), frame), writer="docs", commit=1)
    True
    >>> store.query("1h").column("n").to_pylist()
    [2]
    """

    works_in_threads: ClassVar[bool] = True
    name: str = field(default_factory=lambda: secrets.token_hex(8))
    retains: bool = True
    tables: _StoreContents = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tables", _STORES.setdefault(self.name, _StoreContents()))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.name, self.retains)

    @classmethod
    def at(cls, uri: str, name: str, options: Mapping[str, str], durable: bool) -> MemoryBackend:
        """Return the backend of a URI, which is ``memory://`` followed by the name."""
        return cls(uri.removeprefix("memory://"))

    @property
    def uri(self) -> str:
        """The URI, which is ``memory://`` followed by the name."""
        return f"memory://{self.name}"

    @property
    def display_uri(self) -> str:
        """The URI for messages, which is the same as ``uri``."""
        return self.uri

    def store_named(self, name: str) -> MemoryBackend:
        """Return the backend unchanged, because it has only one store."""
        return self

    def create(self, manifest: Mapping[str, Any], schema: pa.Schema) -> None:
        """Store the manifest and the schema, unless the store already exists."""
        with self.tables.lock:
            if not self.tables.manifest:
                self.tables.manifest = json.dumps(manifest)
                self.tables.schema = schema

    def check_values(self, states: pa.Table) -> None:
        """Do nothing: memory can store all values of Arrow."""

    def snapshot(self, recorded: Iterable[str] | None = ()) -> Snapshot | None:
        """Return a copy of the current contents, or None if there is no store."""
        with self.tables.lock:
            return self._current_snapshot(recorded) if self.tables.manifest else None

    def _current_snapshot(self, recorded: Iterable[str] | None) -> Snapshot:
        contents = self.tables
        names = contents.records if recorded is None else recorded
        records = {name: contents.records[name] for name in names if name in contents.records}
        return Snapshot(contents.version, json.loads(contents.manifest), tuple(contents.parts.values()), records)

    def write(self, level: TimeWindow, states: pa.Table) -> list[Part]:
        """Store states as new parts, one for each bucket of time."""
        return [self._store_part(level, rows) for _, rows in split_by_bucket(states, level)]

    def _store_part(self, level: TimeWindow, rows: pa.Table) -> Part:
        starts = instants_of(rows)
        name = secrets.token_hex(8)
        self.tables.rows[name] = rows
        return Part(
            level.name, int(starts.min()), last_start=int(starts.max()), rows=len(starts), bytes=rows.nbytes, name=name
        )

    def discard(self, parts: Sequence[Part]) -> None:
        """Delete the rows of parts."""
        for part in parts:
            self.tables.rows.pop(part.name, None)

    def commit(self, transaction: Transaction) -> int:
        """Check the transaction for conflicts, apply its changes, and return the new version. Other commits wait for a
        lock until this commit ends.
        """
        contents = self.tables
        with contents.lock:
            if reason := transaction.conflict(self._current_snapshot(transaction.record_names)):
                raise Conflict(reason)
            contents.version += 1
            for part in transaction.removed:
                del contents.parts[part.name]
                if not self.retains:
                    del contents.rows[part.name]
            contents.parts.update({part.name: part for part in transaction.added})
            records = {name: Record(contents.version, text) for name, text in transaction.recorded.items()}
            contents.records.update(records)
            if transaction.manifest is not None:
                contents.manifest = json.dumps(transaction.manifest)
                contents.schema = transaction.schema
            return contents.version

    def read(self, parts: Sequence[tuple[Part, Range]], columns: Sequence[str], where: str | None = None) -> pa.Table:
        """Return, for each pair of a part and a range, the rows of the part whose windows start in the range. The
        condition ``where`` is ignored.
        """
        if self.tables.schema is None:
            raise MissingStore(
                f"there is no store {self.display_uri}; correct its address, or create it with a first commit"
            )
        schema = pa.schema([self.tables.schema.field(name) for name in dict.fromkeys([START, *columns])])
        tables = [schema.empty_table()]
        for part, span in parts:
            rows = self.tables.rows.get(part.name)
            if rows is None:
                raise Conflict(
                    f"a part of the level {part.level} was removed by another commit, and can no longer be read"
                )
            rows = rows.filter(pa.array(inside(instants_of(rows), [span])))
            tables.append(rows.select([name for name in schema.names if name in rows.column_names]))
        return pa.concat_tables(tables, promote_options="default").select(schema.names)

    def vacuum(self, older_than: float) -> Vacuumed:
        """Remove the rows of all parts that are not in the current list of parts. Return the number of removed parts.

        ``older_than`` is ignored: parts are removed whatever their age.
        """
        with self.tables.lock:
            unreadable = self.tables.rows.keys() - self.tables.parts.keys()
            for name in unreadable:
                del self.tables.rows[name]
        return Vacuumed(len(unreadable))

    def verify(self) -> list[str]:
        """Return a message for each part whose rows are missing."""
        parts = self.tables.parts.values()
        return [f"the rows of a part of {p.level} are lost" for p in parts if p.name not in self.tables.rows]
