"""Join: each row with the results of a store for its keys, its range of time and its kind of windows.

    symbol  start        results per (within, per)          symbol  start       window_start  total
    a       2024-05-01   ──▶ one query of 2024-05-01  ──▶   a       2024-05-01  10:00         3
    b       2024-05-01       one query of 2024-05-02        a       2024-05-01  11:00         5
    a       2024-05-02                                      b       2024-05-01  null          null

The store is queried once for ranges that overlap (`join_ranges`), and never per row. Results are sorted by key and
window, so the results of a row are a range of rows of their table (`join_matching`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import pyarrow as pa

from aggr.arguments import checked_mapping, nearest, shown
from aggr.arrow.normalize import normalized_type
from tiltframe.frame import TiltFrame
from tiltframe.store.query.execution import Answer, Cost
from tiltframe.store.query.join_keys import On, check_on, read_on
from tiltframe.store.query.join_matching import joined_slices, key_values_of, match_rows
from tiltframe.store.query.join_ranges import is_column, ranges_of_rows
from tiltframe.store.query.query import Query

HOW = ("left", "inner")
JOIN_OPTIONS = ("where", "measures", "keys", "having", "fill", "latest", "closed", "flat", "timezone", "now", "edges")
Ask = Callable[[Query], Answer]


@dataclass(frozen=True)
class Join:
    """The arguments of a join of rows with a store, as a value; `tiltframe.FrameStore.join` describes them.

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
        If an argument is not valid for any rows and any store.

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
        """Check all arguments, as far as possible without rows."""
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
        """Return the join that plain data describes: its own arguments and those of `Query` by name.

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
        """Return the query of a range and a kind of windows.

        Parameters
        ----------
        within : range
            As for `Query`.
        per : windows
            As for `Query`.

        Returns
        -------
        Query
        """
        return Query(per, within, **self.options)


_OWN = tuple(f.name for f in fields(Join) if f.name != "options")


@dataclass(frozen=True)
class Joined:
    """The answer of a join: its schema, its slices, and the cost of its queries, known before anything is read.

    Parameters
    ----------
    schema : pa.Schema
    slices : iterator of tables
        At least one table; rows are in the order of the input.
    cost : Cost
        The sum of the costs of the queries.
    expired, unknown : tuple of str
        Sentences as in `Answer`, each once.
    """

    schema: pa.Schema
    slices: Iterator[pa.Table]
    cost: Cost
    expired: tuple[str, ...]
    unknown: tuple[str, ...]


@dataclass(frozen=True)
class _Columns:
    """The columns of joined rows: key -> expression of the rows, and the results with their names."""

    on: Mapping[str, str]
    names: Mapping[str, str]  # column of results -> its name in joined rows
    schema: pa.Schema


def join_rows(rows: pa.Table, join: Join, ask: Ask, *, frame: TiltFrame, now: int) -> Joined:
    """Return the answer of a join; ``ask`` answers a query, and all its answers must be of one view.

    The keys of ``frame`` are the keys of results unless the join has its own. ``now``, microseconds UTC, is the moment
    of the view. Raise ``ValueError`` if the rows, the join and the store do not fit; nothing has been read then.
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
    """Return the schema of joined rows; raise ``ValueError`` on the conditions of `join_rows`."""
    return join_rows(rows.empty_table(), join, ask, frame=frame, now=now).schema


def _constants(join: Join, schema: pa.Schema) -> tuple[Any, Any]:
    """Return the range and windows of a query without rows: columns are replaced by open ends and all of time."""
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
                continue  # the row has the same value
            raise ValueError(
                f"the rows have a column {shown(name)}, and so have the results; give prefix='store_', or another name "
                "to the measure"
            )
        names[result.name] = name
        joined.append(pa.field(name, result.type))
    return _Columns(on, names, pa.schema(joined))
