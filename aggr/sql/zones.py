"""Zones: times are instants, and a zone's clock tells their hours, days and dates; the zone is in their Arrow type.

A local time is the first instant at which the clock shows it, or a later one: of a repeated time the earlier, of a
skipped one the instant of the change. So days begin where windows do.
"""

from __future__ import annotations

from zoneinfo import ZoneInfo, available_timezones

import pyarrow as pa
import pyarrow.compute as pc

from aggr.arguments import nearest, shown
from aggr.sql.term import Term, Value, apply, null

UTC = "UTC"
_CLOCK_UNITS = ("HOUR", "MINUTE", "SECOND")


def follows_clock(kind: pa.DataType) -> bool:
    """Say whether a type is of times that are read on the clock of another zone than UTC."""
    return bool(pa.types.is_timestamp(kind) and kind.tz not in (None, UTC))


def in_zone(kind: pa.DataType, zone: str) -> pa.DataType:
    """Give the type of times on the clock of a zone; in UTC, and of anything else, the type itself."""
    return pa.timestamp(kind.unit, zone) if pa.types.is_timestamp(kind) and zone != UTC else kind


def at_zone(term: Term, zone: str) -> Term:
    """Read times on the clock of a zone that an expression names: ``ts AT TIME ZONE 'Europe/Berlin'``."""
    try:
        ZoneInfo(zone)
    except (KeyError, ValueError, OSError):
        hint = nearest(zone, available_timezones(), "use an IANA name such as 'Europe/Berlin'")
        raise ValueError(f"there is no time zone {shown(zone)}; {hint}") from None
    if term.null:
        return null(pa.timestamp("us", zone))
    if not pa.types.is_timestamp(term.type):
        raise ValueError(f"a time zone is of times, got {term.type}; CAST it AS TIMESTAMP")
    kind = pa.timestamp(term.type.unit, zone)
    return apply(lambda value: value.cast(kind), term, kind=kind)


def localized(term: Term, zone: str) -> Term:
    """Take what was computed of dates, such as a date and an interval, as times on the clock of a zone."""
    if zone == UTC or not pa.types.is_timestamp(term.type) or term.type.tz is not None:
        return term
    return apply(lambda value: from_local(value, zone), term, kind=in_zone(term.type, zone))


def from_local(local: Value, zone: str) -> Value:
    """Find the first instants at which a zone's clock shows local times, or later ones."""
    return pc.assume_timezone(local, zone, ambiguous="earliest", nonexistent="latest")


def dated(value: Value) -> Value:
    """Read the date that the clock shows."""
    return pc.floor_temporal(pc.local_timestamp(value), unit="day").cast(pa.date32())


def floored_in_zone(value: Value, kind: pa.DataType, unit: str) -> Value:
    """Round down to a unit of the clock; an hour that the clock repeats stays one of its own."""
    local = pc.local_timestamp(value)
    floor = pc.floor_temporal(local, unit=unit.lower())
    first = from_local(floor, kind.tz)
    if unit.upper() not in _CLOCK_UNITS:
        return first
    passed = pc.subtract(local.cast(pa.int64()), floor.cast(pa.int64()))
    near = pc.subtract(value.cast(pa.int64()), passed).cast(kind)
    return pc.if_else(pc.equal(pc.local_timestamp(near), floor), near, first)
