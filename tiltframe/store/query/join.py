"""Join: join each row with the results of a store for its keys, its range of time and its windows.

    symbol  start        results per (within, per)          symbol  start       window_start  total
    a       2024-05-01   ──▶ one query of 2024-05-01  ──▶   a       2024-05-01  10:00         3
    b       2024-05-01       one query of 2024-05-02        a       2024-05-01  11:00         5
    a       2024-05-02                                      b       2024-05-01  null          null

The store is queried once for each different pair of range and windows, never per row. Results are sorted by key, so
that the results of a row are consecutive rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.arguments import checked_mapping, nearest, shown
from aggr.arrow import compute as pc
from aggr.arrow.normalize import normalize, normalized_type, one_array
from aggr.groups.groups import group_by
from aggr.sql.inputs import values_in
from aggr.tables.keys import key_column
from tiltframe.store.query.execution import Answer, Cost
from tiltframe.store.query.join_keys import On, check_on, read_on
from tiltframe.store.query.query import Query

HOW = ("left", "inner")
_ROWS_PER_SLICE = 1 << 18
JOIN_OPTIONS = ("where", "measures", "keys", "having", "fill", "latest", "closed", "flat", "timezone", "now", "edges")
Ask = Callable[[Query], Answer]
Positions = NDArray[np.int64]


@dataclass(frozen=True)
class Join:
    """The arguments of a join of rows with a store; `tiltframe.FrameStore.join` describes them.

    Parameters
    ----------
    on : str, list or mapping
    within : range, column, or pair of moments or columns, optional
    per : windows or column, optional
    how : "left" or "inner"
    prefix : str
    options : member of `Query` -> value

    Raises
    ------
    ValueError
        If an argument is invalid for all rows and all stores.

    Examples
    --------
    >>> Join("ticker = symbol", within="2024-05", per="1d", how="inner").per
    '1d'
    """

    on: On
    within: Any = None
    per: Any = None
    how: str = "left"
    prefix: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check all arguments, as far as that is possible without rows."""
        check_on(self.on)
        if self.how not in HOW:
            raise ValueError(f"how must be left or inner; got {shown(self.how)}")
        if not isinstance(self.prefix, str):
            raise ValueError(f"prefix must be text, such as 'store_'; got {shown(self.prefix)}")
        for name in self.options:
            if name not in JOIN_OPTIONS:
                raise ValueError(f"a join has no {shown(name)}; {nearest(name, [*JOIN_OPTIONS, *_OWN])}")
        Query(**self.options)

    @classmethod
    def from_dict(cls, described: Mapping[str, Any]) -> Join:
        """Return the join that plain data describes, with the arguments of a join and those of `Query`.

        Parameters
        ----------
        described : mapping

        Returns
        -------
        Join

        Raises
        ------
        ValueError
            If a member does not exist or cannot be read.
        """
        members = checked_mapping(described, "a join", "its arguments, by name")
        members = {name: value for name, value in members.items() if value is not None}
        if "on" not in members:
            raise ValueError("a join needs on: a key, a list of keys, or an equality such as 'ticker = symbol'")
        own = {name: members.pop(name) for name in _OWN if name in members}
        if isinstance(own.get("within"), list):
            own["within"] = tuple(own["within"])
        for name in members:
            if name not in JOIN_OPTIONS:
                raise ValueError(f"a join has no {shown(name)}; {nearest(name, [*JOIN_OPTIONS, *_OWN])}")
        query = Query.from_dict(members)
        return cls(**own, options={name: getattr(query, name) for name in members})

    def query(self, within: Any, per: Any) -> Query:
        """Return the query for a range and a kind of window.

        Parameters
        ----------
        within : range
            See `Query`.
        per : windows
            See `Query`.

        Returns
        -------
        Query
        """
        return Query(per, within, **self.options)


_OWN = tuple(f.name for f in fields(Join) if f.name != "options")


