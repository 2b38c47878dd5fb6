"""Evolution: a store's frame becomes another, which adds or drops measures, or adds coarser levels.

Nothing that is stored changes. Rows lack the states of a measure that was added since: what they would hold is not
known, so every result that they are part of is null, until rows are rolled up anew (`rewrite.replace_range`). A new
level is derived from the coarsest one in the same commit (`rewrite.evolve`).
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from aggr import Measure
from aggr.groups.groups import Groups
from aggr.tables.by_key import check_rows
from aggr.tables.state_plan import StateColumn, holder, plan
from tiltframe.frame import INSTANT, START, TiltFrame
from tiltframe.store.manifest import Manifest, check_levels, check_states_names


def plan_evolution(manifest: Manifest, frame: TiltFrame, row_schema: pa.Schema | None = None) -> Manifest:
    """Describe the store of a manifest as one of another frame; the schema of rows to come tells types of new states.

    Raises ``ValueError`` and ``TypeError`` for a frame that it cannot become, naming the difference.
    """
    old = manifest.frame
    _check_same_windows(old, frame)
    states = evolved_states(manifest, frame)
    kept = frame.keeping(states)
    check_levels(kept)
    fields = {field.name: field for field in manifest.schema}
    fields |= {c.name: pa.field(c.name, _state_type(c, row_schema)) for c in states if c.name not in fields}
    names = [c.name for c in states]
    gone = [column.name for column in old.states if column.name not in names]
    following = replace(
        manifest,
        frame=kept,
        schema=pa.schema([fields[name] for name in (START, *kept.keys, *names)]),
        generation=manifest.generation + 1,
        dropped=pa.schema([*manifest.dropped, *(fields[name] for name in gone)]),
        earlier=(*manifest.earlier, tuple(column.name for column in old.states)),
    )
    check_states_names(following.columns.names)
    return following


def _check_same_windows(old: TiltFrame, new: TiltFrame) -> None:
    """Raise ``ValueError`` for other keys, zones and columns of time, and for levels that are not added above."""
    mine, theirs = new.describe(), old.describe()
    for part in ("keys", "timezone", "time"):
        if mine[part] != theirs[part]:
            raise ValueError(f"{part} cannot change: {theirs[part]} in the store and {mine[part]} here; {_ANEW}")
    there, wanted = (tuple(level.name for level in frame.levels) for frame in (old, new))
    if missing := [name for name in there if name not in wanted]:
        raise ValueError(f"the level {missing[0]} cannot go; expire() lets go of windows by their age")
    if wanted[: len(there)] != there:
        other = next(name for name in wanted if name not in there)
        raise ValueError(f"levels are added above {there[-1]}, the coarsest, and {other} is finer; {_ANEW}")


_ANEW = "roll up rows anew, into a new store"


def evolved_states(manifest: Manifest, frame: TiltFrame) -> tuple[StateColumn, ...]:
    """Choose the columns of states: those that are there and serve any measure, and new ones for the others.

    Raises ``ValueError`` for a measure that is another under its name, or has the name of one that was dropped.
    """
    old = manifest.frame
    serves: dict[str, list[str]] = {column.name: [] for column in old.states}
    added: dict[str, Measure] = {}
    for name, measure in frame.measures.items():
        if name in old.measures:
            _check_same_states(name, old.measures[name], measure)
            serves[old.state_of(name)].append(name)
        elif column := holder(old.states, measure):
            serves[column.name].append(name)
        else:
            added[name] = measure
    new = plan(added)
    for column in new:
        if column.name in (*serves, *manifest.dropped.names):
            raise ValueError(
                f"{column.name!r} is the name of states that the store has had, of another measure; give the new one "
                "another name"
            )
    kept = [replace(column, serves=tuple(serves[column.name])) for column in old.states if serves[column.name]]
    return (*kept, *new)


def _check_same_states(name: str, old: Measure, new: Measure) -> None:
    """Raise ``ValueError`` where a measure would be read from other states than it is; other quantiles are fine."""
    alike = [replace(measure, function=measure.function.state_function()) for measure in (old, new)]
    if old.function.name != new.function.name or alike[0] != alike[1]:
        raise ValueError(
            f"the measure {name!r} is {old!r} in the store and {new!r} here; give the new one a name of its own, and "
            "drop the old one or keep both"
        )


def _state_type(column: StateColumn, rows: pa.Schema | None) -> pa.DataType:
    """Find the type of new states; raises where the types of rows tell it, and are not given or do not fit."""
    measure = column.measure
    if rows is None and measure.inputs:
        raise ValueError(
            f"the types of {', '.join(measure.columns())} tell what the states of {column.name!r} are made of; give "
            "them: evolve(frame, row_schema=SCHEMA), with the schema of the rows to come"
        )
    if rows is not None:
        check_rows(rows, {}, [column], INSTANT)
    made = measure.function.state_type(measure.input_type(pa.schema([]) if rows is None else rows, INSTANT))
    return measure.function.merge(pa.array([], made), Groups.of([], 0)).type
