"""Reading: the rows of parts of one level, in one query, as states."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from aggr.kernels.normalize import one_array
from tiltframe.frame import START
from tiltframe.store.core.backend import Part, Range, StoreError
from tiltframe.store.core.narrowing import KeyBound
from tiltframe.store.core.stored_types import restored, stored_schema
from tiltframe.store.postgres.commit import check_seen
from tiltframe.store.postgres.conditions import bound_conditions
from tiltframe.store.postgres.flat import column_name, flat_schema, unflatten
from tiltframe.store.postgres.limits import PART
from tiltframe.store.postgres.schema import Layout
from tiltframe.store.postgres.session import Session, moment, numbers, quoted

PartRanges = Sequence[tuple[Part, Range]]


def read_level(
    db: Session, layout: Layout, level: str, parts: PartRanges, schema: pa.Schema, bounds: Sequence[KeyBound] = ()
) -> pa.Table:
    """Read what is asked of one level, in one query.

    Parameters
    ----------
    db, layout, level
    parts : pairs of a part of the level and a range of window starts
    schema : schema
        Of what is read, in the types of the frame.
    bounds : sequence of KeyBound
        Rows that do not lie within them are left out, as far as the database can tell.

    Raises
    ------
    Conflict
        If a part is gone since it was seen.
    StoreError
        If a part that is read whole has lost rows.
    """
    check_seen(db, layout, level, [part for part, _ in parts])
    wanted = [(part, both) for part, span in parts if (both := part.within(span)) and part.rows]
    if not wanted:
        return schema.empty_table()
    conditions = [text for bound in bounds for text in bound_conditions(f"t.{quoted(column_name(bound.key))}", bound)]
    kept = stored_schema(schema)
    flat = flat_schema(kept)
    rows = db.ask(_query(layout.table(level), flat, wanted, conditions))
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
        f"WHERE {' AND '.join([*ends, *conditions])}"
    )


def _check_rows(rows: pa.Table, wanted: PartRanges, where: str) -> None:
    counts = dict(zip(*(c.tolist() for c in np.unique(rows.column(PART).to_numpy(), return_counts=True)), strict=True))
    for part, (low, high) in wanted:
        if (low, high) == (part.least, part.greatest + 1) and counts.get(int(part.name), 0) != part.rows:
            raise StoreError(f"{where} has lost rows of {part.writer}")
