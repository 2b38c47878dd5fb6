"""Errors of a store, by kind: missing, damaged, refused or unreachable stores."""

from __future__ import annotations

PUBLIC_MODULE = "tiltframe.store"  # users import the errors from here, and tracebacks name it


class StoreError(ValueError):
    """A store cannot do a requested operation. Subclasses state the cause; this class itself means: not supported."""

    __module__ = PUBLIC_MODULE


class MissingStore(StoreError):
    """The store does not exist, or has no commit yet."""

    __module__ = PUBLIC_MODULE


class DamagedStore(StoreError):
    """Stored data has changed since it was written, or is lost."""

    __module__ = PUBLIC_MODULE


class OtherFrame(StoreError):
    """The store has another frame than the one that was passed, or its frame has changed since it was opened."""

    __module__ = PUBLIC_MODULE


class CommitConflict(StoreError):
    """Another commit has used the number of this writer for other states, or has recorded under the same name."""

    __module__ = PUBLIC_MODULE


class UnreachableStore(StoreError):
    """The store's place cannot be read or written."""

    __module__ = PUBLIC_MODULE


class Conflict(Exception):
    """Another commit has changed the data that a commit or a read depends on; nothing was written. Retry."""
