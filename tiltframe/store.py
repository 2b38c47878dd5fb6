"""The store: a folder of Parquet that describes its own frame, and never reads as whole when it is not.

    store/
      tiltframe.json            the frame, and the commits; replaced at once, by renaming
      commit-3f2a…/1h.parquet   one file of states per level, written before the commit is named
      commit-3f2a…/1d.parquet

Append-only: a commit adds states, also to windows that are already there, and reading merges. What a crash leaves
behind is in no commit, so nobody reads it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from aggr.where import columns_of, rows_where
from tiltframe.frame import LEVEL, START, TiltFrame
from tiltframe.rollup import finish, labelled, merge_level

_MANIFEST = "tiltframe.json"
_FORMAT = 1


class StoreError(ValueError):
    """A store is missing, damaged, newer than this release, or of another frame."""


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
    >>> store = Store.open("flights")                                             # doctest: +SKIP
    >>> store.query(per="1mo", where="origin = 'JFK'")                            # doctest: +SKIP
    """

    path: Path
    frame: TiltFrame

    @classmethod
    def open(cls, path: str | Path) -> Store:
        """Open a store; raises `StoreError` for a folder that is none, or one of a newer release."""
        path = Path(path)
        if not path.exists():
            raise StoreError(f"there is no store {path}")
        return cls(path, TiltFrame.from_dict(_read_manifest(path)["frame"]))

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
        if not (path / _MANIFEST).exists() and not _leftovers(path):
            raise StoreError(f"the folder {path} is not empty and no store; give a new or an empty folder")
        store = cls.open(path) if (path / _MANIFEST).exists() else cls(path, frame)
        difference = frame.difference(store.frame)
        if difference:
            raise StoreError(f"the store {path} is of another frame: {difference}; give another folder")
        return store

    @property
    def commits(self) -> dict[str, dict[str, Any]]:
        """The commits by their number, each with its folder, rows by level, and what it was made from."""
        commits: dict[str, dict[str, Any]] = _read_manifest(self.path)["commits"] if self.exists else {}
        return commits

    @property
    def exists(self) -> bool:
        """Whether anything has been committed."""
        return (self.path / _MANIFEST).exists()

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
            return self._publish(number, folder, _write_levels(folder, states, self.frame), made_from)

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
        tables = [self._read(commit["folder"], window.name, wanted, within) for commit in self.commits.values()]
        states = pa.concat_tables(tables)
        if where is not None:
            states = states.filter(pa.array(rows_where(where, states)))
        return labelled(merge_level(states, self.frame, window), self.frame, window)

    def query(self, per: str, within: tuple[int, int] | None = None, where: str | None = None) -> pa.Table:
        """Read the results of a level; arguments as for `states`. A query never changes a state."""
        return finish(self.states(per, within, where), self.frame)

    def _read(self, folder: str, level: str, columns: list[str], within: tuple[int, int] | None) -> pa.Table:
        file = self.path / folder / f"{level}.parquet"
        bounds = [pa.scalar(at, pa.timestamp("us", "UTC")) for at in within or ()]
        filters = [(START, ">=", bounds[0]), (START, "<", bounds[1])] if within else None
        try:
            return pq.read_table(file, columns=columns, filters=filters)
        except (pa.ArrowInvalid, OSError) as error:
            reason = "it is missing" if not file.exists() else str(error).splitlines()[0]
            raise StoreError(
                f"the store {self.path} is damaged: cannot read {folder}/{level}.parquet: {reason}"
            ) from None

    @contextmanager
    def _writing(self) -> Iterator[Path]:
        """Hold the store for one writer, in a new folder that is removed unless it was published."""
        created = not self.path.exists()
        self.path.mkdir(parents=True, exist_ok=True)
        folder = self.path / f"commit-{uuid.uuid4().hex[:12]}"
        try:
            with open(self.path / ".lock", "w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)  # freed by the system when the writer ends, however it ends
                folder.mkdir()
                yield folder
        finally:
            if not any(commit["folder"] == folder.name for commit in self.commits.values()):
                shutil.rmtree(folder, ignore_errors=True)
                if created and not self.exists:
                    shutil.rmtree(self.path, ignore_errors=True)

    def _publish(self, number: str, folder: Path, rows: Mapping[str, int], made_from: Sequence[str]) -> bool:
        commits = self.commits
        if number in commits:
            return False
        entry = {"folder": folder.name, "rows": dict(rows), "made_from": list(made_from)}
        manifest = {"format": _FORMAT, "frame": self.frame.describe(), "commits": {**commits, number: entry}}
        _sync_folder(folder)
        temporary = self.path / f".{_MANIFEST}.{uuid.uuid4().hex[:8]}"
        with open(temporary, "w") as file:
            json.dump(manifest, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self.path / _MANIFEST)
        _sync_folder(self.path)
        return True


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
        pq.write_table(mine, file, compression="zstd")
        with open(file, "rb") as written:
            os.fsync(written.fileno())
        rows[level.name] = mine.num_rows
    return rows


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        manifest: dict[str, Any] = json.loads((path / _MANIFEST).read_text())
        newer = manifest["format"] > _FORMAT
    except FileNotFoundError:
        raise StoreError(f"{path} is no store: it has no {_MANIFEST}") from None
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise StoreError(f"the store {path} is damaged: cannot read {_MANIFEST}: {error}") from None
    if newer:
        raise StoreError(
            f"the store {path} has format {manifest['format']}, newer than this release: upgrade tiltframe"
        )
    return manifest


def _leftovers(path: Path) -> bool:
    """Say whether a folder holds only what a crash before the first commit leaves."""
    return all(p.name == ".lock" or p.name.startswith(("commit-", f".{_MANIFEST}.")) for p in path.iterdir())


def _sync_folder(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
