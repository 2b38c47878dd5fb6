"""Errors of a store, by kind: missing, damaged, refused or unreachable stores."""

from __future__ import annotations

PUBLIC_MODULE = "tiltframe.store"  # from which users import the errors, and which tracebacks name


class StoreError(ValueError):
    """A store cannot do a requested operation; the subclasses say why, others mean that it can never be done there."""

    __module__ = PUBLIC_MODULE


class MissingStore(StoreError):
    """There is no store, or it holds nothing yet."""

    __module__ = PUBLIC_MODULE


class DamagedStore(StoreError):
    """Stored data has changed since it was written, or is lost."""

    __module__ = PUBLIC_MODULE


class OtherFrame(StoreError):
    """The store is of another frame than was given, or its frame has evolved since it was opened."""

    __module__ = PUBLIC_MODULE


class CommitConflict(StoreError):
    """The number of a writer is taken by other states, or someone else has recorded the same meanwhile."""

    __module__ = PUBLIC_MODULE


class UnreachableStore(StoreError):
    """The store's place cannot be read or written."""

    __module__ = PUBLIC_MODULE


class Conflict(Exception):
    """Another commit has changed what a commit or a read was about; nothing was written. Take a new snapshot, retry."""
