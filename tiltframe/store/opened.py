"""An opened store: those members of `tiltframe.FrameStore` that the operations in `tiltframe.store.changes` need.

`tiltframe.FrameStore` has these operations as methods, and its module imports them. The modules of the operations
therefore cannot import `tiltframe.FrameStore`. They use this protocol as the type of the store.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from tiltframe.frame import TiltFrame

if TYPE_CHECKING:
    from tiltframe.exclusions import Note
    from tiltframe.spilled_states import Slices
    from tiltframe.store.backends.protocol import Backend
    from tiltframe.store.log.manifest import Manifest
    from tiltframe.store.query.query import Query


class OpenedStore(Protocol):
    """The members of `tiltframe.FrameStore` that the operations in `tiltframe.store.changes` use."""

    frame: TiltFrame
    jobs: int

    @property
    def backend(self) -> Backend:
        """The backend, through which the store is read and written."""

    @property
    def manifest(self) -> Manifest:
        """The manifest; raises `MissingStore` before the first commit."""

    def recorded(self, names: Iterable[str]) -> dict[str, Any]:
        """Return the values that commits have recorded under some names."""

    def last_commit(self, writer: str) -> int | None:
        """Return the last commit number of a writer."""

    def query_schema(self, query: Query) -> pa.Schema:
        """Return the schema of the results of a query; raise ``ValueError`` if the query is invalid."""

    def append_spilled(
        self,
        slices: Slices,
        writer: str,
        commit: int,
        recorded: Mapping[str, Any] | None = None,
        replacing: Mapping[str, Any] | None = None,
        note: Note | None = None,
    ) -> int | None:
        """Add the states of a rollup that was spilled to disk; see `tiltframe.FrameStore.append_spilled`."""

    def export(self, per: str | Sequence[str] | None = None, flat: bool = True, now: Any = None) -> dict[str, int]:
        """Store the results of levels as plain tables, or update these tables; see `tiltframe.FrameStore.export`."""

    def with_stored_types(
        self, schema: pa.Schema, change_numbers: bool = False, guessed: Collection[str] = ()
    ) -> pa.Schema:
        """Return a schema with types for columns of type null; see `tiltframe.FrameStore.with_stored_types`."""

    def check_states(self, states: pa.Schema) -> pa.Schema:
        """Raise an error if states of a schema cannot be added; return the schema with the types of the store."""

    def ensure_created(self, states: pa.Schema) -> Manifest:
        """Create the store if it does not exist, and check that it accepts states of a schema."""

    def create_if_missing(self, states: pa.Schema) -> Manifest:
        """Return the manifest of the store. If the store does not exist, create it first. ``states`` is a schema that
        `check_states` has returned.
        """
