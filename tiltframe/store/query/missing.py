"""Warnings about a query: windows that have expired, and measures that were added later."""

from __future__ import annotations

import warnings
from collections.abc import Iterable


class Expired(UserWarning):
    """Windows of a query have expired in the level that is read."""


class NotKnown(UserWarning):
    """A query reads a measure in windows from before it was added to the store."""


def warn_of_missing(expired: Iterable[str], unknown: Iterable[str], stacklevel: int) -> None:
    """Warn about windows that have expired, and about measures that were added later."""
    for sentence in expired:
        warnings.warn(sentence, Expired, stacklevel=stacklevel + 1)
    for sentence in unknown:
        warnings.warn(sentence, NotKnown, stacklevel=stacklevel + 1)
