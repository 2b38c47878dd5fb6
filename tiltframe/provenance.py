"""Provenance: the description of the frame to which states belong. The description is stored in the metadata of the
column ``level``, and compared before states are used.

A column of states describes its function and parameters, but neither the column and condition that it was computed
from, nor the windows. The metadata of the field ``level`` has this information as a JSON object. Filters, slices,
unions, IPC, Parquet and Spark's DataFrames preserve it. If another program has dropped the metadata, only the names and
types of columns are checked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from aggr.measure import from_description
from aggr.tables.state_plan import StateColumn, holds

KEY = b"tiltframe"  # the key in the field's metadata


def describe_states(column: StateColumn) -> dict[str, Any]:
    """Return a description of a column of states as plain data. Parameters that only affect how results are read are
    left out.
    """
    described, shaping = column.measure.describe(), column.measure.function.own_state.parameters
    parameters = {name: value for name, value in described.pop("parameters", {}).items() if name in shaping}
    return described | ({"parameters": parameters} if parameters else {})


def with_provenance(described: Mapping[str, Any]) -> dict[bytes, bytes]:
    """Return a description in the form of a field's metadata."""
    return {KEY: json.dumps(described, sort_keys=True, separators=(",", ":")).encode()}


def description_in(field: pa.Field) -> dict[str, Any] | None:
    """Return the description in the metadata of a field, or None if it is missing or invalid."""
    try:
        described = json.loads((field.metadata or {})[KEY])
    except (KeyError, ValueError):
        return None
    return described if isinstance(described, dict) else None


def difference(own: Mapping[str, Any], other: Mapping[str, Any], exactly: bool) -> str | None:
    """Return the first difference between states and a frame, as a clause for a message, or None if they do not differ.

    Unless ``exactly`` is true, states that contain the frame's own states do not count as different.
    """
    for part in ("levels", "timezone", "time", "keys"):
        if own[part] != other.get(part):
            return f"{part} is {own[part]} in the frame and {other.get(part)} in the states"
    own_versions, other_versions = own.get("versions", {}), other.get("versions", {})
    if own_versions != other_versions:
        return f"windows have the versions {own_versions or 1} in the frame and {other_versions or 1} in the states"
    other_states = other.get("states", {})
    for name, own_state in own["states"].items():
        if name not in other_states:
            return f"they have no states {name!r} of {_call(own_state)}"
        if own_state != other_states[name] and (exactly or not _serves(other_states[name], own_state)):
            return f"{name!r} is {_call(own_state)} in the frame and {_call(other_states[name])} in the states"
    more = [name for name in other_states if name not in own["states"]] if exactly else []
    return f"the frame has no states {more[0]!r} of {_call(other_states[more[0]])}" if more else None


def state_difference(name: str, read_as: Mapping[str, Any], described_as: Mapping[str, Any]) -> str | None:
    """Return the difference between a column of states and the states to read from it, or None if they can be read."""
    if read_as == described_as or _serves(described_as, read_as):
        return None
    return f"{name!r} holds states of {_call(described_as)}, and {_call(read_as)} is read from it"


def _serves(other: Mapping[str, Any], own: Mapping[str, Any]) -> bool:
    """Return whether the states of one description contain the states of another."""
    try:
        return holds(from_description(dict(other)), from_description(dict(own)))
    except (LookupError, TypeError, ValueError):
        return False


def _call(described: Mapping[str, Any]) -> str:
    """Return a description as text in the form of the call that creates the function."""
    arguments = [repr(described["column"])] if "column" in described else []
    more = {k: v for k, v in described.items() if k not in ("function", "column", "parameters")}
    named = described.get("parameters", {}) | more
    return f"{described.get('function')}({', '.join(arguments + [f'{k}={v!r}' for k, v in named.items()])})"
