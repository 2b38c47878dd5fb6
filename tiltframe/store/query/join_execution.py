"""Execution of a join: determine its queries, compute their results, and add them to the rows.

rows ──▶ queries (`join_ranges`) ──▶ the results of each row (`join_matching`) ──▶ rows with results
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from aggr.arguments import shown
from aggr.arrow.normalize import normalized_type
from tiltframe.frame import TiltFrame
from tiltframe.store.query.answer import Answer, Cost
from tiltframe.store.query.join_keys import read_on
from tiltframe.store.query.join_matching import joined_slices, key_values_of, match_rows
from tiltframe.store.query.join_ranges import is_column, ranges_of_rows
from tiltframe.store.query.query import Query

if TYPE_CHECKING:
    from tiltframe.store.query.join import Join

Ask = Callable[[Query], Answer]


@dataclass(frozen=True)
class Joined:
    """The result of a join. The store is read only when the slices are iterated.

    Parameters
    ----------
    schema : pa.Schema
        The schema of the joined rows.
    slices : iterator of tables
        The joined rows in the order of the input, as at least one table, which may have no rows.
    cost : Cost
        The sum of the estimated costs of the queries.
    expired, unknown : tuple of str
        The messages of all queries, as in `Answer`, each once.
    """

    schema: pa.Schema
    slices: Iterator[pa.Table]
    cost: Cost
    expired: tuple[str, ...]
    unknown: tuple[str, ...]


@dataclass(frozen=True)
class _Columns:
    """The columns of joined rows, and the condition that matches rows with results.

    Parameters
    ----------
    on : key of the store -> str
        The column or expression of the rows that must be equal to the key.
    names : result column -> str
        The name of the result column in the joined rows.
    schema : pa.Schema
        The schema of the joined rows.
    """

    on: Mapping[str, str]
    names: Mapping[str, str]
    schema: pa.Schema


def join_rows(rows: pa.Table, join: Join, ask: Ask, *, frame: TiltFrame, now: int) -> Joined:
    """Return the result of a join.

    ``ask`` returns the answer to a query; all answers must come from the same view of the store. ``frame`` is the frame
    of the store. ``now`` is the time of the view, in microseconds UTC. Raise ``ValueError`` if the rows or the
    arguments of the join do not fit the store; this is checked before anything is read.
    """
    ranges = ranges_of_rows(rows, join, frame, now)
    example_answer = ask(join.query(*_schema_arguments(join, rows.schema))) if not ranges else None
    answers = [ask(read.query) for read in ranges]
    results_schema = example_answer.schema if example_answer is not None else answers[0].schema
    columns = _columns(rows.schema, results_schema, join, frame.keys)
    key_values = {
        key: key_values_of(rows, text, key, normalized_type(results_schema.field(key).type))
        for key, text in columns.on.items()
    }

    def slices() -> Iterator[pa.Table]:
        tables = (answer.table() for answer in answers)
        matches = match_rows(key_values, ranges, tables, results_schema)
        yield columns.schema.empty_table()
        yield from joined_slices(rows, matches, list(columns.names), columns.schema, is_left=join.how == "left")

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


def _schema_arguments(join: Join, schema: pa.Schema) -> tuple[Any, Any]:
    """Return the arguments ``within`` and ``per`` of a query whose results have the same schema as the results of the
    join. An argument of the join is returned unchanged, unless it is a column of the rows or a pair with such a column.
    Such an argument is replaced by None.
    """
    within = join.within
    per = join.per
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
    joined_fields = list(schema)
    for result in results:
        name = join.prefix + result.name
        if name in schema.names:
            if on.get(name) in (name, f"`{name}`") and not join.prefix:
                continue  # The key of the store is left out, because the rows have a column with the same values.
            raise ValueError(
                f"the rows have a column {shown(name)}, and so do the results; pass prefix='store_', or rename the "
                "measure"
            )
        names[result.name] = name
        joined_fields.append(pa.field(name, result.type))
    return _Columns(on, names, pa.schema(joined_fields))
