"""Errors of a store by cause, such as a missing, damaged or unreachable store."""

from __future__ import annotations

# Users import the errors from this module, so tracebacks show its name.
PUBLIC_MODULE = "tiltframe.store"


class StoreError(ValueError):
    """A store cannot perform an operation. Each subclass stands for one cause. An error of this class itself has
    another cause, such as an operation that is not supported.
    """

    __module__ = PUBLIC_MODULE


class MissingStore(StoreError):
    """The store does not exist, or has no commit yet."""

    __module__ = PUBLIC_MODULE


class DamagedStore(StoreError):
    """Stored data has changed since it was written, or is lost."""

    __module__ = PUBLIC_MODULE


class OtherFrame(StoreError):
    """The frame that was passed differs from the frame of the store, or the frame of the store has changed since the
    store was opened.
    """

    __module__ = PUBLIC_MODULE


class CommitConflict(StoreError):
    """A commit was not applied because of other commits.

    For example, another commit has used the writer's commit number for other states, or has recorded a value under a
    name that this commit also writes. The error is also raised if the commit conflicted with other commits in every
    attempt.
    """

    __module__ = PUBLIC_MODULE


class UnreachableStore(StoreError):
    """The folder, object store or database of the store cannot be read or written."""

    __module__ = PUBLIC_MODULE


class Conflict(Exception):
    """Another commit has changed data that a commit or a read depends on. Nothing was written, and the operation can be
    repeated.
    """
