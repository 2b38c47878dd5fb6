"""Records of the files whose rows are in a store. They ensure that the rows of a file count once, even if the file is
passed under several names.

A file is identified by a digest of its bytes. Each commit records, in addition to its states:

    name of the record    value
    content 4123…         {"held": true, "range": [from, to]}
    path /data/a.csv      "4123…"

The name of a ``content`` record contains the digest of a file. In the value of the record, ``held`` is true if the rows
of the file are in the store, and false if these rows were replaced by other rows. ``range`` is the range of time of the
windows that contain the rows, or null if the file has no rows. The value of a ``path`` record is the digest of the file
that was at this path when the path was last recorded.

If a backfill has added only some of the rows, the value of the ``content`` record also has the entry ``backfill``, such
as ``{"within": [from, to], "is_complete": false}``: the range of the times of the rows that it adds, and whether it has
added all of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tiltframe.ranges import Range, align_outward
from tiltframe.store import CommitConflict, FrameStore
from windows import TimeWindow


@dataclass(frozen=True)
class InputFile:
    """An input file, with the store's records about the bytes of the file and about the path of the file."""

    file: Path
    # the digest of the bytes of the file
    digest: str
    # the store's record of ``digest``, or None
    record: Mapping[str, Any] | None
    # the digest of an earlier version of the file: ``recorded_digest`` if it differs from ``digest``, otherwise None
    earlier_digest: str | None
    # the store's record of ``earlier_digest``, or None
    earlier_record: Mapping[str, Any] | None
    # the digest that the store has recorded for the path of the file, or None
    recorded_digest: str | None
    # whether the file contains the bytes of standard input; the path of such a file is not recorded
    is_standard_input: bool
    # the size of the file in bytes and its modification time in nanoseconds, before its bytes were read
    stamp: tuple[int, int]

    @property
    def is_path_recorded(self) -> bool:
        """Whether the record of the file's path is up to date: it contains the current digest of the file.

        The path of standard input is never recorded, so this is true for standard input.
        """
        return self.is_standard_input or self.recorded_digest == self.digest

    @property
    def is_stored(self) -> bool:
        """Whether the store contains all rows of the file."""
        return self.has_stored_rows and self.unfinished_backfill is None

    @property
    def has_stored_rows(self) -> bool:
        """Whether the store contains all or some rows of the file."""
        return self.record is not None and bool(self.record["held"])

    @property
    def unfinished_backfill(self) -> Mapping[str, Any] | None:
        """The entry ``backfill`` of the record if the store contains only some rows of the file, otherwise None."""
        return None if self.record is None else self.record.get("backfill")

    @property
    def is_earlier_stored(self) -> bool:
        """Whether the store contains the rows of an earlier version of the file at this path."""
        return self.earlier_record is not None and bool(self.earlier_record["held"])

    @property
    def earlier_range(self) -> Range | None:
        """The range of the windows that contain the rows of the earlier version of the file. It equals None if the
        store has no record of an earlier version, or if the earlier version had no rows.
        """
        span = None if self.earlier_record is None else self.earlier_record["range"]
        return None if span is None else (span[0], span[1])

    @property
    def has_changed(self) -> bool:
        """Whether the store contains rows of an earlier version of the file at this path, but not the rows of the
        current version.
        """
        return not self.is_stored and self.is_earlier_stored and self.earlier_range is not None


def look_up_files(files: Sequence[Path], store: FrameStore, standard_input: Path | None = None) -> list[InputFile]:
    """Compute the digests of files, and return each file with its records in ``store``. ``standard_input`` is the
    temporary file with the bytes of standard input.
    """
    stamps = [_stamp(file) for file in files]
    digests = [file_digest(file) for file in files]
    recorded = _recorded(store, [*map(_content_record_name, digests), *map(_path_record_name, files)])
    input_files = []
    recorded_digests = [recorded.get(_path_record_name(file)) for file in files]
    pairs = zip(recorded_digests, digests, strict=True)
    earlier_digests = [None if earlier == digest else earlier for earlier, digest in pairs]
    recorded |= _recorded(store, [_content_record_name(earlier) for earlier in earlier_digests if earlier is not None])
    for place, file in enumerate(files):
        earlier = earlier_digests[place]
        input_file = InputFile(
            file,
            digest=digests[place],
            record=recorded.get(_content_record_name(digests[place])),
            earlier_digest=earlier,
            earlier_record=None if earlier is None else recorded.get(_content_record_name(earlier)),
            recorded_digest=recorded_digests[place],
            is_standard_input=file == standard_input,
            stamp=stamps[place],
        )
        input_files.append(input_file)
    return input_files


