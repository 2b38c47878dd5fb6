"""Commits: states of all levels under one writer and number, the finest level first.

Once the finest level holds a commit, it is in the store: coarser levels that lag are read through the finest until
they have caught up. So a writer that is killed at any moment has either committed or not.

With a commit goes a fingerprint of what it brought, kept for the last ones of each writer: a number that comes again
is the same batch tried again, or an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

import pyarrow as pa

from aggr.arguments import checked_mapping, checked_whole, is_name, shown
from aggr.kernels import compute as pc
from tiltframe.frame import LEVEL, TiltFrame
from tiltframe.store.core.backend import Backend, Conflict, Part, Snapshot, StoreError
from tiltframe.store.core.catching_up import catch_up
from tiltframe.store.core.content import Content, fingerprint
from tiltframe.store.core.generations import Evolved, commit_to
from tiltframe.store.core.manifest import Manifest
from tiltframe.store.core.snapshots import snapshot_levels
from tiltframe.store.core.writers import OWN
from windows import TimeWindow

KEPT = 64  # fingerprints of each writer: one that is restarted repeats its last commits, seldom more than one

_LARGEST = 2**63 - 1
_WRITTEN_BYTES = 1 << 25  # of a level's states, at least, where more are to come


def check_writer(writer: str, commit: int) -> int:
    """Return a commit's number; raises ``ValueError`` unless these can name a commit."""
    if not is_name(writer) or writer.startswith(OWN):
        raise ValueError(f"a writer is named by text that does not begin with {OWN!r}; got {shown(writer)}")
    return checked_whole(commit, "a commit number, which grows with every commit,")


def check_made_from(made_from: Mapping[str, int] | None, writer: str) -> dict[str, int]:
    """Return what a commit is made from; raises ``ValueError`` unless it can be noted with it."""
    numbers = {}
    for name, number in checked_mapping({} if made_from is None else made_from, "made_from", "name -> number").items():
        if not is_name(name) or name.startswith(OWN) or name == writer:
            raise ValueError(f"what a commit is made from is named by text, and not as its writer; got {shown(name)}")
        numbers[str(name)] = checked_whole(number, f"made_from: the number of {shown(name)}")
    return numbers


def write_levels(
    backend: Backend, levels: Iterable[tuple[TimeWindow, pa.Table]], writer: str, commit: int
) -> list[Part]:
    """Write the states of levels, small tables of a level together; nobody reads them before they are committed.

    Where that fails, what was written is removed.
    """
    parts: list[Part] = []
    held: dict[str, list[pa.Table]] = {}
    try:
        for level, states in levels:
            held.setdefault(level.name, []).append(states)
            if sum(table.nbytes for table in held[level.name]) >= _WRITTEN_BYTES:
                parts += _written(backend, level.name, held.pop(level.name), writer, commit)
        for name, tables in held.items():
            parts += _written(backend, name, tables, writer, commit)
    except BaseException:
        with suppress(Exception):  # the error that counts is the first
            backend.discard(parts)
        raise
    return parts


def _written(backend: Backend, level: str, tables: list[pa.Table], writer: str, commit: int) -> list[Part]:
    states = pa.concat_tables(tables)
    return backend.write(level, states, writer, commit) if states.num_rows else []


def by_level(states: pa.Table, frame: TiltFrame) -> Iterator[tuple[TimeWindow, pa.Table]]:
    """Part the states of a rollup by their level."""
    for level in frame.levels:
        yield level, states.filter(pc.equal(states.column(LEVEL), level.name))


