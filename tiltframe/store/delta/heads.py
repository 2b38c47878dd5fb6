"""Heads: how far the logs of a store in a folder went when their last commit was acknowledged.

A head is an empty file ``tiltframe/_heads/TABLE.IDENTITY.VERSION``, made after the commit and before it is
acknowledged. One that is higher than its log has seen entries that the log has lost. A writer that is killed between
the two leaves a head that is too low, which does no harm. The name of a checkpoint's head ends in the checkpoint's
checksum.
Object stores do not lose what they have acknowledged, and have no heads.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_FOLDER = "_heads"


@dataclass(frozen=True)
class Head:
    """How far a log went; with a checksum, that of the checkpoint of this version."""

    table: str
    identity: str
    version: int
    checksum: str = ""

    @property
    def name(self) -> str:
        """The name of its file."""
        return ".".join(
            [self.table, self.identity, f"{self.version:020d}", *([self.checksum] if self.checksum else [])]
        )


def heads_in(folder: str) -> list[Head]:
    """Read the heads of a store; ``folder`` is that of its description. Files of other names are passed over."""
    try:
        names = os.listdir(os.path.join(folder, _FOLDER))
    except FileNotFoundError:
        return []
    return list(_heads(names))


def raise_head(folder: str, head: Head) -> None:
    """Note how far a log goes now, and forget what was noted of it before."""
    place = Path(folder, _FOLDER)
    place.mkdir(exist_ok=True)
    (place / head.name).touch()
    for other in heads_in(folder):
        same = other.table == head.table and bool(other.checksum) == bool(head.checksum)
        if same and (other.identity != head.identity or other.version < head.version):
            with suppress(FileNotFoundError):  # whoever else has committed removes them too
                (place / other.name).unlink()


def _heads(names: list[str]) -> Iterator[Head]:
    for name in names:
        table, *rest = name.split(".")
        if len(rest) in (2, 3) and rest[1].isascii() and rest[1].isdigit():
            yield Head(table, rest[0], int(rest[1]), *rest[2:])
