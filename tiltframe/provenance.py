"""Provenance: states are stored together with a description of their frame, in the metadata of the column ``level``.
Before states are used with a frame, this description is compared with the description of that frame.

A state itself contains its function and parameters. It does not contain the column and the condition from which it was
computed, or the windows of the frame. The description contains them as a JSON object.
Filters, slices, unions, IPC, Parquet and Spark's DataFrames preserve the metadata. If another program has removed the
metadata, only the names and types of columns are checked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from aggr.arguments import shown
from aggr.arrow.normalize import normalized_type
from aggr.measure import from_description
from aggr.tables.state_plan import StateColumn, can_compute
from tiltframe.names import END, LEVEL, START

KEY = b"tiltframe"  # the key of a frame's description in the metadata of the field ``level``


def describe_states(column: StateColumn) -> dict[str, Any]:
    """Describe the measure from which a column of states was computed, as a dict that JSON can represent. Parameters
    that do not affect states, such as quantiles, are left out.
    """
    described = column.measure.describe()
    shaping = column.measure.function.own_state.parameters
    parameters = {name: value for name, value in described.pop("parameters", {}).items() if name in shaping}
    return described | ({"parameters": parameters} if parameters else {})


def with_provenance(described: Mapping[str, Any]) -> dict[bytes, bytes]:
    """Return the metadata of an Arrow field that contains a description."""
    return {KEY: json.dumps(described, sort_keys=True, separators=(",", ":")).encode()}


def description_in(field: pa.Field) -> dict[str, Any] | None:
    """Return the description in the metadata of a field, or None if it is missing or invalid."""
    try:
        described = json.loads((field.metadata or {})[KEY])
    except (KeyError, ValueError):
        return None
    return described if isinstance(described, dict) else None


def check_states(schema: pa.Schema, level_field: pa.Field, columns: Sequence[str], exactly: bool) -> None:
    """Raise ``ValueError`` if a schema is not the schema of states of a frame. ``level_field`` is the field of the
    column ``level`` in tables of the frame's states, and contains the description of the frame. ``columns`` are the
    names of all columns of such tables. `difference` describes ``exactly``. The types of the columns of states are not
    checked.
    """
    missing = [name for name in columns if name not in schema.names]
    if missing:
        raise ValueError(
            f"these are not states of this frame: they have no column {missing[0]!r}; pass states that were "
            "computed with this frame"
        )
    own_description = description_in(level_field)
    other_description = description_in(schema.field(LEVEL))
    if (
        own_description is not None
        and other_description is not None
        and (problem := difference(own_description, other_description, exactly))
    ):
        raise ValueError(
            f"these are not states of this frame: {problem}; pass states that were computed with this frame"
        )
    if normalized_type(schema.field(LEVEL).type) != pa.string():
        raise ValueError(f"the column {LEVEL!r} must have a text type; got {shown(schema.field(LEVEL).type)}")
    for name in (START, END):
        kind = schema.field(name).type
        if not pa.types.is_timestamp(kind) or kind.tz is None:
            raise ValueError(f"the column {name!r} must have the type timestamp with a time zone; got {shown(kind)}")


def difference(own: Mapping[str, Any], other: Mapping[str, Any], exactly: bool) -> str | None:
    """Compare ``own``, the description of a frame, with ``other``, the description of states. Return the first
    difference as a clause for a message, or None if the states can be used with the frame.

    If ``exactly`` is true, the two descriptions must have the same columns of states. If ``exactly`` is false, it
    suffices that each column of the frame can be computed from the column of the same name. Additional columns of
    states are then allowed.
    """
    for part in ("levels", "timezone", "time", "keys"):
        if own[part] != other.get(part):
            return f"{part} is {own[part]} in the frame and {other.get(part)} in the states"
    own_versions = own.get("versions", {})
    other_versions = other.get("versions", {})
    if own_versions != other_versions:
        return (
            f"the versions of window definitions are {own_versions or 1} in the frame and {other_versions or 1} in the "
            "states"
        )
    other_states = other.get("states", {})
    for name, own_state in own["states"].items():
        if name not in other_states:
            return f"they have no states {name!r} of {_call_text(own_state)}"
        if own_state != other_states[name] and (exactly or not _can_serve(other_states[name], own_state)):
            return (
                f"{name!r} is {_call_text(own_state)} in the frame and {_call_text(other_states[name])} in the states"
            )
    more = [name for name in other_states if name not in own["states"]] if exactly else []
    return f"the frame has no states {more[0]!r} of {_call_text(other_states[more[0]])}" if more else None


def state_difference(name: str, read_as: Mapping[str, Any], described_as: Mapping[str, Any]) -> str | None:
    """Return None if the states that ``read_as`` describes can be computed from the states that ``described_as``
    describes. Otherwise return the difference as a clause for a message. ``name`` is the name of the column of states.
    """
    if read_as == described_as or _can_serve(described_as, read_as):
        return None
    return f"{name!r} contains states of {_call_text(described_as)}, from which {_call_text(read_as)} cannot be read"


def _can_serve(other: Mapping[str, Any], own: Mapping[str, Any]) -> bool:
    """Return whether the states that ``own`` describes can be computed from the states that ``other`` describes."""
    try:
        return can_compute(from_description(dict(other)), from_description(dict(own)))
    except (LookupError, TypeError, ValueError):
        return False


def _call_text(described: Mapping[str, Any]) -> str:
    """Return the call that creates the described measure, such as ``sum('bytes')``, as text for a message."""
    arguments = [repr(described["column"])] if "column" in described else []
    other_members = {k: v for k, v in described.items() if k not in ("function", "column", "parameters")}
    named_arguments = described.get("parameters", {}) | other_members
    return f"{described.get('function')}({', '.join(arguments + [f'{k}={v!r}' for k, v in named_arguments.items()])})"
