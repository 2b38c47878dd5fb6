"""Verifying: check the log, the files and the states of a store, and that its levels agree with each other.

The states of a store are stored in parts. A part consists of states of one level that were written together.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import pyarrow as pa

from aggr.arrow.bit_equality import digest
from aggr.arrow.normalize import one_array
from aggr.groups.groups import Groups
from aggr.workers import map_in_threads
from tiltframe.instants import instants_of
from tiltframe.merged_windows import merge_level
from tiltframe.ranges import EVER, Range, align_outward, as_text
from tiltframe.store.backends.protocol import Backend, Part, PartChecker, Snapshot, threads_of
from tiltframe.store.checked_states import check_results_computable
from tiltframe.store.log.errors import Conflict, StoreError
from tiltframe.store.log.manifest import Manifest
from tiltframe.store.log.records import available_from
from tiltframe.store.log.run import retry_on_conflict, snapshot_of
from tiltframe.store.log.snapshot import PartRanges, pieces_of
from tiltframe.store.query.merging import split_by_windows
from windows import TimeWindow

Progress = Callable[[int, int], None]
_ADVICE = "restore the store from a backup, or roll up the rows of the damaged range again and replace this range"


@dataclass(frozen=True)
class VerifyReport:
    """The outcome of a verification.

    Parameters
    ----------
    uri : str
        The address of the store, without a password.
    levels : tuple of str
        The levels that were checked.
    parts, rows : int
        The number of parts and the number of rows that were read and decoded.
    problems : tuple of str
        A message for each problem; empty if the store is sound.
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
        """Return the report as JSON in one line."""
        counts = {"uri": self.uri, "ok": self.ok, "levels": self.levels, "parts": self.parts, "rows": self.rows}
        return json.dumps({**counts, "problems": self.problems})


def verify_store(
    backend: Backend, manifest: Manifest, progress: Progress = lambda done, total: None, jobs: int = 1
) -> VerifyReport:
    """Verify a complete store without changing it; return a report. If the log is damaged, the report contains only the
    problems of the log. ``jobs`` is the number of threads; the report does not depend on it.
    """
    names = tuple(level.name for level in manifest.frame.levels)
    problems = backend.verify()
    parts = 0
    rows = 0
    if not problems:
        try:
            snapshot = snapshot_of(backend)
            parts = len(snapshot.parts)
            rows = sum(part.rows for part in snapshot.parts)
            counter = _ProgressCounter(2 * rows, progress)
            messages = _problems(backend, manifest, snapshot, counter=counter, jobs=threads_of(backend, jobs))
            problems = list(dict.fromkeys(messages))
        except StoreError as error:
            problems = [str(error)]
    return VerifyReport(backend.display_uri, names, parts=parts, rows=rows, problems=tuple(problems))


class _ProgressCounter:
    """A counter of checked rows. It calls a function with the number of rows checked so far and the number of rows to
    check.
    """

    def __init__(self, total: int, progress: Progress) -> None:
        self.done = 0
        self.total = total
        self.progress = progress

    def add(self, rows: int) -> None:
        self.done = min(self.done + rows, self.total)
        self.progress(self.done, self.total)


def _problems(
    backend: Backend, manifest: Manifest, snapshot: Snapshot, counter: _ProgressCounter, jobs: int
) -> Iterator[str]:
    """Yield a message for each problem of a part. If all parts are undamaged, compare each level with the next finer
    level, and yield a message for each difference.
    """
    levels = manifest.frame.levels
    is_intact = True

    def check(part_of_level: tuple[TimeWindow, Part]) -> tuple[list[str], int]:
        level, part = part_of_level
        return list(_part_problems(backend, manifest, level, part)), part.rows

    parts_of_levels = [(level, part) for level in levels for part in snapshot.of(level.name)]
    for problems, rows in map_in_threads(check, parts_of_levels, jobs):
        is_intact = is_intact and not problems
        yield from problems
        counter.add(rows)
    if is_intact:  # After damage in a part, levels are not compared, because the same damage would be reported twice.
        for fine, coarse in pairwise(levels):
            compare = partial(_level_problem, backend=backend, manifest=manifest, fine=fine, coarse=coarse)
            parts = [part for level in (fine, coarse) for part in snapshot.of(level.name)]
            pieces = pieces_of(parts, [_comparable_range(snapshot, fine, coarse)])
            for problem, rows in map_in_threads(compare, split_by_windows(pieces, coarse), jobs):
                if problem:
                    yield problem
                counter.add(rows)


