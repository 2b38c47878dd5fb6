"""Warnings about a query: windows that have expired, and measures that were added later."""

from __future__ import annotations

import warnings
from collections.abc import Iterable


class Expired(UserWarning):
    """A warning: windows in the range of a query have expired on the level from which the query reads."""


class NotKnown(UserWarning):
    """A warning: a query includes windows with rows from before a measure was added to the store."""


def warn_of_missing(expired: Iterable[str], unknown: Iterable[str], stacklevel: int) -> None:
    """Warn about windows that have expired, and about measures that were added later."""
    for sentence in expired:
        warnings.warn(sentence, Expired, stacklevel=stacklevel + 1)
    for sentence in unknown:
        warnings.warn(sentence, NotKnown, stacklevel=stacklevel + 1)
