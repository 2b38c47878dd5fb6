"""Zones: times are instants, and a zone's clock gives their hours, days and dates; the zone is in their Arrow type.

A local time is the first instant at which the clock shows it, or a later one: of a repeated time the earlier, of a
skipped one the instant of the change. So days begin where windows do.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from aggr.sql.term import Term, Value, apply

UTC = "UTC"


def follows_clock(kind: pa.DataType) -> bool:
    """Return whether a type is of times that are read on the clock of another zone than UTC."""
    return bool(pa.types.is_timestamp(kind) and kind.tz not in (None, UTC))


def in_zone(kind: pa.DataType, zone: str) -> pa.DataType:
    """Return the type of times on the clock of a zone; in UTC, and of anything else, the type itself."""
    return pa.timestamp(kind.unit, zone) if pa.types.is_timestamp(kind) and zone != UTC else kind


def localized(term: Term, zone: str) -> Term:
    """Interpret results computed from dates, such as a date plus an interval, as times on the clock of a zone."""
    if zone == UTC or not pa.types.is_timestamp(term.type) or term.type.tz is not None:
        return term
    return apply(lambda value: from_local(value, zone), term, kind=in_zone(term.type, zone))


def from_local(local: Value, zone: str) -> Value:
    """Find the first instants at which a zone's clock shows local times, or later ones."""
    return pc.assume_timezone(local, zone, ambiguous="earliest", nonexistent="latest")
