"""Errors of a store, by kind: a server can tell what is missing from what is damaged, refused or out of reach."""

from __future__ import annotations


class StoreError(ValueError):
    """A store cannot do what is asked of it; the subclasses say why, others mean that it can never be done there."""


class MissingStore(StoreError):
    """There is no store, or it holds nothing yet."""


class DamagedStore(StoreError):
    """What is stored is not as it was written, or lost."""


class OtherFrame(StoreError):
    """The store is of another frame than was given, or its frame has evolved since it was opened."""


class CommitConflict(StoreError):
    """The number of a writer is taken by other states, or someone else has recorded the same meanwhile."""


class UnreachableStore(StoreError):
    """The store's place cannot be read or written."""


class Conflict(Exception):
    """Another commit has changed what a commit or a read was about; nothing was written. Take a new snapshot, retry."""
