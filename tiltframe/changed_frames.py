"""Changed frames: the columns of states of a frame that continues with the states of another frame.

Existing columns stay if a measure still needs them. A measure reads an existing column if it can be computed from it,
and otherwise gets a new column. Stores (`tiltframe.store.changes.evolution`) and saved streams
(`tiltframe.streaming.saved`) use this rule.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from aggr import Measure
from aggr.tables.state_plan import StateColumn, holder, plan
from tiltframe.frame import TiltFrame


def states_after_change(
    old: TiltFrame, frame: TiltFrame, dropped_names: Collection[str], where: str
) -> tuple[StateColumn, ...]:
    """Return the columns of states: existing columns that are needed by a measure, and new columns for other measures.

    ``dropped_names`` are the names of columns that no longer exist. ``where`` says in errors where the old frame is.
    Raise ``ValueError`` if a measure needs other states than the one of the same name, or has the name of other states.
    """
    serves: dict[str, list[str]] = {column.name: [] for column in old.states}
    added: dict[str, Measure] = {}
    for name, measure in frame.measures.items():
        if name in old.measures:
            _check_same_states(name, old.measures[name], measure, where)
            serves[old.state_of(name)].append(name)
        elif column := holder(old.states, measure):
            serves[column.name].append(name)
        else:
            added[name] = measure
    new = plan(added)
    for column in new:
        if column.name in (*serves, *dropped_names):
            raise ValueError(
                f"{column.name!r} is the name of states that belonged to another measure of {where}; choose "
                "another name for the new measure"
            )
    kept_columns = [replace(column, serves=tuple(serves[column.name])) for column in old.states if serves[column.name]]
    return (*kept_columns, *new)


def _check_same_states(name: str, old: Measure, new: Measure, where: str) -> None:
    """Raise ``ValueError`` if a measure would need other states than before. Other quantiles of the same states are
    allowed.
    """
    alike = [measure.of_states() for measure in (old, new)]
    if old.function.name != new.function.name or alike[0] != alike[1]:
        raise ValueError(
            f"the measure {name!r} is {old!r} in {where} and {new!r} here; choose another name for the new "
            f"measure, and drop the old one or keep both"
        )
