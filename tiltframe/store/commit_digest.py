"""Commit digests: what a commit brought, as a sum over its states, so that the same batch is known when it comes again.

The states of the finest level, one a window and key, are canonical: the same rows give the same bits. So the sum of
their hashes does not depend on batches, partitions, their order, or which attempt of a task wrote them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from aggr.arrow.row_hash import row_hashes

Digest: TypeAlias = tuple[int, int]  # of 64 bits each

NOTHING: Digest = (0, 0)


def states_digest(states: pa.Table, columns: Sequence[str]) -> Digest:
    """Sum up merged states of one level: window_start, keys and states, by name."""
    if not states.num_rows:
        return NOTHING
    first, second = row_hashes([states.column(name) for name in columns]).sum(axis=1, dtype=np.uint64).tolist()
    return first, second


def total(digests: Iterable[Sequence[int]]) -> Digest:
    """Add up what several tasks have written for one commit.

    >>> total([(1, 2), (2**64 - 1, 3)])
    (0, 5)
    """
    first, second = 0, 0
    for one, other in digests:
        first, second = (first + one) % 2**64, (second + other) % 2**64
    return first, second


def negated(digest: Digest) -> Digest:
    """Tell states that are taken out from those that are brought.

    >>> total([negated((1, 2**63)), (1, 2**63)])
    (0, 0)
    """
    first, second = digest
    return -first % 2**64, -second % 2**64


def fingerprint(number: int, digest: Sequence[int]) -> str:
    """Tell a commit by sixteen digits."""
    return hashlib.sha256(f"{number} {digest[0]} {digest[1]}".encode()).hexdigest()[:16]
