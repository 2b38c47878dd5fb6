"""Compaction: coarser levels catch up with finer ones, and the parts of closed windows become one a bucket."""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TypeVar

import numpy as np

from tiltframe.rollup import merge_level
from tiltframe.store.description import Description
from tiltframe.store.layers import Pieces, lasting, layer, lost_level, replaced_since
from tiltframe.store.ranges import common
from tiltframe.store.tables import CHANGED, MERGED, Conflict, Part, Range, StoreError, Tables, View, bucket_of
from windows import Window

EVER: Range = (-(2**62), 2**62)
_TRIES = 200
_ROWS_AT_ONCE = 100_000  # of states, which take some kilobytes each

Result = TypeVar("Result")


def again(attempt: Callable[[], Result]) -> Result:
    """Try until nobody else was faster; raises `StoreError` where that never happens."""
    for tries in range(_TRIES):
        try:
            return attempt()
        except Conflict as conflict:
            last = conflict
            time.sleep(random.random() * min(0.005 * 2**tries, 0.5))
    raise StoreError(f"gave up after {_TRIES} tries, for others write at the same places all the time: {last}")


def look(tables: Tables, levels: Sequence[Window], most: int | None = None) -> list[View]:
    """Look at levels, from the finest on, or at the first of them, to read them.

    A range that has been replaced, and not yet in all of them, is read from finer levels as if at one moment: raises
    `Conflict` where anything came to it, or went, meanwhile; and `StoreError` where a level is lost.
    """
    views = look_whole(tables, levels, most)
    if stale := replaced_since(views, levels[-1]):
        now = tables.view([levels[0].name])[0]
        if any(part.within(span) for part in set(now.parts) ^ set(views[0].parts) for span in stale):
            raise Conflict("a range that is being replaced is being written")
    return views


def look_whole(
    tables: Tables, levels: Sequence[Window], most: int | None = None, writers: Iterable[str] = ()
) -> list[View]:
    """Look at levels, from the finest on, or at the first of them; raises `StoreError` where one is lost."""
    names, writers = [level.name for level in levels], [*writers, CHANGED]
    views = tables.view(names[:most], writers)
    if not (views[0].parts or views[0].covers):
        views = tables.view(names, writers)
    if lost_level(views):  # or it was made, or all that it held replaced by nothing, between two views
        views = tables.view(names, writers)
    if lost := lost_level(views):
        raise StoreError(
            f"the store {tables.place} is damaged: its level {lost} is lost; rebuild() derives coarser ones"
        )
    return views[:most]


def catch_up(tables: Tables, description: Description) -> int:
    """Have every level hold what finer ones do; return how many commits were missing somewhere.

    The coarsest goes first, so that a commit loses its name in a level only when all coarser ones hold it.
    """
    return again(lambda: _catch_up(tables, description))


def _catch_up(tables: Tables, description: Description) -> int:
    levels = description.frame.levels
    views = look(tables, levels)
    caught: set[tuple[str, int]] = set()
    for i in range(len(levels) - 1, 0, -1):
        lay = layer(views[: i + 1], levels[: i + 1], [EVER])
        if lay.covers:
            add = merged(tables, description, levels[i], lay.borrowed)
            tables.commit(levels[i].name, add, lay.dropped, lay.covers, views[i])
            caught |= lay.covers.items()
    return len(caught)


def merged(tables: Tables, description: Description, level: Window, pieces: Pieces) -> list[Part]:
    """Merge pieces, of the level or finer ones, into parts of the level; some windows at a time."""
    frame, parts = description.frame, []
    columns = description.schema.names[1:]
    number = secrets.randbits(62)
    for some in _by_windows(pieces, level):
        states = tables.read(some, columns)
        if states.num_rows:
            parts += tables.write(level.name, merge_level(states, frame, level), MERGED, number)
    return parts