def records_to_write(
    input_files: Iterable[InputFile],
    added_files: Sequence[InputFile],
    ranges: Mapping[Path, Range],
    sources: Iterable[InputFile] | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return two dicts from names to records: the records to write, and the expected records.

    The expected records are those that the store has now under the names of the records to write. The commit fails if
    another writer has changed one of them.

    ``input_files`` are the files whose paths are recorded. ``added_files`` are the files whose rows are added to the
    store, and ``ranges`` maps each file in ``added_files`` to the range of its windows.

    ``sources`` is passed only if windows of the store are replaced. It has the files whose rows are in the new windows.
    If the store had the rows of an earlier version of a file in ``added_files``, this version is then recorded as
    replaced, because the store does not contain these rows any more. The exception is an earlier version that has the
    same bytes as a file in ``sources``: its rows are in the new windows.
    """
    new_records: dict[str, Any] = {}
    expected_records: dict[str, Any] = {}

    def record(name: str, value: Any, current: Any) -> None:
        new_records[name] = value
        if current is not None:
            expected_records[name] = current

    for input_file in input_files:
        if not input_file.is_path_recorded:
            record(_path_record_name(input_file.file), input_file.digest, input_file.recorded_digest)
    for input_file in added_files:
        if not input_file.is_stored:
            span = ranges.get(input_file.file) if input_file.record is None else input_file.record["range"]
            record(
                _content_record_name(input_file.digest), {"held": True, "range": span and list(span)}, input_file.record
            )
    source_digests = None if sources is None else {input_file.digest for input_file in sources}
    for input_file in added_files:
        earlier = input_file.earlier_digest
        if source_digests is None or earlier is None or input_file.is_stored or not input_file.is_earlier_stored:
            continue
        if earlier not in source_digests:
            replaced_record = {**(input_file.earlier_record or {}), "held": False}
            record(_content_record_name(earlier), replaced_record, input_file.earlier_record)
    return new_records, expected_records


def records_of_backfill(
    input_files: Iterable[InputFile],
    times: Mapping[Path, Range],
    *,
    level: TimeWindow,
    within: Range,
    is_complete: bool,
) -> dict[str, Any]:
    """Return the records for files whose rows in the range ``within`` are added by a backfill, and not by one commit.

    ``times`` maps each file with rows to the first and the last of its times, and ``is_complete`` says whether the
    backfill has added all its ranges. Files that are already stored, or have rows only outside of ``within``, are left
    out. ``level`` is the finest level of the store.
    """
    new_records: dict[str, Any] = {}
    for input_file in input_files:
        span = times.get(input_file.file)
        if input_file.is_stored or (span and (span[1] < within[0] or span[0] >= within[1])):
            continue
        windows = None if span is None else list(align_outward((span[0], span[1] + 1), level))
        value: dict[str, Any] = {"held": True, "range": windows}
        if span and not (is_complete and within[0] <= span[0] and span[1] < within[1]):
            value["backfill"] = {"within": list(within), "is_complete": is_complete}
        if value != input_file.record:
            new_records[_content_record_name(input_file.digest)] = value
        if not input_file.is_path_recorded:
            new_records[_path_record_name(input_file.file)] = input_file.digest
    return new_records


def commit_records(store: FrameStore, new_records: Mapping[str, Any], expected_records: Mapping[str, Any]) -> None:
    """Commit records to a store, without states. ``expected_records`` maps the names of records to the values that the
    store must still have. A conflict is ignored, because it means that another writer has written the same records.
    """
    if new_records:
        try:
            store.record(new_records, expected_records)
        except CommitConflict:
            return


def check_unchanged(input_file: InputFile) -> None:
    """Raise ``ValueError`` if a file has changed since its digest was computed."""
    if _stamp(input_file.file) != input_file.stamp:
        raise ValueError(f"{input_file.file} changed while it was read; wait until the file is complete, and try again")


def file_digest(file: Path) -> str:
    """Return the digest of the bytes of a file: 32 hexadecimal digits of SHA-256."""
    with open(file, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()[:32]


def _recorded(store: FrameStore, names: Iterable[str]) -> dict[str, Any]:
    """Return the records of a store with the names ``names``, as a dict by name. ``names`` may contain a name several
    times, because several files may have the same bytes, or may be links to the same file.
    """
    return store.recorded(list(dict.fromkeys(names)))


def _content_record_name(digest: str) -> str:
    return f"content {digest}"


def _path_record_name(file: Path) -> str:
    return f"path {file.resolve()}"


def _stamp(file: Path) -> tuple[int, int]:
    status = file.stat()
    return status.st_size, status.st_mtime_ns
