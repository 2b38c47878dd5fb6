"""The address of a store: a URI with its options, or a backend that the caller has created."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from aggr.arguments import checked_truth
from tiltframe.store.backends.open import absolute_uri, backend_at, check_options, checked_uri
from tiltframe.store.backends.protocol import Backend


@dataclass(frozen=True)
class StoreAddress:
    """The location of a store, and the options with which it is opened.

    Parameters
    ----------
    location : str or Backend
        A URI that `tiltframe.store.backends.open` can open, or a backend of the caller.
    storage_options : str -> str
        Options of the object store. Empty if the location is a backend.
    durable : bool
        Whether commits to a folder are written to the disk before they are acknowledged.
    """

    # The location and the storage options may contain passwords, so they are not part of the repr.
    location: str | Backend = field(repr=False)
    storage_options: Mapping[str, str] = field(repr=False)
    durable: bool

    @property
    def uri(self) -> str:
        """The URI as it was passed. It may contain a password."""
        return self.location if isinstance(self.location, str) else self.location.uri

    def open_backend(self, name: str) -> Backend:
        """Return the backend of the store, without reading from it. In a database with several stores, ``name`` selects
        one; an empty text selects the only store.
        """
        if isinstance(self.location, str):
            return backend_at(self.location, name, self.storage_options, self.durable)
        return self.location

    def absolute(self) -> StoreAddress:
        """Return the address with the absolute path of its folder, for processes in other working directories."""
        return replace(self, location=absolute_uri(self.location)) if isinstance(self.location, str) else self


def checked_address(
    location: str | os.PathLike[str] | Backend, storage_options: Mapping[str, str] | None, durable: bool
) -> StoreAddress:
    """Check the arguments with which a user names a store, and return its address. Raise ``ValueError`` if one of them
    is invalid, or if options are passed together with a backend, which has its own options.
    """
    address = StoreAddress(
        location=location if isinstance(location, Backend) else checked_uri(location),
        storage_options=check_options(storage_options),
        durable=checked_truth(durable, "durable"),
    )
    if isinstance(location, Backend) and (address.storage_options or address.durable):
        raise ValueError("storage_options and durable cannot be used with a backend; pass them to the backend itself")
    return address
