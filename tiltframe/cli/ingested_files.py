"""Records of the files whose rows are in a store. They ensure that the rows of a file count once, even if the file is
passed under several names.

A file is identified by a digest of its bytes. Each commit records, in addition to its states:

    content 4123…     {"held": true, "range": [from, to]}     "held": whether the store has the file's rows; it is false
                                                              after other rows have replaced them. "range": the range
                                                              of the windows of its rows, or null
    path /data/a.csv  "4123…"                                 the digest of the bytes that the file at this path had
                                                              when its path was last recorded
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
    """A file, with the records about its bytes and its path in a store."""

    file: Path
    content: str  # the digest of the bytes of the file
    record: Mapping[str, Any] | None  # the store's record of the digest ``content``, or None
    # the digest that the store has recorded for the path of the file, if it differs from ``content``; otherwise None
    before: str | None
    before_record: Mapping[str, Any] | None  # the store's record of the digest ``before``, or None
    recorded_content: str | None  # the digest that the store has recorded for the path of the file, or None
    piped: bool  # whether the file is standard input, whose path is not recorded
    # the size in bytes and the modification time in nanoseconds of the file before its bytes were read
    stamp: tuple[int, int]

    @property
    def is_path_recorded(self) -> bool:
        """Whether the record of the file's path is up to date: it contains the current digest of the file.

        The path of standard input is never recorded, so this is true for standard input.
        """
        return self.piped or self.recorded_content == self.content

    @property
    def is_stored(self) -> bool:
        """Whether the store contains the rows of the file."""
        return self.record is not None and bool(self.record["held"])

    @property
    def before_stored(self) -> bool:
        """Whether the store contains the rows of an earlier version of the file at this path."""
        return self.before_record is not None and bool(self.before_record["held"])

    @property
    def before_range(self) -> Range | None:
        """The range of the windows of the earlier version's rows, or None if there is no earlier version or it had no
        rows.
        """
        span = None if self.before_record is None else self.before_record["range"]
        return None if span is None else (span[0], span[1])

    @property
    def changed(self) -> bool:
        """Whether the store contains rows of an earlier version of the file at this path, but not the rows of the
        current version.
        """
        return not self.is_stored and self.before_stored and self.before_range is not None


def look_up(files: Sequence[Path], store: FrameStore, piped: Path | None = None) -> list[KnownFile]:
    """Compute the digests of files, and return each file with its records in ``store``. ``piped`` is the temporary file
    with the bytes of standard input.
    """
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
    """Return the records to write, and the current records that they replace, both by name. The commit fails if another
    writer changes these current records first.

    ``filed`` are the files whose paths are recorded. ``came`` are the files whose rows are added to the store, and
    ``ranges`` maps each file in ``came`` to the range of its windows.

    ``sources`` is passed only if windows of the store are replaced: it has the files whose rows are in the new windows.
    The earlier versions of the files in ``came`` are then recorded as replaced, because the store no longer has their
    rows. An exception is an earlier version with the same bytes as a file in ``sources``.
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
    """Commit records to a store, without states. ``replacing`` has the values that the store must still have under the
    same names. A conflict is ignored, because it means that another writer has written the same records.
    """
    if recorded:
        try:
            store.record(recorded, replacing)
        except CommitConflict:
            return


def unchanged(known_file: KnownFile) -> None:
    """Raise ``ValueError`` if a file has changed since its digest was computed."""
    if _stamp(known_file.file) != known_file.stamp:
        raise ValueError(f"{known_file.file} changed while it was read; wait until the file is complete, and try again")


def file_digest(file: Path) -> str:
    """Return the digest of the bytes of a file: 32 hexadecimal digits of SHA-256."""
    with open(file, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()[:32]


def _recorded(store: FrameStore, names: Iterable[str]) -> dict[str, Any]:
    """Return the records of a store whose names are in ``names``, by name. A name may occur several times, because
    several files may have the same bytes, or may be links to the same file.
    """
    return store.recorded(list(dict.fromkeys(names)))


def _content(content: str) -> str:
    return f"content {content}"


def _path(file: Path) -> str:
    return f"path {file.resolve()}"


def _stamp(file: Path) -> tuple[int, int]:
    status = file.stat()
    return status.st_size, status.st_mtime_ns
