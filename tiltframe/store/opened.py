"""An opened store: those members of `tiltframe.FrameStore` that the operations in `tiltframe.store.changes` need.

The operations are also methods of `tiltframe.FrameStore`, whose module imports them. They therefore cannot import this
class.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Protocol

import pyarrow as pa

from tiltframe.frame import TiltFrame
from tiltframe.store.backends.protocol import Backend
from tiltframe.store.log.manifest import Manifest


class OpenedStore(Protocol):
    """The members of `tiltframe.FrameStore` that the operations use."""

    frame: TiltFrame

    @property
    def backend(self) -> Backend:
        """The backend, through which the store is read and written."""

    @property
    def manifest(self) -> Manifest:
        """The manifest; raises `MissingStore` before the first commit."""

    def recorded(self, names: Iterable[str]) -> dict[str, Any]:
        """Return some of the records."""

    def last_commit(self, writer: str) -> int | None:
        """Return the last commit number of a writer."""

    def settled(self, schema: pa.Schema, of_numbers: bool = False, guessed: Collection[str] = ()) -> pa.Schema:
        """Return a schema of rows with the types that lead to the states of the store."""

    def check_states(self, states: pa.Schema) -> pa.Schema:
        """Raise an error if states of a schema cannot be added."""

    def ensure_created(self, states: pa.Schema) -> Manifest:
        """Create the store, if it does not exist, for states of a schema."""

    def created_for(self, states: pa.Schema) -> Manifest:
        """Create the store, if it does not exist, for states of a checked schema."""
