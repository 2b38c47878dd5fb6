"""Execution of a join: the queries that it needs, and joined rows.

rows ──▶ ranges and queries (`join_ranges`) ──▶ results of each row (`join_matching`) ──▶ rows with results
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from aggr.arguments import shown
from aggr.arrow.normalize import normalized_type
from tiltframe.frame import TiltFrame
from tiltframe.store.query.execution import Answer, Cost
from tiltframe.store.query.join import Join
from tiltframe.store.query.join_keys import read_on
from tiltframe.store.query.join_matching import joined_slices, key_values_of, match_rows
from tiltframe.store.query.join_ranges import is_column, ranges_of_rows
from tiltframe.store.query.query import Query

Ask = Callable[[Query], Answer]


@dataclass(frozen=True)
class Joined:
    """The answer of a join.

    The schema and the cost of the queries are known before anything is read.

    Parameters
    ----------
    schema : pa.Schema
    slices : iterator of tables
        At least one table. Rows are in the order of the input.
    cost : Cost
        The sum of the costs of the queries.
    expired, unknown : tuple of str
        Messages like those in `Answer`, without duplicates.
    """

    schema: pa.Schema
    slices: Iterator[pa.Table]
    cost: Cost
    expired: tuple[str, ...]
    unknown: tuple[str, ...]


@dataclass(frozen=True)
class _Columns:
    """The columns of joined rows: the expression of the rows for each key, and the results with their names."""

    on: Mapping[str, str]
    names: Mapping[str, str]  # maps each result column to its name in joined rows
    schema: pa.Schema


def join_rows(rows: pa.Table, join: Join, ask: Ask, *, frame: TiltFrame, now: int) -> Joined:
    """Return the answer of a join. ``ask`` answers a query; all its answers must come from one view.

    The keys of ``frame`` are the keys of the results, unless the join names keys. ``now`` is the moment of the view, in
    microseconds UTC. Raise ``ValueError`` if the rows or the join do not fit the store, before anything is read.
    """
    ranges = ranges_of_rows(rows, join, frame, now)
    example = ask(join.query(*_constants(join, rows.schema))) if not ranges else None
    answers = [ask(read.query) for read in ranges]
    results_schema = example.schema if example is not None else answers[0].schema
    columns = _columns(rows.schema, results_schema, join, frame.keys)
    key_values = {
        key: key_values_of(rows, text, key, normalized_type(results_schema.field(key).type))
        for key, text in columns.on.items()
    }

    def slices() -> Iterator[pa.Table]:
        matched = match_rows(key_values, ranges, answers, results_schema)
        yield columns.schema.empty_table()
        yield from joined_slices(rows, matched, list(columns.names), columns.schema, is_left=join.how == "left")

    return Joined(
        columns.schema,
        slices(),
        cost=Cost(sum(answer.cost.rows for answer in answers), sum(answer.cost.windows for answer in answers)),
        expired=tuple(dict.fromkeys(sentence for answer in answers for sentence in answer.expired)),
        unknown=tuple(dict.fromkeys(sentence for answer in answers for sentence in answer.unknown)),
    )


def join_schema(rows: pa.Schema, join: Join, ask: Ask, *, frame: TiltFrame, now: int) -> pa.Schema:
    """Return the schema of joined rows; raise ``ValueError`` for the same reasons as `join_rows`."""
    return join_rows(rows.empty_table(), join, ask, frame=frame, now=now).schema


def _constants(join: Join, schema: pa.Schema) -> tuple[Any, Any]:
    """Return a range and windows of a query whose results have the schema of the join's results. A range or windows
    that are a column of the rows are replaced by all of time.
    """
    within, per = join.within, join.per
    if isinstance(within, tuple | list):
        within = None if any(is_column(end, schema) for end in within) else within
    elif is_column(within, schema):
        within = None
    return within, None if is_column(per, schema) else per


def _columns(schema: pa.Schema, results: pa.Schema, join: Join, frame_keys: Sequence[str]) -> _Columns:
    """Return the columns of joined rows; raise ``ValueError`` if a column of the rows and a result share a name."""
    keys = join.options.get("keys")
    on = read_on(join.on, schema.names, frame_keys if keys is None else list(keys))
    names = {}
    joined = list(schema)
    for result in results:
        name = join.prefix + result.name
        if name in schema.names:
            if on.get(name) in (name, f"`{name}`") and not join.prefix:
                continue  # the key is left out, because the row has the same value
            raise ValueError(
                f"the rows have a column {shown(name)}, and so do the results; pass prefix='store_', or rename the "
                "measure"
            )
        names[result.name] = name
        joined.append(pa.field(name, result.type))
    return _Columns(on, names, pa.schema(joined))
