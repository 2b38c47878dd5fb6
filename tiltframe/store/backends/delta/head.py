"""The head: a file next to the log of a store in a folder, with the last version of the log and digests of its files.
A commit is acknowledged after the head was written.

    _head    {"version": 12, "digests": {"00000000000000000012.json": "5e88…", …}}

If a log ends before the version in its head, the log has lost entries. If the digest of an entry or of the checkpoint
differs from the digest in the head, this file of the log is damaged. The version in the head may be lower than the
version of the log: a writer may have been killed before it wrote the head, or a writer may have replaced a later head
of another writer. Damage of the entries after the version in the head is then not detected. Stores in object stores
have no head, because object stores do not lose objects that they have acknowledged.
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
from functools import lru_cache
from pathlib import Path

from tiltframe.regular_files import kind_unless_file, kind_unless_folder

LOG = "_delta_log"
# The name of the file with the head. VACUUM does not delete this file, because the name begins with an underscore.
_NAME = "_head"
# The endings of the names of all files that readers of a Delta log read.
_LOG_FILE_ENDINGS = (".json", ".parquet", "_last_checkpoint")


@dataclass(frozen=True)
class Head:
    """The content of a head, the file ``_head`` next to the log of a store. ``version`` is the version of the last
    entry of the log. ``digests`` contains the digests of the last checkpoint and of all entries after it, as file name
    → digest.
    """

    version: int
    digests: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, table: str) -> Head | None:
        """Return the head of a table, or None if there is no head; raise ``ValueError`` if it is damaged."""
        path = f"{table}/{_NAME}"
        if problem := kind_unless_file(path):
            raise ValueError(f"{path} is {problem}, not a regular file; restore it from a backup")
        try:
            info = os.stat(path)
            return _read_head(path, (info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns))
        except FileNotFoundError:
            return None

    def damaged_files(self, table: str, verified: dict[str, str]) -> Iterator[str]:
        """Yield the names of the files of a log whose digests differ from those in the head. ``verified`` contains the
        files that earlier calls have read, as name → digest. These files are not read again. The files that this call
        reads are added to ``verified``.
        """
        for name, checksum in self.digests.items():
            if verified.get(name) == checksum:
                continue
            path = Path(table, LOG, name)
            # A file that does not exist is not reported, because Delta Lake deletes entries of the log whose content is
            # in a checkpoint.
            if not path.exists():
                continue
            if _digest(path) == checksum:
                verified[name] = checksum
            else:
                yield name


@lru_cache(maxsize=16)
def _read_head(path: str, file_version: tuple[int, ...]) -> Head:
    """Read a head. Heads are kept in memory, because every query reads one. ``file_version`` differs whenever the file
    was written again.
    """
    try:
        return Head(**json.loads(Path(path).read_bytes()))
    except (TypeError, ValueError):
        raise ValueError(f"the file {path} has changed since it was written; restore it from a backup") from None


def write_head(table: str, version: int) -> None:
    """Write a head with the version ``version`` of a table's log and the digests of the log's files. If the existing
    head has this version or a later one, it is not changed.
    """
    old_head = Head.read(table) or Head(version - 1)
    if old_head.version >= version:
        return
    names = [f"{at:020d}.json" for at in range(old_head.version + 1, version + 1)]
    checkpoint = f"{version:020d}.checkpoint.parquet"
    digests = old_head.digests
    if Path(table, LOG, checkpoint).exists():
        digests = {}
        names = [checkpoint, names[-1]]
    paths = [path for path in (Path(table, LOG, name) for name in names) if path.exists()]
    digests = {**digests, **{path.name: _digest(path) for path in paths}}
    temporary = Path(table, f"{_NAME}.{uuid.uuid4().hex}")
    try:
        temporary.write_text(json.dumps(asdict(Head(version, digests))))
        os.replace(temporary, Path(table, _NAME))
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def remove_unfinished_heads(table: str, older_than: float) -> None:
    """Remove temporary files that are at least ``older_than`` seconds old. `write_head` leaves such a file if its
    process is killed.
    """
    for path in Path(table).glob(f"{_NAME}.*"):
        with suppress(FileNotFoundError):
            if path.stat().st_mtime <= time.time() - older_than:
                path.unlink()


def log_problem(table: str, version: int | None = None) -> str | None:
    """Return a message if a file of a log is not a regular file. Return None if all files are regular. A pipe, for
    example, is not regular, and Delta Lake would wait for ever when it reads one.

    ``version`` is the last version that was read. If ``version`` is passed, only the entry of the next version is
    checked.
    """
    if version is not None:
        path = _entry(table, version + 1)
        problem = kind_unless_file(path) if os.path.lexists(path) else None
        return problem and f"{path} is {problem}, not a regular file; restore it from a backup"
    for folder in (table, f"{table}/{LOG}"):
        if problem := kind_unless_folder(folder):
            return f"{folder} is {problem}, not a folder; restore it from a backup"
    if os.path.isdir(f"{table}/{LOG}"):
        with os.scandir(f"{table}/{LOG}") as entries:
            for entry in entries:
                if entry.name.endswith(_LOG_FILE_ENDINGS) and (problem := kind_unless_file(entry.path)):
                    return f"{entry.path} is {problem}, not a regular file; restore it from a backup"
    return None


def has_version(table: str, version: int) -> bool:
    """Return whether the log of a table has an entry for ``version``. Only the name of the entry is checked."""
    return os.path.lexists(_entry(table, version))


def entry_id(table: str, version: int) -> tuple[int, ...] | None:
    """Return numbers that identify the file of the entry for ``version`` in the log of a table, or None if the file
    does not exist. If a table is deleted and another one is created in the same folder, the numbers differ.
    """
    try:
        info = os.stat(_entry(table, version))
    except OSError:
        return None
    return info.st_ino, info.st_size, info.st_mtime_ns


def _entry(table: str, version: int) -> str:
    return f"{table}/{LOG}/{version:020d}.json"


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:32]
