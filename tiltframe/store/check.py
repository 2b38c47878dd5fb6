"""Checking: whether a store is whole: its logs, its files, its states, its levels against each other."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from aggr.kernels.digest import digest
from aggr.kernels.groups import Groups
from aggr.kernels.normalize import one_array
from tiltframe.level_chain import instants_of, merge_level
from tiltframe.store.core.backend import Backend, Conflict, Part, Range, Snapshot, StoreError
from tiltframe.store.core.checked_states import check_readable
from tiltframe.store.core.manifest import Manifest
from tiltframe.store.core.merging import by_windows
from tiltframe.store.core.ranges import EVER, as_text
from tiltframe.store.core.read_plan import PartRanges, read_plan, widened
from tiltframe.store.core.retry import retry_on_conflict
from tiltframe.store.core.snapshots import snapshot
from tiltframe.store.core.writers import EXPIRED
from windows import TimeWindow

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class CheckReport:
    """What a check has found.

    Parameters
    ----------
    uri : str
        Where the store is, without a password.
    levels : tuple of str
        That were checked.
    parts, rows : int
        How many were read and decoded.
    problems : tuple of str
        A sentence for each that was found; none in a store that is whole.
    """

    uri: str
    levels: tuple[str, ...]
    parts: int
    rows: int
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether no problem was found."""
        return not self.problems

    def to_json(self) -> str:
        """Say it as JSON, in one line."""
        held = {"uri": self.uri, "ok": self.ok, "levels": self.levels, "parts": self.parts, "rows": self.rows}
        return json.dumps({**held, "problems": self.problems})


def check_store(backend: Backend, manifest: Manifest, progress: Progress = lambda done, of: None) -> CheckReport:
    """Check a whole store; reads all of it, and changes nothing.

    Where a log is damaged, what it says is not followed further: its problems are all that is reported.
    """
    names = tuple(level.name for level in manifest.frame.levels)
    problems, parts, rows = backend.check(names), 0, 0
    if not problems:
        try:
            views = retry_on_conflict(lambda: snapshot(backend, manifest))
            rows, parts = sum(part.rows for view in views for part in view.parts), sum(len(v.parts) for v in views)
            found = _problems(backend, manifest, views, _Counter(2 * rows, progress))
            problems = list(dict.fromkeys(found))
        except StoreError as error:
            problems = [str(error)]
    return CheckReport(backend.place, names, parts, rows, tuple(problems))


class _Counter:
    """Counts rows for a progress bar."""

    def __init__(self, total: int, progress: Progress) -> None:
        self.done, self.total, self.progress = 0, total, progress

    def add(self, rows: int) -> None:
        self.done = min(self.done + rows, self.total)
        self.progress(self.done, self.total)


def _problems(backend: Backend, manifest: Manifest, views: Sequence[Snapshot], counter: _Counter) -> Iterator[str]:
    levels, whole = manifest.frame.levels, True
    for level, view in zip(levels, views, strict=True):
        for part in view.parts:
            for problem in _part_problems(backend, manifest, level, part):
                whole = False
                yield problem
            counter.add(part.rows)
    if whole:  # else they would be read, and reported, again
        for at in range(1, len(levels)):
            yield from _level_problems(backend, manifest, views, at, counter)


def _part_problems(backend: Backend, manifest: Manifest, level: TimeWindow, part: Part) -> Iterator[str]:
    """Read a part as it was written, and every state in it."""
    if not part.rows:
        return
    told = f"{level.name}: {part.name or 'a part'} of {part.writer} {part.commit}"
    try:
        states = backend.read([(part, (part.least, part.greatest + 1))], manifest.schema.names[1:])
    except Conflict:
        return  # merged, replaced or expired meanwhile
    except StoreError as error:
        yield f"{told}: {error}"
        return
    starts = instants_of(states)
    if len(starts) != part.rows or starts.min() != part.least or starts.max() != part.greatest:
        yield f"{told}: it has other windows than its log says"
    elif (level.starts(starts) != starts).any():
        yield f"{told}: it has windows that do not begin where those of {level.name} do"
    else:
        for problem in _state_problems(states, manifest):
            yield f"{told}: {problem}"


def _state_problems(states: pa.Table, manifest: Manifest) -> Iterator[str]:
    """Merge each state alone, which must give its own bits, and read its result."""
    for column in manifest.frame.states:
        held = one_array(states.column(column.name).drop_null())  # a null is what was not known of a measure
        try:
            merged = column.measure.function.merge(held, Groups.each(len(held)))
        except (ValueError, TypeError, pa.ArrowException) as error:
            yield f"states of {column.name} cannot be read: {error}"
            continue
        if digest(merged) != digest(held):
            yield f"states of {column.name} are not in the form that merging gives"
    try:
        check_readable(states, manifest.frame)
    except (ValueError, TypeError, OverflowError, pa.ArrowException) as error:
        yield f"results cannot be read: {error}"


def _level_problems(
    backend: Backend, manifest: Manifest, views: Sequence[Snapshot], at: int, counter: _Counter
) -> Iterator[str]:
    """Compare a level with the finer one before it, wherever neither has expired, some windows at a time."""
    fine, coarse = manifest.frame.levels[at - 1 : at + 1]
    span = _held_by_both(views, at, coarse)
    part_ranges = [piece for i in (at, at + 1) for piece in _part_ranges(views, manifest, i, span)]
    for some in by_windows(part_ranges, coarse):
        inside = widened((min(low for _, (low, _) in some), max(high for _, (_, high) in some)), coarse)

        def attempt(inside: Range = inside) -> str | None:
            now = snapshot(backend, manifest)
            low = max(inside[0], _held_by_both(now, at, coarse)[0])
            if low >= inside[1]:
                return None
            both = [_merged(backend, manifest, now, i, (low, inside[1]), coarse) for i in (at, at + 1)]
            return _difference(both[0], both[1], fine, coarse, inside)

        if problem := retry_on_conflict(attempt):
            yield problem
        counter.add(sum(part.rows for part, _ in some))


def _held_by_both(views: Sequence[Snapshot], at: int, coarse: TimeWindow) -> Range:
    held = max(view.txn_versions.get(EXPIRED, EVER[0]) for view in views[at - 1 : at + 1])
    if held == EVER[0]:
        return EVER
    begun = int(coarse.starts(np.array([held]))[0])
    return (held if begun == held else int(coarse.ends(np.array([begun]))[0])), EVER[1]


def _part_ranges(views: Sequence[Snapshot], manifest: Manifest, count: int, span: Range) -> PartRanges:
    return read_plan(views[:count], manifest.frame.levels[:count], [span]).part_ranges


def _merged(
    backend: Backend, manifest: Manifest, views: Sequence[Snapshot], count: int, span: Range, coarse: TimeWindow
) -> pa.Table:
    rows = backend.read(_part_ranges(views, manifest, count, span), manifest.schema.names[1:])
    return merge_level(rows, manifest.frame, coarse, unknown=True)


def _difference(fine: pa.Table, coarse: pa.Table, level: TimeWindow, above: TimeWindow, span: Range) -> str | None:
    differ = [name for name in fine.column_names if digest(fine.column(name)) != digest(coarse.column(name))]
    if not differ:
        return None
    where = " and ".join(as_text(end) for end in span)
    return f"{level.name} and {above.name} disagree between {where}: in {', '.join(differ)}"
