"""Commits: states of all levels under one writer and number, the finest level first.

Once the finest level holds a commit, it is in the store: coarser levels that lag are read through the finest until
they have caught up. So a writer that is killed at any moment has either committed or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from tiltframe.frame import LEVEL
from tiltframe.store.compact import catch_up, look_whole
from tiltframe.store.description import Description
from tiltframe.store.tables import OWN, Conflict, Part, StoreError, Tables

_LARGEST = 2**63 - 1


def check_writer(writer: str, commit: int) -> None:
    """Raise ``ValueError`` unless these can name a commit."""
    if not isinstance(writer, str) or not writer or writer.startswith(OWN) or "\0" in writer:
        raise ValueError(f"a writer is named by text that does not begin with {OWN!r}; got {writer!r}")
    if isinstance(commit, bool) or not isinstance(commit, int) or not 0 <= commit <= _LARGEST:
        raise ValueError(f"a commit number is a whole number from 0, and grows with every commit; got {commit!r}")


def write_levels(tables: Tables, description: Description, states: pa.Table, writer: str, commit: int) -> list[Part]:
    """Write the states of every level that is there; nobody reads them before they are committed."""
    parts = []
    for level in description.frame.levels:
        mine = states.filter(pc.equal(states.column(LEVEL), level.name))
        if mine.num_rows:
            parts += tables.write(level.name, mine, writer, commit)
    return parts


def commit_parts(
    tables: Tables,
    description: Description,
    parts: Iterable[Part],
    writer: str,
    commit: int,
    also: Mapping[str, int] | None = None,
) -> bool:
    """Commit what has been written, level by level.

    Parameters
    ----------
    parts : of every level, or of finer ones only
        Levels without parts take theirs from finer ones, later.
    also : name -> number, optional
        What else counts as committed with it, such as the files it was made from.

    Returns
    -------
    bool
        Whether it was new.

    Raises
    ------
    StoreError
        Where what else should be committed has been, by someone else.
    """
    parts, also = list(parts), also or {}
    names = [level.name for level in description.frame.levels]
    given = {part.level for part in parts} or set(names)
    if names[0] not in given:
        raise ValueError(f"the states of the finest level, {names[0]}, are missing: coarser ones are made of them")
    views = look_whole(tables, description.frame.levels, writers=[writer, *also])
    numbers = [view.covers.get(writer, -1) for view in views]
    if numbers[0] >= commit:
        if min(numbers) < commit:
            catch_up(tables, description)  # a writer was killed between levels
        return False
    try:
        finest = [part for part in parts if part.level == names[0]]
        tables.commit(names[0], finest, (), {writer: commit, **also}, views[0])
    except Conflict:
        there = tables.view(names[:1], [writer, *also])[0].covers
        if there.get(writer, -1) < commit and any(there.get(name, -1) >= number for name, number in also.items()):
            raise StoreError("someone else has added the same meanwhile; nothing was written") from None
        if there.get(writer, -1) < commit:
            raise
        return False
    if len(set(numbers)) > 1 and len(given) > 1:
        catch_up(tables, description)  # so that no commit of this writer is passed over
        return True
    for name, view in zip(names[1:], views[1:], strict=True):
        if name in given:
            try:
                tables.commit(name, [part for part in parts if part.level == name], (), {writer: commit}, view)
            except Conflict:  # a compaction was faster
                catch_up(tables, description)
                break
    return True