def _part_problems(backend: Backend, manifest: Manifest, level: TimeWindow, part: Part) -> Iterator[str]:
    """Read all states of a part, and yield the problems of the part."""
    where = f"{level.name}: {part.name}"
    try:
        states = backend.read([(part, part.range)], manifest.schema.names[1:])
        problems_of_unread_bytes = backend.part_problems(part) if isinstance(backend, PartChecker) else []
    except Conflict:
        return  # The part was merged, replaced or expired after the snapshot, so it no longer belongs to the store.
    except StoreError as error:
        yield f"{where}: {error}"
        return
    for problem in problems_of_unread_bytes:
        yield f"{where}: {problem}; {_ADVICE}"
    starts = instants_of(states)
    if len(starts) != part.rows or starts.min() != part.first_start or starts.max() != part.last_start:
        yield f"{where}: its windows differ from those that the store's log records for it; {_ADVICE}"
    elif (level.starts(starts) != starts).any():
        yield f"{where}: it has windows that do not begin where those of {level.name} do; {_ADVICE}"
    else:
        for problem in _state_problems(states, manifest):
            yield f"{where}: {problem}"


def _state_problems(states: pa.Table, manifest: Manifest) -> Iterator[str]:
    """Merge each state alone, and check that the merged state has the same bits as the state. Then check that all
    results can be computed from the states. Yield a message for each problem.
    """
    for column in manifest.frame.states:
        # A null state is not checked: it means that the measure did not exist when the rows were written.
        known_states = one_array(states.column(column.name).drop_null())
        try:
            merged = column.measure.function.merge(known_states, Groups.each(len(known_states)))
        except (ValueError, TypeError, pa.ArrowException) as error:
            yield f"states of {column.name} cannot be read: {error}; {_ADVICE}"
            continue
        if digest(merged) != digest(known_states):
            yield (
                f"merging states of {column.name} alone changes their bits, so they were not written by a merge of "
                f"this function; {_ADVICE}"
            )
    try:
        check_results_computable(states, manifest.frame)
    except (ValueError, TypeError, OverflowError, pa.ArrowException) as error:
        yield f"results cannot be read: {error}; {_ADVICE}"


def _level_problem(
    pieces: PartRanges, *, backend: Backend, manifest: Manifest, fine: TimeWindow, coarse: TimeWindow
) -> tuple[str | None, int]:
    """Compare the states of the level ``coarse`` with the merged states of ``fine``, the next finer level. ``pieces``
    are ranges of parts of both levels, and determine the range of time to compare. Windows that have expired on one of
    the levels are not compared.

    Return a message about a difference, or None if there is no difference. Also return the number of rows of the parts
    in ``pieces``.
    """
    span = align_outward((min(low for _, (low, _) in pieces), max(high for _, (_, high) in pieces)), coarse)

    def attempt() -> str | None:
        current_snapshot = snapshot_of(backend)
        low = max(span[0], _comparable_range(current_snapshot, fine, coarse)[0])
        if low >= span[1]:
            return None
        tables = [
            _merged(backend, manifest, parts=current_snapshot.of(level.name), span=(low, span[1]), coarse=coarse)
            for level in (fine, coarse)
        ]
        return _difference(tables[0], tables[1], level=fine, coarse_level=coarse, span=span)

    return retry_on_conflict(attempt), sum(part.rows for part, _ in pieces)


def _comparable_range(snapshot: Snapshot, fine: TimeWindow, coarse: TimeWindow) -> Range:
    """Return the range, in microseconds UTC, of the windows of the level ``coarse`` that can be compared with the level
    ``fine``. These windows have not expired, and do not contain expired windows of ``fine``.
    """
    first_comparable = max(available_from(snapshot, level.name) for level in (fine, coarse))
    return EVER if first_comparable == EVER[0] else (coarse.first_start_from(first_comparable), EVER[1])


def _merged(backend: Backend, manifest: Manifest, parts: Sequence[Part], span: Range, coarse: TimeWindow) -> pa.Table:
    """Return the states of parts in the range ``span``, merged into windows of the level ``coarse``."""
    rows = backend.read(pieces_of(parts, [span]), manifest.schema.names[1:])
    return merge_level(rows, manifest.frame, coarse, nulls_are_unknown=True)


def _difference(
    fine: pa.Table, coarse: pa.Table, level: TimeWindow, coarse_level: TimeWindow, span: Range
) -> str | None:
    differ = [name for name in fine.column_names if digest(fine.column(name)) != digest(coarse.column(name))]
    if not differ:
        return None
    where = " and ".join(as_text(end) for end in span)
    return (
        f"{level.name} and {coarse_level.name} disagree between {where}: in {', '.join(differ)}; restore the store "
        "from a backup, or roll up the rows of this range again and replace it"
    )
