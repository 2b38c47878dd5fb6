"""Running transactions: one is derived from a snapshot and committed, again and again until no other was faster."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Protocol, TypeVar

import pyarrow as pa

from tiltframe.store.log.errors import CommitConflict, Conflict, MissingStore
from tiltframe.store.log.snapshot import Part, Snapshot
from tiltframe.store.log.transaction import Transaction
from windows import TimeWindow

_TRIES = 200  # waits double from 5 ms to half a second, half of that on average: some 50 seconds in all

Result = TypeVar("Result")


class Log(Protocol):
    """The methods of `tiltframe.store.backends.protocol.Backend` that a transaction needs."""

    @property
    def display_uri(self) -> str:
        """The address of the store, for messages."""

    def snapshot(self, recorded: Iterable[str] | None = ()) -> Snapshot | None:
        """Return the store at this moment, None if it does not exist."""

    def write(self, level: TimeWindow, states: pa.Table) -> list[Part]:
        """Write states as parts that are not readable yet."""

    def discard(self, parts: Sequence[Part]) -> None:
        """Remove parts that will not be committed."""

    def commit(self, transaction: Transaction) -> int:
        """Make all changes at once, or raise `Conflict`."""


class Attempt(Transaction):
    """A transaction that writes parts itself: they are discarded if it is not committed."""

    def __init__(self, backend: Log, snapshot: Snapshot) -> None:
        """Begin with no changes."""
        super().__init__(snapshot)
        self._backend = backend
        self._written: list[Part] = []

    def write(self, level: TimeWindow, states: pa.Table) -> list[Part]:
        """Write states of a level and add their parts, which are returned."""
        parts = self._backend.write(level, states)
        self._written += parts
        self.adds(parts)
        return parts

    def discard(self) -> None:
        """Discard the parts that this attempt has written."""
        with suppress(Exception):  # the error that ends the attempt counts, and `vacuum` removes the parts too
            self._backend.discard(self._written)


def run(backend: Log, attempt: Callable[[Attempt], Result], records: Iterable[str] = ()) -> Result:
    """Derive a transaction from a new snapshot and commit it, until no other commit was faster.

    ``attempt`` fills the transaction and returns the result; ``records`` names the records that it reads or replaces.
    Raises `MissingStore` if there is no store, and `CommitConflict` if other commits were always faster.
    """
    names = tuple(records)

    def derive_and_commit() -> Result:
        snapshot = backend.snapshot(names)
        if snapshot is None:
            raise MissingStore(f"there is no store {backend.display_uri}")
        return commit_on(backend, snapshot, attempt)

    return retry_on_conflict(derive_and_commit)


def commit_on(backend: Log, snapshot: Snapshot, attempt: Callable[[Attempt], Result]) -> Result:
    """Derive a transaction from a snapshot and commit it once, unless it is empty; raises `Conflict` if it is refused.

    Parts that the attempt has written are discarded if it fails or is refused. If the commit fails otherwise, it may
    have happened, so nothing is discarded.
    """
    transaction = Attempt(backend, snapshot)
    try:
        result = attempt(transaction)
    except BaseException:
        transaction.discard()
        raise
    if transaction.is_empty:
        return result
    try:
        backend.commit(transaction)
    except Conflict:
        transaction.discard()
        raise
    return result


def retry_on_conflict(attempt: Callable[[], Result]) -> Result:
    """Call a function until it raises no `Conflict`; raises `CommitConflict` after many calls."""
    for tries in range(_TRIES):
        try:
            return attempt()
        except Conflict as conflict:
            last = conflict
            time.sleep(random.random() * min(0.005 * 2**tries, 0.5))
    raise CommitConflict(f"gave up after {_TRIES} tries, for others write at the same places all the time: {last}")
