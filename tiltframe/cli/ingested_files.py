"""The record of the files in a store, so that a file counts once under any name.

A file is identified by its bytes. With each commit the store records, next to the states:

    content 4123…     {"held": true, "range": [from, to]}     whether the store has the rows with this digest, or
                                                              others replaced them; their windows, null without rows
    path /data/a.csv  "4123…"                                 the digest of its bytes at its last record
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tiltframe.ranges import Range
from tiltframe.store import CommitConflict, FrameStore


@dataclass(frozen=True)
class KnownFile:
    """A file and its records in a store."""

    file: Path
    content: str  # the digest of its bytes
    record: Mapping[str, Any] | None  # the record of ``content``
    before: str | None  # the digest of other bytes in the last record of the path
    before_record: Mapping[str, Any] | None  # the record of ``before``
    recorded_content: str | None  # the digest in the record of its path
    piped: bool  # whether it is standard input, whose path is not recorded
    stamp: tuple[int, int]  # size and time of last change when the bytes were read

    @property
    def is_path_recorded(self) -> bool:
        """Whether the path needs no new record."""
        return self.piped or self.recorded_content == self.content

    @property
    def is_stored(self) -> bool:
        """Whether the store has its rows."""
        return self.record is not None and bool(self.record["held"])

    @property
    def before_stored(self) -> bool:
        """Whether the store has the rows of the path's earlier bytes."""
        return self.before_record is not None and bool(self.before_record["held"])

    @property
    def before_range(self) -> Range | None:
        """The range of windows of the path's earlier rows; None without such rows."""
        span = None if self.before_record is None else self.before_record["range"]
        return None if span is None else (span[0], span[1])

    @property
    def changed(self) -> bool:
        """Whether the store has other rows of the same path."""
        return not self.is_stored and self.before_stored and self.before_range is not None


def look_up(files: Sequence[Path], store: FrameStore, piped: Path | None = None) -> list[KnownFile]:
    """Return files with the digests of their bytes and their records in a store."""
    stamps = [_stamp(file) for file in files]
    contents = [file_digest(file) for file in files]
    recorded = _recorded(store, [*map(_content, contents), *map(_path, files)])
    recorded_texts = [recorded.get(_path(file)) for file in files]
    before = [None if was == content else was for was, content in zip(recorded_texts, contents, strict=True)]
    recorded |= _recorded(store, [_content(was) for was in before if was is not None])
    records = [recorded.get(_content(content)) for content in contents]
    before_records = [None if was is None else recorded.get(_content(was)) for was in before]
    are_piped = [file == piped for file in files]
    fields = zip(files, contents, records, before, before_records, recorded_texts, are_piped, stamps, strict=True)
    return [KnownFile(*fields_of_file) for fields_of_file in fields]


def to_record(
    filed: Iterable[KnownFile],
    came: Sequence[KnownFile],
    ranges: Mapping[Path, Range],
    sources: Iterable[KnownFile] | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the records to write, and the present records of the same names, which must not change meanwhile.

    ``filed`` are all files whose paths are recorded. ``came`` are the files whose rows are added to the store, and
    ``ranges`` their ranges of windows. If a range is derived from ``sources``, the earlier contents of the paths in
    ``came`` are replaced, unless another source has the same content.
    """
    recorded: dict[str, Any] = {}
    replacing: dict[str, Any] = {}

    def record(name: str, value: Any, before: Any) -> None:
        recorded[name] = value
        if before is not None:
            replacing[name] = before

    for known_file in filed:
        if not known_file.is_path_recorded:
            record(_path(known_file.file), known_file.content, known_file.recorded_content)
    for known_file in came:
        if not known_file.is_stored:
            span = ranges.get(known_file.file) if known_file.record is None else known_file.record["range"]
            record(_content(known_file.content), {"held": True, "range": span and list(span)}, known_file.record)
    staying = None if sources is None else {known_file.content for known_file in sources}
    for known_file in came:
        if (
            staying is not None
            and not known_file.is_stored
            and known_file.before_stored
            and known_file.before not in staying
        ):
            record(
                f"content {known_file.before}",
                {**(known_file.before_record or {}), "held": False},
                known_file.before_record,
            )
    return recorded, replacing


def note(store: FrameStore, recorded: Mapping[str, Any], replacing: Mapping[str, Any]) -> None:
    """Write records next to the states of a store; on a conflict, another writer has already written them."""
    if recorded:
        try:
            store.record(recorded, replacing)
        except CommitConflict:
            return


def unchanged(known_file: KnownFile) -> None:
    """Raise ``ValueError`` if a file has changed since its bytes were read."""
    if _stamp(known_file.file) != known_file.stamp:
        raise ValueError(f"{known_file.file} was written to while it was read; wait until it is whole, and try again")


def file_digest(file: Path) -> str:
    """Return the digest of the bytes of a file."""
    with open(file, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()[:32]


def _recorded(store: FrameStore, names: Iterable[str]) -> dict[str, Any]:
    """Return records of a store by name; names may repeat, because files may be equal or linked."""
    return store.recorded(list(dict.fromkeys(names)))


def _content(content: str) -> str:
    return f"content {content}"


def _path(file: Path) -> str:
    return f"path {file.resolve()}"


def _stamp(file: Path) -> tuple[int, int]:
    status = file.stat()
    return status.st_size, status.st_mtime_ns
