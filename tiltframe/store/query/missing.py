"""Warnings about missing results: results of windows that have expired, or of measures that were added later."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tiltframe.caller_warnings import warn_caller
from tiltframe.ranges import as_text
from tiltframe.store.log.records import column_starts

if TYPE_CHECKING:
    from tiltframe.store.log.snapshot import Snapshot
    from tiltframe.store.query.answer import PlannedRead
    from tiltframe.store.query.plan import QueryPlan


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


def messages_of_missing_data(planned_read: PlannedRead, snapshot: Snapshot) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return two tuples of messages. The messages of the first tuple are about windows in the range that have expired.
    The messages of the second tuple are about measures that were added to the store later, and are null in a part of
    the range.
    """
    return _messages_of_expired(planned_read.plan, planned_read.retained_from), _messages_of_unknown(
        planned_read.plan, snapshot, planned_read.retained_from
    )


def _messages_of_expired(plan: QueryPlan, retained_from: int) -> tuple[str, ...]:
    if plan.within[0] >= retained_from:
        return ()
    level = plan.stored_level.name
    return (f"{level} has windows only from {as_text(retained_from)} on; query a coarser level for earlier windows",)


def _messages_of_unknown(plan: QueryPlan, snapshot: Snapshot, retained_from: int) -> tuple[str, ...]:
    starts = column_starts(snapshot)
    if not starts:
        return ()
    since = {name: starts[column] for name, (column, _) in plan.measures.items() if column in starts}
    return tuple(
        f"{name} was added at {as_text(at)}, and is null in earlier windows"
        for name, at in since.items()
        if max(plan.within[0], retained_from) < at
    )
