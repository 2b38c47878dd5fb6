"""Warnings about missing results: results of windows that have expired, or of measures that were added later."""

from __future__ import annotations

import warnings
from collections.abc import Iterable


class Expired(UserWarning):
    """A warning: some windows in the range of a query have expired on the level that the query reads, because of its
    retention.
    """


class NotKnown(UserWarning):
    """A warning: a measure is null in some windows of a query, because it was added to the store later."""


def warn_of_missing(expired: Iterable[str], unknown: Iterable[str], stacklevel: int) -> None:
    """Emit a warning `Expired` for each message in ``expired``, and `NotKnown` for each in ``unknown``. The warnings
    name the caller at ``stacklevel``, as in `warnings.warn`; 1 is the caller of this function.
    """
    for sentence in expired:
        warnings.warn(sentence, Expired, stacklevel=stacklevel + 1)
    for sentence in unknown:
        warnings.warn(sentence, NotKnown, stacklevel=stacklevel + 1)