def _by_windows(pieces: Pieces, level: Window) -> Iterator[Pieces]:
    """Share pieces out so that all rows of a window come together, some buckets of the level at a time."""
    if not pieces:
        return
    bucket = bucket_of(level)
    touched = np.array([at for _, (low, high) in pieces for at in (low, high - 1)], np.int64)
    begins = bucket.starts(touched)
    edges = np.unique(level.starts(np.append(begins, bucket.ends(begins))))
    shares: dict[int, Pieces] = {}
    for part, span in pieces:
        first = int(np.searchsorted(edges, span[0], side="right")) - 1
        last = int(np.searchsorted(edges, span[1] - 1, side="right")) - 1
        for at in range(first, last + 1):
            low = int(edges[at])
            high = int(edges[at + 1]) if at + 1 < len(edges) else EVER[1]
            for piece in common([span], [(low, high)]):
                shares.setdefault(at, []).append((part, piece))
    some: Pieces = []
    for at in sorted(shares):
        if some and _rows(some + shares[at]) > _ROWS_AT_ONCE:
            yield some
            some = []
        some += shares[at]
        if _rows(some) > 2 * _ROWS_AT_ONCE:
            yield from _by_fewer_windows(some, level)
            some = []
    if some:
        yield some


def _by_fewer_windows(pieces: Pieces, level: Window) -> Iterator[Pieces]:
    """Share out the pieces of a bucket that is too large to be merged at once."""
    windows = level.between(min(low for _, (low, _) in pieces), max(high for _, (_, high) in pieces))
    each = max(1, len(windows) * _ROWS_AT_ONCE // _rows(pieces))
    edges = [EVER[0], *windows[each::each].tolist(), EVER[1]]
    for span in pairwise(edges):
        some = [(part, piece) for part, whole in pieces for piece in common([whole], [span])]
        if some:
            yield some


def _rows(pieces: Pieces) -> int:
    """Count the rows that pieces have at most."""
    return sum(part.rows for part, _ in pieces)


def merge_parts(
    tables: Tables, description: Description, before: int, progress: Callable[[int, int], None] = lambda done, of: None
) -> dict[str, tuple[int, int]]:
    """Merge the parts of windows that end before a moment, one bucket of time after the other.

    Parameters
    ----------
    before : int
        Microseconds UTC: windows that end later stay as they are.
    progress : called with how many parts are merged, and of how many

    Returns
    -------
    level name -> (parts that were merged, parts that they became)
    """
    done: dict[str, tuple[int, int]] = {}
    for level in description.frame.levels:

        def attempt(level: Window = level) -> tuple[int, int]:
            return _merge_level_parts(tables, description, level, before, progress)

        done[level.name] = again(attempt)
    return done


def _merge_level_parts(
    tables: Tables, description: Description, level: Window, before: int, progress: Callable[[int, int], None]
) -> tuple[int, int]:
    views = tables.view([level.name for level in description.frame.levels])
    mine = next(view for view in views if view.level == level.name)
    groups = _by_bucket(lasting(views, mine.parts), level, before)
    total, was, now = sum(len(group) for group in groups), 0, 0
    for group in groups:
        pieces = [(part, (part.least, part.greatest + 1)) for part in group]
        add = merged(tables, description, level, pieces)
        tables.commit(level.name, add, pieces)
        was, now = was + len(group), now + len(add)
        progress(was, total)
    return was, now


def _by_bucket(parts: Sequence[Part], level: Window, before: int) -> list[list[Part]]:
    """Group parts whose windows are all closed by the bucket they are in, where that is worth it."""
    empty = [part for part in parts if not part.rows]
    parts = [part for part in parts if part.rows]
    if not parts:
        return [empty] if empty else []
    closed = level.ends(np.array([part.greatest for part in parts], np.int64)) <= before
    buckets = bucket_of(level).starts(np.array([part.least for part in parts], np.int64))
    groups: dict[int, list[Part]] = {}
    for part, is_closed, bucket in zip(parts, closed, buckets, strict=True):
        if is_closed:
            groups.setdefault(int(bucket), []).append(part)
    clusters = [cluster for group in groups.values() for cluster in _clusters(group)]
    return [cluster for cluster in clusters if len(cluster) > 1] + ([empty] if empty else [])


def _clusters(parts: Sequence[Part]) -> Iterator[list[Part]]:
    """Put parts together that share windows, and neighbours that are small; large ones were split, and stay."""
    cluster: list[Part] = []
    for part in sorted(parts, key=lambda part: part.least):
        apart = cluster and part.least > max(other.greatest for other in cluster)
        if apart and sum(other.rows for other in [*cluster, part]) > _ROWS_AT_ONCE:
            yield cluster
            cluster = []
        cluster.append(part)
    yield cluster
