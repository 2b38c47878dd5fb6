"""The description of a frame: plain data that JSON can represent, from which the frame is created again. Two frames
are equal if their levels and their descriptions are equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aggr import Measure, UnknownFunction, from_description
from aggr.arguments import checked_mapping, shortened, shown
from aggr.tables.keys import keys_to_json
from aggr.tables.state_plan import StateColumn
from windows import TimeWindow

_REQUIRED_MEMBERS = ("levels", "time", "keys", "timezone", "measures")


def describe_frame(
    *,
    levels: Sequence[TimeWindow],
    time: str,
    keyed_by: Mapping[str, str],
    timezone: str,
    results: Mapping[str, Measure | str],
    states: Sequence[StateColumn] | None,
) -> dict[str, Any]:
    """Return the description of a frame. ``states`` are the columns of states, or None if they follow from the
    measures.
    """
    described = {
        "levels": [level.name for level in levels],
        "time": time,
        "keys": keys_to_json(keyed_by),
        "timezone": timezone,
        "measures": {
            name: result if isinstance(result, str) else result.describe() for name, result in results.items()
        },
    }
    if versions := _versions(levels):
        described["versions"] = versions
    if states is None:
        return described
    return {**described, "states": [[c.name, c.measure.describe(), list(c.serves)] for c in states]}


def check_members(described: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` if a description is not a mapping, or lacks a required member."""
    members = checked_mapping(described, "a described frame", "its members")
    missing = [name for name in _REQUIRED_MEMBERS if name not in members]
    if missing:
        raise ValueError(
            f"a described frame must have {', '.join(_REQUIRED_MEMBERS)}; this one has no {missing[0]}; pass a dict "
            "that TiltFrame.describe returned"
        )


def results_in(described: Mapping[str, Any]) -> dict[str, Measure | str]:
    """Return the measures and expressions in a description. Raise ``ValueError`` if one of them cannot be read."""
    results = dict[str, Measure | str]()
    for name, measure in checked_mapping(described["measures"], "measures", "name -> described measure").items():
        try:
            results[name] = measure if isinstance(measure, str) else from_description(measure)
        except UnknownFunction as unknown:
            raise ValueError(f"the measure {shown(name)}: {unknown}") from unknown
        except (KeyError, TypeError, AttributeError):
            raise ValueError(
                f"cannot read {shown(measure)} as the description of the measure {shown(name)}; write it as "
                "Measure.describe returns it"
            ) from None
    return results


def states_in(described: Mapping[str, Any]) -> list[StateColumn] | None:
    """Return the columns of states in a description, or None if they follow from the measures."""
    if "states" not in described:
        return None
    return [
        StateColumn(name, from_description(description), tuple(serves))
        for name, description, serves in described["states"]
    ]


def check_versions(levels: Sequence[TimeWindow], described: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` if the definition of a level's windows has another version in ``described``, the description
    of a frame, than in the installed package. A level without a version in the description has version 1.
    """
    versions = described.get("versions", {})
    for level in levels:
        version = versions.get(level.name, 1)
        if version != level.version:
            raise ValueError(
                f"the windows of {level.name} were created by version {version} of their definition, and the "
                f"installed version is {level.version}; install a release with version {version}, or roll up the rows "
                "again into a new store"
            )


def _versions(levels: Sequence[TimeWindow]) -> dict[str, int]:
    """Return a dict from the name of each level to the version of the definition of its windows. Levels with version 1
    are left out, so that the description of a frame equals one that was written before versions existed.
    """
    return {level.name: level.version for level in levels if level.version != 1}


def first_difference(
    described: tuple[Mapping[str, Any], Mapping[str, Any]],
    results: tuple[Mapping[str, Measure | str], Mapping[str, Measure | str]],
    places: tuple[str, str],
) -> str | None:
    """Return the first difference between two frames as a clause for an error message, or None if they do not differ.

    Each argument is a pair with one element per frame. ``described`` has the descriptions of the frames, and
    ``results`` has their measures and expressions. ``places`` has the words that stand for the frames in the clause,
    such as "in the store" and "in the job".
    """
    own_members = described[0]
    other_members = described[1]
    own_place = places[0]
    other_place = places[1]
    for member in {**own_members, **other_members}:
        value = own_members.get(member, {})
        other_value = other_members.get(member, {})
        if member == "measures":
            for name in [*value, *other_value]:
                if value.get(name) != other_value.get(name):
                    calls = [shortened(str(frame_results.get(name, "missing"))) for frame_results in results]
                    return f"measure {name!r} is {calls[0]} {own_place} and {calls[1]} {other_place}"
        elif member == "versions" and value != other_value:
            return (
                f"the versions of window definitions are {value or 1} {own_place} and {other_value or 1} {other_place}"
            )
        elif member != "states" and value != other_value:
            return f"{member} is {shortened(str(value))} {own_place} and {shortened(str(other_value))} {other_place}"
    return None
