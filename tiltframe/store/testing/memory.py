"""A backend in memory: the protocol of `tiltframe.store.core.backend` as short as it can be, for tests and examples."""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tiltframe.names import START
from tiltframe.store.core.backend import Conflict, Part, Range, Snapshot, StoreError
from tiltframe.store.core.buckets import bucket_of
from tiltframe.store.core.manifest import Manifest
from tiltframe.store.core.ranges import minus
from tiltframe.store.core.writers import EXPIRED, FRAME
from windows import TimeWindow


@dataclass
class _Tables:
    """What a store in memory holds."""

    manifest: dict[str, Any] | None = None
    schema: pa.Schema | None = None
    parts: dict[str, dict[str, Part]] = field(default_factory=dict)  # level -> name -> readable part
    txn_versions: dict[str, dict[str, int]] = field(default_factory=dict)  # level -> writer -> last number
    rows: dict[str, pa.Table] = field(default_factory=dict)  # name of a part -> rows, readable or not
    lock: threading.RLock = field(default_factory=threading.RLock)


_STORES: WeakValueDictionary[str, _Tables] = WeakValueDictionary()


@dataclass(frozen=True)
class MemoryBackend:
    """Tables in the memory of this process; it pickles by its name, and finds its tables again in this process only.

    Parameters
    ----------
    name : str, optional
        Backends of one name share their tables. A new name unless given.
    retains : bool
        Whether rows that were cut stay readable by older snapshots until `clean`, as files of Delta Lake do. Otherwise
        reading them is a `Conflict`, as in PostgreSQL.

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

    name: str = field(default_factory=lambda: secrets.token_hex(8))
    retains: bool = False
    tables: _Tables = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Find the tables of the name."""
        object.__setattr__(self, "tables", _STORES.setdefault(self.name, _Tables()))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by name."""
        return type(self), (self.name, self.retains)

    @property
    def uri(self) -> str:
        """``memory://`` and the name."""
        return f"memory://{self.name}"

    @property
    def place(self) -> str:
        """The URI."""
        return self.uri

    def named(self, name: str) -> MemoryBackend:
        """Return itself: a backend holds one store."""
        return self

    def describe(self) -> dict[str, Any] | None:
        """Return a copy of the manifest."""
        described: dict[str, Any] | None = json.loads(json.dumps(self.tables.manifest))
        return described

    def create(self, manifest: Mapping[str, Any], schema: pa.Schema) -> None:
        """Keep manifest and schema, unless there are some."""
        with self.tables.lock:
            if self.tables.manifest is None:
                self._describe(manifest, schema)

    def alter(self, manifest: Mapping[str, Any], schema: pa.Schema, seen: Mapping[str, Any]) -> None:
        """Replace manifest and schema, if they are still those that were seen."""
        with self.tables.lock:
            if self.tables.manifest is None:
                raise StoreError(f"there is no store {self.place}")
            if self.tables.manifest != seen:
                raise Conflict("the manifest has been changed meanwhile")
            self._describe(manifest, schema)

    def _describe(self, manifest: Mapping[str, Any], schema: pa.Schema) -> None:
        self.tables.manifest, self.tables.schema = json.loads(json.dumps(manifest)), schema

    def check_values(self, states: pa.Table) -> None:
        """Do nothing: memory holds whatever Arrow does."""

    def view(self, levels: Sequence[str], writers: Iterable[str] = ()) -> list[Snapshot]:
        """Take a snapshot of each level, one after the other."""
        found = [self.level_now(level) for level in levels]
        wanted = {EXPIRED, FRAME, *writers, *(part.writer for snapshot in found for part in snapshot.parts)}
        return [
            replace(snapshot, txn_versions={name: n for name, n in snapshot.txn_versions.items() if name in wanted})
            for snapshot in found
        ]

    def level_now(self, level: str) -> Snapshot:
        """Take a snapshot of one level, with the numbers of all writers.

        Parameters
        ----------
        level : str

        Returns
        -------
        Snapshot
        """
        with self.tables.lock:
            parts = tuple(self.tables.parts.get(level, {}).values())
            return Snapshot(level, parts, dict(self.tables.txn_versions.get(level, {})))

    def write(self, level: str, states: pa.Table, writer: str, commit: int) -> list[Part]:
        """Put rows down under new names, one part for each bucket."""
        buckets = bucket_of(self.window(level)).starts(_starts(states))
        return [
            self._put(level, states.filter(pa.array(buckets == bucket)), writer, commit)
            for bucket in np.unique(buckets)
        ] or [self._put(level, states, writer, commit)]

    def window(self, level: str) -> TimeWindow:
        """Return the window of a level.

        Parameters
        ----------
        level : str

        Returns
        -------
        TimeWindow

        Raises
        ------
        StoreError
            If there is no store.
        """
        described = self.describe()
        if described is None:
            raise StoreError(f"there is no store {self.place}")
        return Manifest.from_dict(described, self.place).frame.level(level)

    def _put(self, level: str, rows: pa.Table, writer: str, commit: int) -> Part:
        starts, name = _starts(rows), secrets.token_hex(8)
        self.tables.rows[name] = rows
        least, greatest = (int(starts.min()), int(starts.max())) if len(starts) else (0, 0)
        return Part(level, writer, commit, least, greatest, len(starts), rows.nbytes, name)

    def discard(self, parts: Sequence[Part]) -> None:
        """Forget the rows of parts."""
        for part in parts:
            self.tables.rows.pop(part.name, None)

    def commit(
        self,
        level: str,
        add: Sequence[Part],
        cut: Sequence[tuple[Part, Range]] = (),
        txn_versions: Mapping[str, int] | None = None,
        seen: Snapshot | None = None,
        notes: Mapping[str, int] | None = None,
    ) -> None:
        """Check everything, then change everything, under one lock."""
        txn_versions, tables = txn_versions or {}, self.tables
        with tables.lock:
            readable, last = tables.parts.setdefault(level, {}), tables.txn_versions.setdefault(level, {})
            if any(part.name not in readable for part, _ in cut):
                raise Conflict(f"{level}: a part that is cut has been cut by another commit")
            if seen and any(last.get(name, -1) != seen.txn_versions.get(name, -1) for name in (FRAME, *txn_versions)):
                raise Conflict(f"{level}: another commit has come from the same writer")
            if any(last.get(name, -1) >= number for name, number in txn_versions.items()):
                raise Conflict(f"{level}: the commit is already there")
            gone: dict[Part, list[Range]] = {}
            for part, span in cut:
                gone.setdefault(part, []).append(span)
            for part, spans in gone.items():
                left = minus([(part.least, part.greatest + 1)], spans)
                rows = _in_ranges(tables.rows[part.name], left)
                del readable[part.name]
                if rows.num_rows:
                    rest = self._put(level, rows, part.writer, part.commit)
                    readable[rest.name] = rest
                if not self.retains:
                    del tables.rows[part.name]
            readable.update({part.name: part for part in add})
            last.update({**txn_versions, **(notes or {})})

    def read(self, parts: Sequence[tuple[Part, Range]], columns: Sequence[str], where: str | None = None) -> pa.Table:
        """Read the rows of parts whose windows start in ranges, whatever the condition."""
        if self.tables.schema is None:
            raise StoreError(f"there is no store {self.place}")
        fields = [self.tables.schema.field(name) for name in dict.fromkeys([START, *columns])]
        found = [pa.schema(fields).empty_table()]
        for part, span in parts:
            rows = self.tables.rows.get(part.name)
            if rows is None:
                raise Conflict(f"{part.level}: a part that is read has been cut by another commit")
            rows = _in_ranges(rows, [span])
            there = [rows.column(f.name) if f.name in rows.column_names else _nulls(rows, f) for f in fields]
            found.append(pa.table(there, schema=pa.schema(fields)))
        return pa.concat_tables(found)

    def clean(self, older_than: float) -> int:
        """Remove all rows that are not readable, whatever their age, and return how many parts they were in."""
        with self.tables.lock:
            readable = {name for parts in self.tables.parts.values() for name in parts}
            gone = self.tables.rows.keys() - readable
            for name in gone:
                del self.tables.rows[name]
        return len(gone)

    def size(self, level: str) -> int:
        """Sum the sizes of a level's parts."""
        return sum(part.bytes for part in self.level_now(level).parts)

    def check(self, levels: Sequence[str]) -> list[str]:
        """Return a sentence for each part whose rows are not there."""
        parts = [part for level in levels for part in self.level_now(level).parts]
        return [f"the rows of a part of {p.level} are lost" for p in parts if p.name not in self.tables.rows]


def _nulls(rows: pa.Table, field: pa.Field) -> pa.Array:
    return pa.nulls(rows.num_rows, field.type)


def _starts(rows: pa.Table) -> NDArray[np.int64]:
    starts: NDArray[np.int64] = rows.column(START).cast(pa.int64()).to_numpy()
    return starts


def _in_ranges(rows: pa.Table, ranges: Sequence[Range]) -> pa.Table:
    starts = _starts(rows)
    inside = np.zeros(len(starts), np.bool_)
    for low, high in ranges:
        inside |= (starts >= low) & (starts < high)
    return rows if inside.all() else rows.filter(pa.array(inside))
