"""Ends: a log that ends before it is known to have gone has lost entries.

How far a log went is known from its head, and from the other logs of the store, whose entries say what they have seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from deltalake.exceptions import TableNotFoundError

from tiltframe.store.core.backend import StoreError
from tiltframe.store.delta.heads import Head, heads_in, raise_head
from tiltframe.store.delta.log import clear
from tiltframe.store.delta.table import Live


@dataclass(frozen=True)
class Ends:
    """The heads of a store; ``folder`` is that of its description. None in an object store."""

    folder: str
    heads: tuple[Head, ...]

    @classmethod
    def of(cls, folder: str) -> Ends:
        """Read the heads that there are."""
        return cls(folder, () if "://" in folder else tuple(heads_in(folder)))

    def raise_head(self, live: Live, version: int) -> None:
        """Note that the log of a table goes to a version; note the checksum of a checkpoint there, too."""
        if "://" in self.folder:
            return
        raise_head(self.folder, Head(live.name, live.identity, version))
        if checksum := live.checkpoint(version):
            raise_head(self.folder, Head(live.name, live.identity, version, checksum))

    def checkpoints(self, name: str) -> dict[int, str]:
        """Return the checksums of a table's checkpoints."""
        return {head.version: head.checksum for head in self.heads if head.table == name and head.checksum}


def check_ends(store: str, finest: str, lives: Sequence[Live], ends: Ends) -> None:
    """Raise `StoreError` for the first of `lost_ends`."""
    for problem in lost_ends(store, finest, lives, ends):
        raise StoreError(problem)


def lost_ends(store: str, finest: str, lives: Sequence[Live], ends: Ends) -> Iterator[str]:
    """Say in a sentence each where a log ends before the heads, or the other logs, say that it went.

    Parameters
    ----------
    finest : str
        The table of the finest level, which cannot be derived anew.
    lives : tables that are open
        That of the description too.
    """
    open_now = {live.name: live for live in lives}
    for name, identity, version in _known(lives, ends):
        live = open_now.get(name)
        if live is not None and live.identity == identity and not live.reaches(version):
            yield _lost(store, live, version, name == finest)
        if live is None and name == finest:
            yield f"the store {store} is damaged: its level {name.rpartition('_')[2]} is lost"


def ends_of(lives: Sequence[Live], but: Live) -> dict[str, tuple[str, int]]:
    """Say how far logs went when they were last looked at, all but one."""
    return {live.name: (live.identity, live.reached) for live in lives if live is not but}


def log_problems(store: str, names: Sequence[str], options: Sequence[tuple[str, str]], ends: Ends) -> list[str]:
    """Verify every entry of the logs of tables: that of the description, then the levels from the finest on."""
    lives, found = [], []
    for name in names:
        described = name == names[0]
        try:
            with clear(store), suppress(TableNotFoundError):
                live = Live.open(store, name, options, ends.checkpoints(name), described)
                found += live.problems()
                lives.append(live)
        except StoreError as error:
            found.append(str(error))
    opened = {live.name for live in lives}
    lost = lost_ends(store, names[1] if names[1] in opened or not found else "", lives, ends)
    return list(dict.fromkeys([*found, *lost]))


def _known(lives: Sequence[Live], ends: Ends) -> Iterator[tuple[str, str, int]]:
    for head in ends.heads:
        yield head.table, head.identity, head.version
    for live in lives:
        for (name, identity), version in live.seen.items():
            yield name, identity, version


def _lost(store: str, live: Live, version: int, finest: bool) -> str:
    derive = "" if finest or live.described else f", or remove the folder {live.name} and derive it anew with rebuild()"
    return (
        f"the store {store} is damaged: the log of {live.name} ends at {live.table.version()}, and went to {version}: "
        f"its last entries are lost; restore them from a backup{derive}"
    )