@dataclass(frozen=True)
class Joined:
    """The answer of a join: its schema, its slices, and the cost of its queries, which is known before anything is
    read.

    Parameters
    ----------
    schema : pa.Schema
    slices : iterator of tables
        At least one table. Rows are in the order of the input.
    cost : Cost
        The sum of the costs of the queries, one for each distinct range and kind of windows.
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


def join_rows(rows: pa.Table, join: Join, ask: Ask, frame_keys: Sequence[str]) -> Joined:
    """Return the answer of a join. ``ask`` answers a query; all its answers must come from one view.

    ``frame_keys`` are the keys of the results, unless the join names keys.

    Raise ``ValueError`` if the rows or the join do not fit the store, before anything is read.
    """
    ranges = _ranges(rows, join)
    example = ask(join.query(*_constants(join, rows.schema))) if not ranges else None
    answers = [ask(query) for query, _ in ranges]
    results_schema = example.schema if example is not None else answers[0].schema
    columns = _columns(rows.schema, results_schema, join, frame_keys)
    key_values = {
        key: _key_values(rows, text, key, normalized_type(results_schema.field(key).type))
        for key, text in columns.on.items()
    }

    def slices() -> Iterator[pa.Table]:
        matched = _matched(rows.num_rows, key_values, ranges, answers, results_schema)
        yield columns.schema.empty_table()
        yield from _joined(rows, matched, columns, is_left=join.how == "left")

    return Joined(
        columns.schema,
        slices(),
        cost=Cost(sum(answer.cost.rows for answer in answers), sum(answer.cost.windows for answer in answers)),
        expired=tuple(dict.fromkeys(sentence for answer in answers for sentence in answer.expired)),
        unknown=tuple(dict.fromkeys(sentence for answer in answers for sentence in answer.unknown)),
    )


def join_schema(rows: pa.Schema, join: Join, ask: Ask, frame_keys: Sequence[str]) -> pa.Schema:
    """Return the schema of joined rows; raise ``ValueError`` for the same reasons as `join_rows`."""
    return join_rows(rows.empty_table(), join, ask, frame_keys).schema


def _constants(join: Join, schema: pa.Schema) -> tuple[Any, Any]:
    """Return the range and windows of a query that needs no rows: columns are replaced by open ends and by all of
    time.
    """
    within, per = join.within, join.per
    if isinstance(within, tuple | list):
        within = None if any(_is_column(end, schema) for end in within) else within
    elif _is_column(within, schema):
        within = None
    return within, None if _is_column(per, schema) else per


def _is_column(value: object, schema: pa.Schema) -> bool:
    return isinstance(value, str) and value in schema.names


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
                f"the rows have a column {shown(name)}, and so have the results; give prefix='store_', or another name "
                "to the measure"
            )
        names[result.name] = name
        joined.append(pa.field(name, result.type))
    return _Columns(on, names, pa.schema(joined))


def _ranges(rows: pa.Table, join: Join) -> list[tuple[Query, Positions]]:
    """Return a query for each different range and kind of window, with the numbers of its rows.

    Rows in which a column of ranges or windows is null belong to no query.
    """
    read = _RangeColumns(rows, join)
    if not read.columns:
        return [(join.query(join.within, join.per), np.arange(rows.num_rows))]
    groups, row_of_group = group_by(list(read.columns.values()), rows.num_rows)
    order = np.argsort(groups.ids, kind="stable")
    members = np.split(order, np.cumsum(np.bincount(groups.ids, minlength=groups.n))[:-1])
    ranges = []
    for row, row_numbers in zip(row_of_group.tolist(), members, strict=True):
        values = {name: column[row].as_py() for name, column in read.columns.items()}
        if None not in values.values():
            ranges.append((read.query(values), row_numbers))
    return ranges


class _RangeColumns:
    """The columns of rows that contain the ends of ranges, ranges, or windows."""

    def __init__(self, rows: pa.Table, join: Join) -> None:
        self._join = join
        range_values = join.within if isinstance(join.within, tuple | list) else [join.within]
        names = [name for name in (*range_values, join.per) if _is_column(name, rows.schema)]
        self.columns = {name: _as_moments(one_array(rows.column(name))) for name in names}

    def query(self, values: Mapping[str, Any]) -> Query:
        """Return the query for the values of a row. Errors name the values."""
        within = self._join.within
        if isinstance(within, tuple | list):
            within = tuple(self._value(end, values) for end in within)
        else:
            within = self._value(within, values)
        try:
            return self._join.query(within, self._value(self._join.per, values))
        except ValueError as error:
            raise ValueError(
                f"the row with {', '.join(f'{n}={shown(v)}' for n, v in values.items())}: {error}"
            ) from None

    @staticmethod
    def _value(name: object, values: Mapping[str, Any]) -> Any:
        return values[name] if isinstance(name, str) and name in values else name


def _as_moments(column: pa.Array) -> pa.Array:
    """Return times in microseconds, the resolution of windows. Other columns are unchanged."""
    if not pa.types.is_timestamp(column.type):
        return normalize(column)
    return column.cast(pa.timestamp("us", column.type.tz), safe=False)


def _key_values(rows: pa.Table, text: str, key: str, kind: pa.DataType) -> pa.Array:
    """Return the values of rows to compare with a key; raise ``ValueError`` if they can never be equal."""
    values = one_array(values_in(text, rows))
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), kind)
    values = key_column(normalize(values))
    if values.type != kind and _kind(values.type) != _kind(kind):
        raise ValueError(
            f"cannot compare the key {key}, of type {kind}, with {values.type} of the rows; cast the column of the "
            f"rows: on={{{key!r}: 'CAST({text} AS …)'}}"
        )
    return _as_key(values, kind)


def _kind(dtype: pa.DataType) -> str:
    if pa.types.is_integer(dtype) or pa.types.is_floating(dtype) or pa.types.is_decimal(dtype):
        return "number"
    if pa.types.is_string(dtype) or pa.types.is_large_string(dtype):
        return "text"
    return "timestamp" if pa.types.is_timestamp(dtype) else str(dtype)


@dataclass(frozen=True)
class _Matched:
    """Results, sorted so that the results of ``row`` are the ``count[row]`` rows from ``first[row]`` on."""

    results: pa.Table
    first: Positions
    count: Positions


def _matched(
    row_count: int,
    key_values: Mapping[str, pa.Array],
    ranges: Sequence[tuple[Query, Positions]],
    answers: Sequence[Answer],
    schema: pa.Schema,
) -> _Matched:
    """Read the answers one after another, and keep the results whose keys occur in the rows."""
    first, count = np.zeros(row_count, np.int64), np.zeros(row_count, np.int64)
    tables, offset = [schema.empty_table()], 0
    for (_, row_numbers), answer in zip(ranges, answers, strict=True):
        results = answer.table()
        keys_of_rows = {key: values.take(pa.array(row_numbers)) for key, values in key_values.items()}
        row_ids, result_ids, key_count = _common_ids(keys_of_rows, results)
        is_used = np.zeros(key_count, np.bool_)
        is_used[row_ids[row_ids >= 0]] = True
        order = np.argsort(result_ids, kind="stable")
        order = order[is_used[result_ids[order]]]
        counts = np.bincount(result_ids[order], minlength=key_count)
        begins = np.cumsum(counts) - counts
        has_key = row_ids >= 0
        first[row_numbers[has_key]] = begins[row_ids[has_key]] + offset
        count[row_numbers[has_key]] = counts[row_ids[has_key]]
        tables.append(results.take(pa.array(order)))
        offset += len(order)
    return _Matched(pa.concat_tables(tables).combine_chunks(), first, count)


def _common_ids(keys_of_rows: Mapping[str, pa.Array], results: pa.Table) -> tuple[Positions, Positions, int]:
    """Return numbers for the keys of rows and of results. Rows with a null get -1, because null is not equal to any
    value.
    """
    rows = len(next(iter(keys_of_rows.values())))
    columns, is_null = [], np.zeros(rows, np.bool_)
    for key, values in keys_of_rows.items():
        is_null |= values.is_null().to_numpy(zero_copy_only=False)
        of_results = key_column(results.column(key))
        columns.append(pa.concat_arrays([values.cast(of_results.type), of_results]))
    groups, _ = group_by(columns, rows + results.num_rows)
    row_ids = np.where(is_null, -1, groups.ids[:rows])
    return row_ids, groups.ids[rows:].astype(np.int64), groups.n


def _as_key(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return values in the type of a key. A value that this type cannot represent becomes null, which is not equal to
    any key.
    """
    try:
        return values.cast(kind)
    except pa.ArrowException:
        nearest_values = values.cast(kind, safe=False)
        is_same = pc.equal(nearest_values.cast(values.type, safe=False), values)
        return pc.if_else(is_same, nearest_values, pa.scalar(None, kind))


