"""Writers: the numbers of their commits, and fingerprints of the states that their last commits brought."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from aggr.arguments import checked_whole, is_name, shown
from aggr.arrow.row_hash import row_hashes
from tiltframe.names import START
from tiltframe.store.log.manifest import Manifest
from tiltframe.store.log.records import OWN
from tiltframe.store.log.snapshot import Snapshot

Digest: TypeAlias = tuple[int, int]  # of the states that a commit brings: 64 bits each


def check_writer(writer: str, commit: int) -> int:
    """Check the name of a writer and the number of a commit.

    Parameters
    ----------
    writer : str
        Its name must not begin as the names of the store's own records do.
    commit : int
        From 0.

    Returns
    -------
    int
        The number.

    Raises
    ------
    ValueError
        Unless these can name a commit.

    Examples
    --------
    >>> check_writer("import", 7)
    7
    """
    if not is_name(writer) or writer.startswith(OWN):
        raise ValueError(f"a writer is named by text that does not begin with {OWN!r}; got {shown(writer)}")
    return checked_whole(commit, "a commit number, which grows with every commit,")


def digests_of(states: pa.Table, manifest: Manifest, *, of_earlier: bool) -> list[Digest]:
    """Sum up states of the finest level: with the columns of the frame, and optionally with those of earlier frames."""
    frame = manifest.frame
    named = [[column.name for column in frame.states], *(manifest.earlier if of_earlier else ())]
    fitting = [names for names in named if set(names) <= set(states.column_names)]
    return [states_digest(states, [START, *frame.keys, *names]) for names in fitting]


def states_digest(states: pa.Table, columns: Sequence[str]) -> Digest:
    """Sum up merged states of the finest level: window_start, keys and states, by name.

    One a window and key, they are canonical: the same rows give the same bits. So the sum of their hashes does not
    depend on batches, partitions, their order, or which attempt of a task wrote them.
    """
    if not states.num_rows:
        return 0, 0
    first, second = row_hashes([states.column(name) for name in columns]).sum(axis=1, dtype=np.uint64).tolist()
    return first, second


def total(digests: Iterable[Sequence[int]]) -> Digest:
    """Add up what several tasks have written for one commit.

    >>> total([(1, 2), (2**64 - 1, 3)])
    (0, 5)
    """
    first, second = 0, 0
    for low, high in digests:
        first, second = (first + low) % 2**64, (second + high) % 2**64
    return first, second


def negated(digest: Digest) -> Digest:
    """Return the digest of retracted states, which differs from that of added ones.

    >>> total([negated((1, 2**63)), (1, 2**63)])
    (0, 0)
    """
    first, second = digest
    return -first % 2**64, -second % 2**64


def fingerprint(number: int, digest: Sequence[int]) -> str:
    """Return sixteen digits that identify a commit."""
    return hashlib.sha256(f"{number} {digest[0]} {digest[1]}".encode()).hexdigest()[:16]


def last_commits(snapshot: Snapshot, writer: str) -> tuple[int, dict[str, str]]:
    """Read a writer's last number, -1 if it has none, and the fingerprints of its last commits by their numbers."""
    record = f"{OWN}writer {writer}"
    text = snapshot.text(record)
    if text is None:
        return -1, {}
    commits = json.loads(text)
    return commits["last"], commits["states"]
