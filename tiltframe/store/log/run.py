"""Running transactions: derive a transaction from a snapshot and commit it. If it conflicts with another commit, both
steps are repeated.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, TypeVar

import pyarrow as pa

from tiltframe.store.log.errors import CommitConflict, Conflict, MissingStore
from tiltframe.store.log.records import COLUMN_STARTS, EXPIRED, WATERMARKS
from tiltframe.store.log.transaction import Transaction
from windows import TimeWindow

if TYPE_CHECKING:
    from tiltframe.store.log.manifest import Manifest
    from tiltframe.store.log.snapshot import Part, Snapshot

# The maximum number of attempts. After a failed attempt, `retry_on_conflict` waits for a random time. The upper bound
# of this time is 5 ms after the first attempt, and doubles with each attempt up to 0.5 s. All waits together take about
# 50 s.
_MAX_ATTEMPTS = 200

Result = TypeVar("Result")


class Log(Protocol):
    """The methods of `tiltframe.store.backends.protocol.Backend` that transactions need."""

    @property
    def display_uri(self) -> str:
        """The address of the store, for messages."""

    def snapshot(self, recorded: Iterable[str] | None = ()) -> Snapshot | None:
        """Return a snapshot of the current store, or None if the store does not exist."""

    def write(self, level: TimeWindow, states: pa.Table) -> list[Part]:
        """Write states as parts that readers do not see yet; return the parts."""

    def discard(self, parts: Sequence[Part]) -> None:
        """Remove parts that will not be committed."""

    def commit(self, transaction: Transaction) -> int:
        """Apply all changes atomically, or raise `Conflict`."""


class WritingTransaction(Transaction):
    """A transaction that can write parts, and remove these parts again if it is not committed.

    A part is a set of states of one level that were stored together. Readers do not see a part before it is committed.
    """

    def __init__(self, backend: Log, snapshot: Snapshot) -> None:
        """Create a transaction without changes."""
        super().__init__(snapshot)
        self._backend = backend
        self._written: list[Part] = []

    def write(self, level: TimeWindow, states: pa.Table) -> list[Part]:
        """Write states of a level, add the written parts to the transaction, and return these parts."""
        parts = self._backend.write(level, states)
        self._written += parts
        self.adds(parts)
        return parts

    def discard(self) -> None:
        """Discard the parts that this transaction has written."""
        # An error of the backend is ignored, because the caller raises the error that made the attempt fail. Parts that
        # remain are removed by a later `vacuum`.
        with suppress(Exception):
            self._backend.discard(self._written)


def run_transaction(
    backend: Log, attempt: Callable[[WritingTransaction], Result], records: Iterable[str] = ()
) -> Result:
    """Derive a transaction from a new snapshot and commit it. If it conflicts with another commit, repeat both steps.

    ``attempt`` receives the transaction, adds changes to it, and returns a value, which `run_transaction` also returns.
    ``records`` are the names of the records that the transaction reads or replaces. Raise `MissingStore` if the store
    does not exist, and `CommitConflict` if every attempt conflicts with another commit.
    """
    names = tuple(records)
    return retry_on_conflict(lambda: commit_on(backend, _required_snapshot(backend, names), attempt))


def run_if_frame_unchanged(
    backend: Log, manifest: Manifest, attempt: Callable[[WritingTransaction], Result], records: Iterable[str] = ()
) -> Result:
    """Run a transaction like `run_transaction`; raise `OtherFrame` if the frame of the store has changed since
    ``manifest`` was read.

    The snapshot of each attempt contains the records `EXPIRED` and `COLUMN_STARTS`, and the records named in
    ``records``.
    """

    def checked_attempt(transaction: WritingTransaction) -> Result:
        manifest.check_frame_unchanged(transaction.snapshot.manifest, backend.display_uri)
        return attempt(transaction)

    return run_transaction(backend, checked_attempt, [EXPIRED, COLUMN_STARTS, *records])


def snapshot_of(backend: Log, recorded: Iterable[str] = ()) -> Snapshot:
    """Return a snapshot of a store with the records `EXPIRED`, `COLUMN_STARTS` and `WATERMARKS`, and the records named
    in ``recorded``. Raise `MissingStore` if the store does not exist.
    """
    return _required_snapshot(backend, (EXPIRED, COLUMN_STARTS, WATERMARKS, *recorded))


def _required_snapshot(backend: Log, names: Iterable[str]) -> Snapshot:
    """Return a snapshot of a store with the named records. Raise `MissingStore` if the store does not exist."""
    snapshot = backend.snapshot(names)
    if snapshot is None:
        raise MissingStore(
            f"there is no store {backend.display_uri}; correct its address, or create it with a first commit"
        )
    return snapshot


def commit_on(backend: Log, snapshot: Snapshot, attempt: Callable[[WritingTransaction], Result]) -> Result:
    """Call ``attempt`` with a new transaction on a snapshot, and try once to commit the transaction. An empty
    transaction is not committed. Raise `Conflict` if another commit has changed data that the transaction depends on.

    If ``attempt`` raises an error, or the commit raises `Conflict`, the parts that were written are discarded. After
    any other error of the commit, they are kept, because the commit may have been applied.
    """
    transaction = WritingTransaction(backend, snapshot)
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
    """Call ``attempt`` until it does not raise `Conflict`, and return its result. Raise `CommitConflict` after a
    maximum number of calls.
    """
    for failed_attempts in range(_MAX_ATTEMPTS):
        try:
            return attempt()
        except Conflict as conflict:
            last = conflict
            time.sleep(random.random() * min(0.005 * 2**failed_attempts, 0.5))
    raise CommitConflict(
        f"gave up after {_MAX_ATTEMPTS} attempts, because other processes keep writing to the same ranges; try again "
        f"later: {last}"
    )
