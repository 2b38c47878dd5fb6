"""Errors of a store by cause, such as a missing, damaged or unreachable store."""

from __future__ import annotations

PUBLIC_MODULE = "tiltframe.store"  # users import the errors from this module, and tracebacks show its name


class StoreError(ValueError):
    """A store cannot perform an operation. Subclasses name the cause. This class itself means that the operation is not
    supported.
    """

    __module__ = PUBLIC_MODULE


class MissingStore(StoreError):
    """The store does not exist, or has no commit yet."""

    __module__ = PUBLIC_MODULE


class DamagedStore(StoreError):
    """Stored data has changed since it was written, or is lost."""

    __module__ = PUBLIC_MODULE


class OtherFrame(StoreError):
    """The store has another frame than the one that was passed, or its frame has changed since the store was opened."""

    __module__ = PUBLIC_MODULE


class CommitConflict(StoreError):
    """Another commit has used the writer's number for other states, or has written a record of the same name."""

    __module__ = PUBLIC_MODULE


class UnreachableStore(StoreError):
    """The place of the store cannot be read or written."""

    __module__ = PUBLIC_MODULE


class Conflict(Exception):
    """Another commit has changed data that a commit or a read depends on. Nothing was written. Retry."""
