"""Provenance: which frame states are of, written on their column ``level`` and compared before they are used.

A column of states contains its function and parameters, but not which rows were counted, in which windows. That is
metadata of the field ``level``: a JSON object, which filters, slices, unions, IPC, Parquet and Spark's DataFrames keep.
Where something on the way has dropped it, the information in the data itself is still checked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from aggr.measure import from_description
from aggr.tables.state_plan import StateColumn, holds

KEY = b"tiltframe"  # of the field's metadata


def describe_states(column: StateColumn) -> dict[str, Any]:
    """Describe what shapes a column of states as plain data; parameters that only read are left out."""
    described, shaping = column.measure.describe(), column.measure.function.own_state.parameters
    parameters = {name: value for name, value in described.pop("parameters", {}).items() if name in shaping}
    return described | ({"parameters": parameters} if parameters else {})


def with_provenance(described: Mapping[str, Any]) -> dict[bytes, bytes]:
    """Write a description as the metadata of a field."""
    return {KEY: json.dumps(described, sort_keys=True, separators=(",", ":")).encode()}


def description_in(field: pa.Field) -> dict[str, Any] | None:
    """Read the description from the metadata of a field; None if there is none that can be read."""
    try:
        described = json.loads((field.metadata or {})[KEY])
    except (KeyError, ValueError):
        return None
    return described if isinstance(described, dict) else None


def difference(own: Mapping[str, Any], other: Mapping[str, Any], exactly: bool) -> str | None:
    """Name the first thing in which states differ from a frame's; None if they do not.

    Unless ``exactly``, it is enough that the frame can read its own states from them.
    """
    for part in ("levels", "timezone", "time", "keys"):
        if own[part] != other.get(part):
            return f"{part} is {own[part]} in the frame and {other.get(part)} in the states"
    other_states = other.get("states", {})
    for name, own_state in own["states"].items():
        if name not in other_states:
            return f"they have no states {name!r} of {_call(own_state)}"
        if own_state != other_states[name] and (exactly or not _serves(other_states[name], own_state)):
            return f"{name!r} is {_call(own_state)} in the frame and {_call(other_states[name])} in the states"
    more = [name for name in other_states if name not in own["states"]] if exactly else []
    return f"the frame has no states {more[0]!r} of {_call(other_states[more[0]])}" if more else None


def state_difference(name: str, read_as: Mapping[str, Any], described_as: Mapping[str, Any]) -> str | None:
    """Name the difference of a column of states from the one that is read; None if it can be read from it."""
    if read_as == described_as or _serves(described_as, read_as):
        return None
    return f"{name!r} holds states of {_call(described_as)}, and {_call(read_as)} is read from it"


def _serves(other: Mapping[str, Any], own: Mapping[str, Any]) -> bool:
    """Say whether states of one description hold what those of another are read for."""
    try:
        return holds(from_description(dict(other)), from_description(dict(own)))
    except (LookupError, TypeError, ValueError):
        return False


def _call(described: Mapping[str, Any]) -> str:
    """Write a description as the call that would make it."""
    arguments = [repr(described["column"])] if "column" in described else []
    more = {k: v for k, v in described.items() if k not in ("function", "column", "parameters")}
    named = described.get("parameters", {}) | more
    return f"{described.get('function')}({', '.join(arguments + [f'{k}={v!r}' for k, v in named.items()])})"
