"""Warnings about missing results: results of windows that have expired, or of measures that were added later."""

from __future__ import annotations

from collections.abc import Iterable

from tiltframe.caller_warnings import warn_caller


class Expired(UserWarning):
    """A warning: some windows in the range of a query have expired on the level that the query reads, because of the
    retention of this level.
    """


class NotKnown(UserWarning):
    """A warning: a measure is null in some windows of a query, because it was added to the store later."""


def warn_of_missing(expired: Iterable[str], unknown: Iterable[str]) -> None:
    """Emit a warning `Expired` for each message in ``expired``, and `NotKnown` for each message in ``unknown``."""
    for sentence in expired:
        warn_caller(sentence, Expired)
    for sentence in unknown:
        warn_caller(sentence, NotKnown)