def _joined(rows: pa.Table, matched: _Matched, columns: _Columns, *, is_left: bool) -> Iterator[pa.Table]:
    """Yield joined rows in the order of the rows, each with its results in their order, a limited number at a time."""
    lengths = np.maximum(matched.count, 1) if is_left else matched.count
    row_ends = np.cumsum(lengths)
    total = int(row_ends[-1]) if len(row_ends) else 0
    results = matched.results.select(list(columns.names))
    for low in range(0, total, _ROWS_PER_SLICE):
        places = np.arange(low, min(low + _ROWS_PER_SLICE, total))
        first_row, last_row = np.searchsorted(row_ends, [places[0], places[-1]], side="right")
        covered = np.arange(first_row, last_row + 1)
        begins = np.maximum(row_ends[covered] - lengths[covered], places[0])
        row_numbers = np.repeat(covered, np.minimum(row_ends[covered], places[-1] + 1) - begins)
        within_row = places - (row_ends - lengths)[row_numbers]
        result_numbers = matched.first[row_numbers] + within_row
        is_unmatched = matched.count[row_numbers] == 0
        of_rows = rows.take(pa.array(row_numbers))
        of_results = results.take(pa.array(np.where(is_unmatched, 0, result_numbers), mask=is_unmatched))
        yield pa.Table.from_arrays([*of_rows.columns, *of_results.columns], schema=columns.schema)
