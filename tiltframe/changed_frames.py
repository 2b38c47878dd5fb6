"""Changed frames: choose the columns of states after a user has changed the measures of a store or of a saved stream.

If a measure can be computed from the states of an existing column, the measure is computed from this column. Otherwise,
a new column is added for the measure. Existing columns that no measure needs are dropped. This rule applies to stores
(`tiltframe.store.changes.evolution`) and to saved streams (`tiltframe.streaming.saved`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from aggr import Measure
from aggr.tables.state_plan import StateColumn, find_state_column, plan_state_columns
from tiltframe.frame import TiltFrame


def states_after_change(
    old: TiltFrame, frame: TiltFrame, dropped_names: Collection[str], where: str
) -> tuple[StateColumn, ...]:
    """Return the columns of states of ``frame``, which replaces the frame ``old``: first the existing columns that a
    measure needs, and then new columns for the other measures.

    ``dropped_names`` are the names of columns that were dropped earlier and cannot be used again. ``where`` says in
    messages where the old frame comes from, such as "the store". Raise ``ValueError`` if a measure needs other states
    than the old measure of the same name, or if a new column has the name of an existing or a dropped column.
    """
    serves: dict[str, list[str]] = {column.name: [] for column in old.states}
    new_measures: dict[str, Measure] = {}
    for name, measure in frame.measures.items():
        if name in old.measures:
            _check_same_states(name, old.measures[name], measure, where)
            serves[old.state_of(name)].append(name)
        elif column := find_state_column(old.states, measure):
            serves[column.name].append(name)
        else:
            new_measures[name] = measure
    new = plan_state_columns(new_measures)
    for column in new:
        if column.name in (*serves, *dropped_names):
            raise ValueError(
                f"{column.name!r} is the name of states of another measure of {where}, or of a measure that was "
                "dropped earlier; choose another name for the new measure"
            )
    kept_columns = [replace(column, serves=tuple(serves[column.name])) for column in old.states if serves[column.name]]
    return (*kept_columns, *new)


def _check_same_states(name: str, old: Measure, new: Measure, where: str) -> None:
    """Raise ``ValueError`` if the measure ``new`` cannot be computed from the states of the measure ``old``, which has
    the same name. Parameters that do not affect states, such as quantiles, may differ.
    """
    shaping_measures = [measure.of_states() for measure in (old, new)]
    if old.function.name != new.function.name or shaping_measures[0] != shaping_measures[1]:
        raise ValueError(
            f"the measure {name!r} is {old!r} in {where} and {new!r} here; choose another name for the new "
            f"measure, and drop the old one or keep both"
        )
