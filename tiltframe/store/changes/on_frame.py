"""Transactions on a store that still has the frame by which it was opened."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from tiltframe.store.backends.protocol import EXPIRED, KNOWN, Backend, Snapshot
from tiltframe.store.log.errors import OtherFrame
from tiltframe.store.log.manifest import Manifest, generation_in
from tiltframe.store.log.run import Attempt, run

Result = TypeVar("Result")


def run_on_frame(
    backend: Backend, manifest: Manifest, attempt: Callable[[Attempt], Result], records: Iterable[str] = ()
) -> Result:
    """Run a transaction as `run` does; raises `OtherFrame` if the frame has evolved.

    Its snapshots have the named records, and those about expiry and added states (`tiltframe.store.log.records`).
    """

    def checked_attempt(transaction: Attempt) -> Result:
        check_frame(transaction.snapshot, manifest, backend)
        return attempt(transaction)

    return run(backend, checked_attempt, [EXPIRED, KNOWN, *records])


def check_frame(snapshot: Snapshot, manifest: Manifest, backend: Backend) -> None:
    """Raise `OtherFrame` if a store's frame has evolved since it was opened."""
    if generation_in(snapshot.manifest) == manifest.generation:
        return
    now = Manifest.from_dict(snapshot.manifest, backend.display_uri)
    difference = manifest.frame.difference(now.frame) or "its states are kept otherwise"
    raise OtherFrame(
        f"the frame of the store {backend.display_uri} has evolved since it was opened here: {difference}; nothing was "
        "written, open the store again"
    )
