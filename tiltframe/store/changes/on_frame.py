"""Transactions on a store whose frame has not changed since the store was opened."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from tiltframe.store.log.errors import OtherFrame
from tiltframe.store.log.manifest import Manifest, generation_in
from tiltframe.store.log.records import EXPIRED, KNOWN
from tiltframe.store.log.run import WritingTransaction, run_transaction

if TYPE_CHECKING:
    from tiltframe.store.backends.protocol import Backend, Snapshot

Result = TypeVar("Result")


def run_on_same_frame(
    backend: Backend, manifest: Manifest, attempt: Callable[[WritingTransaction], Result], records: Iterable[str] = ()
) -> Result:
    """Run a transaction like `run_transaction`; raise `OtherFrame` if the frame of the store has changed since
    ``manifest`` was read.

    The snapshot of each attempt contains the records named in ``records``, and the records `EXPIRED` and `KNOWN` of
    `tiltframe.store.log.records`.
    """

    def checked_attempt(transaction: WritingTransaction) -> Result:
        check_frame(transaction.snapshot, manifest, backend)
        return attempt(transaction)

    return run_transaction(backend, checked_attempt, [EXPIRED, KNOWN, *records])


def check_frame(snapshot: Snapshot, manifest: Manifest, backend: Backend) -> None:
    """Raise `OtherFrame` if a store's frame has changed since ``manifest`` was read."""
    if generation_in(snapshot.manifest) == manifest.generation:
        return
    now = Manifest.from_dict(snapshot.manifest, backend.display_uri)
    difference = manifest.frame.difference(now.frame) or "its states have another layout"
    raise OtherFrame(
        f"the frame of the store {backend.display_uri} has changed since it was opened here: {difference}; nothing "
        f"was written; open the store again"
    )
