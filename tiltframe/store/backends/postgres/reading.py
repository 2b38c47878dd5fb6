"""Reading: the rows of parts of one level, in one query, as states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from aggr.arrow.normalize import one_array
from tiltframe.frame import START
from tiltframe.names import LEVEL
from tiltframe.store.backends.key_bounds import KeyBound
from tiltframe.store.backends.postgres.limits import PART
from tiltframe.store.backends.postgres.schema import Layout
from tiltframe.store.backends.postgres.session import Session
from tiltframe.store.backends.protocol import Part
from tiltframe.store.backends.sql.conditions import bound_conditions
from tiltframe.store.backends.sql.literals import moment, numbers, quoted
from tiltframe.store.backends.sql.state_columns import column_name, flat_schema, unflatten
from tiltframe.store.backends.stored_types import restored, stored_schema
from tiltframe.store.errors import Conflict, DamagedStore
from tiltframe.store.ranges import Range

PartRanges: TypeAlias = Sequence[tuple[Part, Range]]


def read_level(
    db: Session, layout: Layout, level: str, parts: PartRanges, schema: pa.Schema, bounds: Sequence[KeyBound] = ()
) -> pa.Table:
    """Read parts of a level, in a range each, in types of the frame; bounds leave rows out where the database can tell.

    Raises `Conflict` if the rows of a part have been removed, `DamagedStore` if a part that is read whole has lost
    some.
    """
    wanted = [(part, both) for part, span in parts if (both := part.within(span))]
    if not wanted:
        return schema.empty_table()
    ids = sorted({int(part.name) for part, _ in wanted})
    there = db.rows(f"SELECT count(*) AS parts FROM {layout.parts} WHERE part = ANY({numbers(ids)})")
    if there[0]["parts"] < len(ids):
        raise Conflict(f"parts of {level} of {layout.name} have been removed")
    conditions = [text for bound in bounds for text in bound_conditions(f"t.{quoted(column_name(bound.key))}", bound)]
    kept = stored_schema(schema)
    flat = flat_schema(kept)
    rows = db.ask(_query(layout.states, flat, wanted, conditions), level)
    if not conditions:
        _check_rows(rows, wanted, f"the store {layout.name} is damaged: the level {level}")
    nested = unflatten(rows.select(range(1, rows.num_columns)).rename_columns(flat.names), kept)
    arrays = [restored(one_array(c), f.type) for c, f in zip(nested.columns, schema, strict=True)]
    return pa.table(arrays, schema=schema)


def _query(table: str, flat: pa.Schema, wanted: PartRanges, conditions: Sequence[str]) -> str:
    ids, lows, highs = zip(*((int(part.name), *span) for part, span in wanted), strict=True)
    names = [f"t.{quoted(f.name)}" + "::text" * pa.types.is_decimal(f.type) for f in flat]
    ends = [f"t.{START} >= {moment(str(min(lows)))}", f"t.{START} < {moment(str(max(highs)))}"]
    return (
        f"SELECT t.{PART} AS {quoted(PART)}, {', '.join(names)} FROM {table} AS t "
        f"JOIN unnest({numbers(ids)}, {numbers(lows)}, {numbers(highs)}) AS w (part, low, high) "
        f"ON t.{PART} = w.part AND t.{START} >= {moment('w.low')} AND t.{START} < {moment('w.high')} "
        f"WHERE t.{LEVEL} = $1 AND {' AND '.join([*ends, *conditions])}"
    )


def _check_rows(rows: pa.Table, wanted: PartRanges, where: str) -> None:
    counts = dict(zip(*(c.tolist() for c in np.unique(rows.column(PART).to_numpy(), return_counts=True)), strict=True))
    for part, span in wanted:
        if span == part.range and counts.get(int(part.name), 0) != part.rows:
            raise DamagedStore(f"{where} has lost rows")