def commit_parts(
    backend: Backend,
    manifest: Manifest,
    parts: Iterable[Part],
    writer: str,
    commit: int,
    content: Content,
    also: Mapping[str, int] | None = None,
    earlier: Iterable[Content] = (),
) -> bool:
    """Commit what has been written, level by level.

    Parameters
    ----------
    parts : of every level, or of finer ones only
        Levels without parts take theirs from finer ones, later.
    content : of the finest level's states, from `tiltframe.store.core.content`
    also : name -> number, optional
        What else counts as committed with it, such as the files it was made from.
    earlier : contents
        Of the same states as earlier frames have them: the commit may have come by one of these.

    Returns
    -------
    bool
        Whether it was new.

    Raises
    ------
    StoreError
        Where the number is there with other states, and where what else should be committed has been, by someone else.
    Evolved
        Where the frame of the store is another by now.
    """
    parts, also, contents = list(parts), also or {}, [content, *earlier]
    names = [level.name for level in manifest.frame.levels]
    given = {part.level for part in parts} or set(names)
    if names[0] not in given:
        raise ValueError(f"the states of the finest level, {names[0]}, are missing: coarser ones are made of them")
    counter = _counter(writer)
    views = snapshot_levels(backend, manifest, writers=[writer, counter, *also])
    numbers = [view.txn_versions.get(writer, -1) for view in views]
    if numbers[0] >= commit:
        check_same(backend, manifest, writer, commit, contents)
        if min(numbers) < commit:
            with suppress(Evolved):
                catch_up(backend, manifest)  # a writer was killed between levels
        return False
    count = views[0].txn_versions.get(counter, 0) + 1
    try:
        finest = [part for part in parts if part.level == names[0]]
        txn_versions = {writer: commit, counter: count, **also}
        notes = {_slot(writer, count): fingerprint(commit, content)}
        commit_to(backend, manifest, views[0], finest, (), txn_versions, notes)
    except Conflict:
        there = backend.view(names[:1], [writer, *also])[0].txn_versions
        if there.get(writer, -1) < commit and any(there.get(name, -1) >= number for name, number in also.items()):
            raise StoreError("someone else has added the same meanwhile; nothing was written") from None
        if there.get(writer, -1) < commit:
            raise
        check_same(backend, manifest, writer, commit, contents)
        return False
    with suppress(Evolved):  # it is in the store; coarser levels follow by the frame that the store has by now
        lagging = len(set(numbers)) > 1 or any(view.unfilled for view in views)
        if lagging and len(given) > 1:
            catch_up(backend, manifest)  # so that no commit of this writer is passed over
        else:
            _follow(backend, manifest, [view for view in views[1:] if view.level in given], parts, {writer: commit})
    return True


def _follow(
    backend: Backend,
    manifest: Manifest,
    views: Iterable[Snapshot],
    parts: Sequence[Part],
    txn_versions: Mapping[str, int],
) -> None:
    """Commit the parts of coarser levels."""
    for view in views:
        mine = [part for part in parts if part.level == view.level]
        try:
            commit_to(backend, manifest, view, mine, (), txn_versions)
        except Conflict:  # a compaction was faster
            catch_up(backend, manifest)
            break


def check_same(backend: Backend, manifest: Manifest, writer: str, commit: int, contents: Sequence[Content]) -> None:
    """Raise `StoreError` unless a number that a writer has come to was committed with these very states.

    Fingerprints are kept of the last `KEPT` commits of a writer; what cannot be told to be the same, is refused.
    """
    finest = manifest.frame.levels[0].name
    slots = [_slot(writer, at) for at in range(KEPT)]
    known = backend.view([finest], [writer, *slots])[0].txn_versions
    kept = {known[slot] for slot in slots if slot in known}
    if any(fingerprint(commit, content) in kept for content in contents):
        return
    last = known.get(writer, -1)
    if last == commit:
        what = f"holds other states under {writer!r}, commit {commit}"
    else:
        what = f"holds commit {last} of {writer!r}, and none of the last {KEPT} is a commit {commit} of these states"
    raise StoreError(
        f"the store {backend.place} {what}; a new batch needs a number above {last}, and a stream or job that begins "
        "anew a writer of its own"
    )


def _counter(writer: str) -> str:
    """Name the count of a writer's commits."""
    return f"{OWN}commits {writer}"


def _slot(writer: str, count: int) -> str:
    """Name the place of a fingerprint, which is used again after `KEPT` commits."""
    return f"{OWN}content {count % KEPT} {writer}"
