"""The store: a folder of Parquet that describes its own frame, and never reads as whole when it is not.

    store/
      tiltframe.json            the frame, the types of its states, the commits; replaced at once, by renaming
      commit-3f2a…/1h.parquet   one file of states per level, written before the commit is named
      commit-3f2a…/1d.parquet

Append-only: a commit adds states, also to windows that are already there, and reading merges. What a crash leaves
behind is in no commit, so nobody reads it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from aggr.where import columns_of, rows_where
from tiltframe.frame import LEVEL, START, TiltFrame
from tiltframe.manifest import MANIFEST, StoreError, read_manifest, read_schema, sync_folder, write_manifest
from tiltframe.rollup import finish, labelled, merge_level


@dataclass(frozen=True)
class Store:
    """A folder of states.

    Parameters
    ----------
    path : folder
    frame : TiltFrame
        As the store describes it.

    Examples
    --------
    >>> import aggr, tempfile
    >>> from tiltframe import rollup
    >>> frame = TiltFrame(["1m", "1h"], "ts", {"n": aggr.count()}, ["host"])
    >>> folder = Path(tempfile.mkdtemp()) / "store"
    >>> store = Store.open_or_create(folder, frame)
    >>> store.commit(rollup(pa.table({"ts": [0, 1], "host": ["a", "b"]}), frame), "first")
    True
    >>> Store.open(folder).query("1h", where="host = 'a'").column("n").to_pylist()
    [1]
    """

    path: Path
    frame: TiltFrame

    @classmethod
    def open(cls, path: str | Path) -> Store:
        """Open a store; raises `StoreError` for a folder that is none, or one of a newer release."""
        path = Path(path)
        if not path.exists():
            raise StoreError(f"there is no store {path}")
        try:
            return cls(path, TiltFrame.from_dict(read_manifest(path)["frame"]))
        except (KeyError, TypeError) as error:
            raise StoreError(f"the store {path} is damaged: {MANIFEST} describes no frame: {error}") from None

    @classmethod
    def open_or_create(cls, path: str | Path, frame: TiltFrame) -> Store:
        """Open the store of a frame, or make a new one where the folder is missing or empty.

        Raises `StoreError` for a store of another frame, naming the difference, and for a folder of other things.
        Nothing is written before the first commit.
        """
        path = Path(path)
        if path.exists() and not path.is_dir():
            raise StoreError(f"{path} is a file; a store is a folder")
        if not path.exists() or not any(path.iterdir()):
            return cls(path, frame)
        if not (path / MANIFEST).exists():
            if any(path.glob("commit-*")):
                raise StoreError(f"the store {path} is damaged: it has commits, and no {MANIFEST} that names them")
            if any(p.name != ".lock" and not p.name.startswith(f".{MANIFEST}.") for p in path.iterdir()):
                raise StoreError(f"the folder {path} is not empty and no store; give a new or an empty folder")
            return cls(path, frame)
        store = cls.open(path)
        if not store.commits:
            return cls(path, frame)
        store.check_frame(frame)
        return store

    def check_frame(self, frame: TiltFrame) -> None:
        """Raise `StoreError`, naming the difference, unless the store is of this frame."""
        difference = frame.difference(self.frame)
        if difference:
            raise StoreError(f"the store {self.path} is of another frame: {difference}; give another folder")

    def check_types(self, states: pa.Schema) -> None:
        """Raise `StoreError` unless states of this schema can be merged with those in the store."""
        kept = self.schema
        for field in kept or ():
            given = states.field(field.name).type
            if given != field.type:
                raise StoreError(
                    f"the store {self.path} keeps {_kind(field.type)} in {field.name!r}, and this is {_kind(given)}; "
                    "convert the data to the store's type, or give another folder"
                )

    @property
    def commits(self) -> dict[str, dict[str, Any]]:
        """The commits by their number, each with its folder, rows by level, and what it was made from."""
        commits: dict[str, dict[str, Any]] = read_manifest(self.path)["commits"] if self.exists else {}
        return commits

    @property
    def schema(self) -> pa.Schema | None:
        """The schema of the states, once there are any."""
        return read_schema(read_manifest(self.path)) if self.exists else None

    @property
    def exists(self) -> bool:
        """Whether anything has been committed."""
        return (self.path / MANIFEST).exists()

    def commit(self, states: pa.Table, number: str, made_from: Sequence[str] = ()) -> bool:
        """Add states of all levels under a commit number, at once or not at all.

        Parameters
        ----------
        states : table
            As `tiltframe.rollup` gives it.
        number : str
            Of the commit: a number that is already in the store changes nothing.
        made_from : names, optional
            Kept beside it, for people.

        Returns
        -------
        bool
            Whether the states were added.
        """
        self.frame.check_states(states.schema)
        with self._writing() as folder:
            if number in self.commits:
                return False
            again = {name for commit in self.commits.values() for name in commit["made_from"]} & set(made_from)
            if again:
                raise StoreError(f"{sorted(again)[0]} was added by someone else meanwhile; nothing was written")
            self.check_types(states.schema)
            rows = _write_levels(folder, states, self.frame)
            entry = {"folder": folder.name, "rows": rows, "made_from": list(made_from)}
            write_manifest(self.path, self.frame, states.schema, {**self.commits, number: entry})
            return True

    def states(self, level: str, within: tuple[int, int] | None = None, where: str | None = None) -> pa.Table:
        """Read the merged states of a level.

        Parameters
        ----------
        level : str
            A size of the frame.
        within : (start, end), optional
            Windows that start in ``[start, end)``, microseconds UTC.
        where : str, optional
            A condition in SQL on the keys.

        Returns
        -------
        table of level, window_start, window_end, keys and states, ordered by window and keys
        """
        window = self.frame.level(level)
        for name in columns_of(where):
            if name not in self.frame.keys:
                keys = ", ".join(self.frame.keys) or "none"
                raise ValueError(f"a condition can name the keys of the frame ({keys}); got {name!r}")
        wanted = [START, *self.frame.keys, *(c.name for c in self.frame.states)]
        commits = self.commits
        if not commits:
            raise StoreError(f"the store {self.path} holds nothing yet")
        states = pa.concat_tables(self._read(commit, window.name, wanted, within) for commit in commits.values())
        if where is not None:
            states = states.filter(pa.array(rows_where(where, states)))
        return labelled(merge_level(states, self.frame, window), self.frame, window)

    def query(self, per: str, within: tuple[int, int] | None = None, where: str | None = None) -> pa.Table:
        """Read the results of a level; arguments as for `states`. A query never changes a state."""
        return finish(self.states(per, within, where), self.frame)

    def _read(self, commit: dict[str, Any], level: str, columns: list[str], within: tuple[int, int] | None) -> pa.Table:
        file = self.path / commit["folder"] / f"{level}.parquet"
        bounds = [pa.scalar(at, pa.timestamp("us", "UTC")) for at in within or ()]
        filters = [(START, ">=", bounds[0]), (START, "<", bounds[1])] if within else None
        try:
            table = pq.read_table(file, columns=columns, filters=filters, page_checksum_verification=True)
        except (pa.ArrowException, OSError) as error:
            reason = "it is missing" if not file.exists() else str(error).splitlines()[0]
            raise StoreError(f"the store {self.path} is damaged: cannot read {file.name}: {reason}") from None
        if within is None and table.num_rows != commit["rows"][level]:
            raise StoreError(f"the store {self.path} is damaged: {file.name} has lost rows")
        return table

    @contextmanager
    def _writing(self) -> Iterator[Path]:
        """Hold the store for one writer, in a new folder that is removed unless a commit names it.

        What is there is read anew under the lock. A store is named before its first commit is written, so that a
        folder of commits without a manifest is known to be damaged.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        with open(self.path / ".lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # freed by the system when the writer ends, however it ends
            folder = self.path / f"commit-{uuid.uuid4().hex[:12]}"
            try:
                if self.commits:
                    Store.open(self.path).check_frame(self.frame)
                else:
                    write_manifest(self.path, self.frame, None, {})
                self._sweep()
                folder.mkdir()
                yield folder
            finally:
                self._sweep()

    def _sweep(self) -> None:
        """Remove what writers that were killed have left, the lock being held."""
        named = {commit["folder"] for commit in self.commits.values()}
        for left in self.path.glob("commit-*"):
            if left.name not in named:
                shutil.rmtree(left, ignore_errors=True)
        for left in self.path.glob(f".{MANIFEST}.*"):
            left.unlink(missing_ok=True)


def fingerprint(file: Path) -> str:
    """Tell a file apart by path, size and time of change, to notice when it comes again."""
    status = file.stat()
    return f"{file.resolve()}:{status.st_size}:{status.st_mtime_ns}"


def number_of(made_from: Sequence[str]) -> str:
    """Number a commit by what it is made from."""
    return hashlib.sha256("\n".join(sorted(made_from)).encode()).hexdigest()[:16]


def _write_levels(folder: Path, states: pa.Table, frame: TiltFrame) -> dict[str, int]:
    """Write one file per level; return their rows."""
    rows = {}
    for level in frame.levels:
        mine = states.filter(pc.equal(states.column(LEVEL), level.name))
        file = folder / f"{level.name}.parquet"
        pq.write_table(mine, file, compression="zstd", write_page_checksum=True)
        with open(file, "rb") as written:
            os.fsync(written.fileno())
        rows[level.name] = mine.num_rows
    sync_folder(folder)
    return rows


def _kind(kind: pa.DataType) -> str:
    """Name the type that a state or a key is about."""
    if not pa.types.is_struct(kind):
        return str(kind)
    about = [kind.field(i).type for i in range(kind.num_fields) if kind.field(i).name in ("unit", "least", "greatest")]
    return f"states of {about[0]}" if about else "states"
