"""The head: how far the log of a store in a folder goes, noted next to it by every commit before it is acknowledged.

    _head    {"version": 12, "digests": {"00000000000000000012.json": "5e88…", …}}

A log that ends before its head has lost entries, and one whose entries or checkpoint have other bytes is damaged. A
writer that is killed before it has written the head leaves one that is too low, which does no harm; so does one of two
writers that overwrites a later head with its own. Object stores do not lose what they have acknowledged, and have none.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tiltframe.regular_files import not_a_file, not_a_folder

LOG = "_delta_log"
_NAME = "_head"  # what begins so is left alone by VACUUM
_READ = (".json", ".parquet", "_last_checkpoint")  # what Delta reads of a log


@dataclass(frozen=True)
class Head:
    """The version of the last entry, and digests of the last checkpoint and of the entries from there on."""

    version: int
    digests: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, table: str) -> Head | None:
        """Read the head of a table, None if it has none; raises ``ValueError`` for a damaged one."""
        path = Path(table, _NAME)
        if problem := not_a_file(str(path)):
            raise ValueError(f"it is {problem}, not a file")
        try:
            return cls(**json.loads(path.read_bytes()))
        except FileNotFoundError:
            return None
        except (TypeError, ValueError):
            raise ValueError("it is not as it was written") from None

    def damaged(self, table: str, verified: dict[str, str]) -> Iterator[str]:
        """Name the files of a log that have other bytes than were noted, among those that were not verified before."""
        for name, checksum in self.digests.items():
            if verified.get(name) == checksum:
                continue
            path = Path(table, LOG, name)
            if path.exists():  # a checkpoint stands for those that are gone
                if _digest(path) != checksum:
                    yield name
                verified[name] = checksum


def note_head(table: str, version: int) -> None:
    """Note that the log of a table goes to a version, unless a later one is noted."""
    before = Head.read(table) or Head(version - 1)
    if before.version >= version:
        return
    names = [f"{at:020d}.json" for at in range(before.version + 1, version + 1)]
    checkpoint = f"{version:020d}.checkpoint.parquet"
    digests = before.digests
    if Path(table, LOG, checkpoint).exists():
        digests, names = {}, [checkpoint, names[-1]]
    paths = [path for path in (Path(table, LOG, name) for name in names) if path.exists()]
    digests = {**digests, **{path.name: _digest(path) for path in paths}}
    fresh = Path(table, f"{_NAME}.{uuid.uuid4().hex}")
    try:
        fresh.write_text(json.dumps(asdict(Head(version, digests))))
        os.replace(fresh, Path(table, _NAME))
    except OSError:
        fresh.unlink(missing_ok=True)
        raise


def remove_unfinished_heads(table: str, older_than: float) -> None:
    """Remove heads that a killed writer has not put in their place, if they are ``older_than`` seconds old."""
    for path in Path(table).glob(f"{_NAME}.*"):
        with suppress(FileNotFoundError):
            if path.stat().st_mtime <= time.time() - older_than:
                path.unlink()


def log_problem(table: str, version: int | None = None) -> str | None:
    """Name an entry of a log that is of another kind, for which Delta would wait for ever.

    Of an open log, only the next entry is looked at.
    """
    if version is not None:
        path = _entry(table, version + 1)
        problem = not_a_file(path) if os.path.lexists(path) else None
        return problem and f"{path} is {problem}, not a file"
    for folder in (table, f"{table}/{LOG}"):
        if problem := not_a_folder(folder):
            return f"{folder} is {problem}, not a folder"
    if os.path.isdir(f"{table}/{LOG}"):
        with os.scandir(f"{table}/{LOG}") as entries:
            for entry in entries:
                if entry.name.endswith(_READ) and (problem := not_a_file(entry.path)):
                    return f"{entry.path} is {problem}, not a file"
    return None


def is_last(table: str, version: int) -> bool:
    """Say whether a version is in the log of a table and none follows it, without reading the log."""
    return os.path.lexists(_entry(table, version)) and not os.path.lexists(_entry(table, version + 1))


def _entry(table: str, version: int) -> str:
    return f"{table}/{LOG}/{version:020d}.json"


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:32]
