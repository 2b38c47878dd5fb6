"""The record of files: which files a store holds, so that a file counts once, whatever it is called.

A file is told by its bytes. With each commit the store notes, beside the states, numbers that only grow:

    content 4123…        odd while the rows of these bytes are in the store, even after they have been replaced
    from 4123…, to 4123… where their windows begin and end; absent for a file without rows
    path /data/a.csv     how often the path has been noted, and a part of the bytes' number
    path /data/a.csv 2   the number of the bytes that it had the second time
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tiltframe.store import FrameStore
from tiltframe.store.core.backend import Conflict, Range

_BITS = 62  # of a number of bytes
_PART = 40  # of them, beside how often a path has been noted
_MIDDLE = 1 << 62  # times before 1970 are numbers too


@dataclass(frozen=True)
class Filed:
    """A file, and what a store knows of it.

    Parameters
    ----------
    file : path
    content : int
        The number of its bytes.
    count : int
        How often these bytes have come and gone: odd while they are in the store; -1 if never.
    noted : int
        How often the path has been noted.
    before : int or None
        The number of the other bytes that the path held when it was noted last.
    before_count : int
        Of these, as ``count``.
    before_span : range or None
        The windows of these; None if they had no rows.
    stamp : (int, int)
        Size and time of change when the bytes were read.
    """

    file: Path
    content: int
    count: int
    noted: int
    before: int | None
    before_count: int
    before_span: Range | None
    known: bool
    stamp: tuple[int, int]

    @property
    def held(self) -> bool:
        """Whether the store holds its rows."""
        return self.count % 2 == 1 and self.count > 0

    @property
    def replaced(self) -> bool:
        """Whether the store held its rows, and others came in their place."""
        return self.count > 0 and not self.held

    @property
    def changed(self) -> bool:
        """Whether the store holds other rows of the same path."""
        return not self.held and self.before is not None and self.before_count % 2 == 1 and self.before_span is not None


def look_up(files: Sequence[Path], store: FrameStore, piped: Path | None = None) -> list[Filed]:
    """Read the bytes of files, and look what a store knows of them; the path of what was piped is not noted."""
    stamps = [_stamp(file) for file in files]
    contents = [content_of(file) for file in files]
    first = _numbers(store, [*map(_content, contents), *map(_path, files)])
    notes = {file: divmod(first.get(_path(file), 0), 1 << _PART) for file in files}
    known = {
        file: notes[file][0] > 0 and notes[file][1] == content % (1 << _PART)
        for file, content in zip(files, contents, strict=True)
    }
    other = [file for file in files if notes[file][0] and not known[file]]
    seconds = _numbers(store, [_path(file, notes[file][0]) for file in other])
    befores = {file: seconds[_path(file, notes[file][0])] for file in other}
    spans = spans_of(set(befores.values()), store)
    counts = _numbers(store, map(_content, befores.values()))
    return [
        Filed(
            file,
            content,
            first.get(_content(content), -1),
            notes[file][0],
            before := befores.get(file),
            -1 if before is None else counts.get(_content(before), -1),
            None if before is None else spans.get(before),
            known[file] or file == piped,
            stamp,
        )
        for file, content, stamp in zip(files, contents, stamps, strict=True)
    ]


def spans_of(contents: Iterable[int], store: FrameStore) -> dict[int, Range]:
    """Look up the windows of bytes that have any."""
    wanted = list(contents)
    ends = _numbers(store, [f"{side} {content}" for content in wanted for side in ("from", "to")])
    return {c: (ends[f"from {c}"] - _MIDDLE, ends[f"to {c}"] - _MIDDLE) for c in wanted if f"from {c}" in ends}


def entries(
    noted: Iterable[Filed], came: Sequence[Filed], spans: Mapping[Path, Range], given: Iterable[Filed] | None = None
) -> dict[str, int]:
    """Write what a store is to note.

    Parameters
    ----------
    noted : files whose paths are to be known
    came : those of them whose rows come into the store
    spans : file -> its windows
        Without an entry for files without rows.
    given : files that a range was derived from, if one was
        What the paths of ``came`` held before is replaced then, unless another of these files holds it.
    """
    numbers: dict[str, int] = {}
    for filed in noted:
        if not filed.known:
            numbers[_path(filed.file)] = ((filed.noted + 1) << _PART) + filed.content % (1 << _PART)
            numbers[_path(filed.file, filed.noted + 1)] = filed.content
    for filed in came:
        if not filed.held:
            numbers[_content(filed.content)] = max(filed.count, 0) + 1
        if filed.count < 0 and filed.file in spans:
            low, high = spans[filed.file]
            numbers |= {f"from {filed.content}": low + _MIDDLE, f"to {filed.content}": high + _MIDDLE}
    staying = None if given is None else {filed.content for filed in given}
    for filed in came:
        if staying is not None and not filed.held and filed.before_count % 2 == 1 and filed.before not in staying:
            numbers[f"content {filed.before}"] = filed.before_count + 1
    return numbers


def note(store: FrameStore, numbers: Mapping[str, int]) -> None:
    """Have a store note something beside its states; whoever was faster has noted it too."""
    if numbers:
        finest = store.frame.levels[0].name
        try:
            store.backend.commit(finest, [], (), numbers, store.backend.view([finest], numbers)[0])
        except Conflict:
            return


def unchanged(filed: Filed) -> None:
    """Raise ``ValueError`` if a file is not what it was when its bytes were read."""
    if _stamp(filed.file) != filed.stamp:
        raise ValueError(f"{filed.file} was written to while it was read; wait until it is whole, and try again")


def content_of(file: Path) -> int:
    """Number the bytes of a file."""
    with open(file, "rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").digest()
    return int.from_bytes(digest[:8], "big") >> (64 - _BITS)


def _numbers(store: FrameStore, names: Iterable[str]) -> dict[str, int]:
    """Look up what a store has noted; files may have the same bytes, or be links to one another."""
    return store.numbers(list(dict.fromkeys(names)))


def _content(content: int) -> str:
    return f"content {content}"


def _path(file: Path, noted: int | None = None) -> str:
    return f"path {file.resolve()}" + ("" if noted is None else f" {noted}")


def _stamp(file: Path) -> tuple[int, int]:
    status = file.stat()
    return status.st_size, status.st_mtime_ns
