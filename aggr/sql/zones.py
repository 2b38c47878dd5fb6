"""Zones: a time is an instant, and the time zone in its Arrow type determines its hour, day and date.

A local time is converted to the first instant that has this local time or a later one. For a repeated time, this is the
earlier instant; for a skipped time, it is the instant of the transition. Days therefore begin at the same instants as
windows.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from aggr.sql.term import Term, Value, apply

UTC = "UTC"


def follows_clock(kind: pa.DataType) -> bool:
    """Return whether a type is a timestamp with a time zone other than UTC."""
    return bool(pa.types.is_timestamp(kind) and kind.tz not in (None, UTC))


def in_zone(kind: pa.DataType, zone: str) -> pa.DataType:
    """Return the type ``kind`` with the zone ``zone``, if it is a timestamp. With UTC, the type is unchanged."""
    return pa.timestamp(kind.unit, zone) if pa.types.is_timestamp(kind) and zone != UTC else kind


def localize(term: Term, zone: str) -> Term:
    """Return a term whose times without a zone are interpreted as local times of ``zone``.

    Such times result from dates, for example from a date plus an interval. With UTC, the term is unchanged.
    """
    if zone == UTC or not pa.types.is_timestamp(term.type) or term.type.tz is not None:
        return term
    return apply(lambda value: from_local(value, zone), term, kind=in_zone(term.type, zone))


def from_local(local: Value, zone: str) -> Value:
    """Return the first instant at which the clock of ``zone`` shows each time in ``local``, or a later time."""
    return pc.assume_timezone(local, zone, ambiguous="earliest", nonexistent="latest")
