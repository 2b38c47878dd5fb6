"""Errors of a store, by kind: a server can tell what is missing from what is damaged, refused or out of reach."""

from __future__ import annotations

PUBLIC_MODULE = "tiltframe.store"  # from which users import the errors, and which tracebacks name


class StoreError(ValueError):
    """A store cannot do what is asked of it; the subclasses say why, others mean that it can never be done there."""

    __module__ = PUBLIC_MODULE


class MissingStore(StoreError):
    """There is no store, or it holds nothing yet."""

    __module__ = PUBLIC_MODULE


class DamagedStore(StoreError):
    """What is stored is not as it was written, or lost."""

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
