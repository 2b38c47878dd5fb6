"""Join: add results of a store to each row, for the row's keys, range of time and windows.

    rows                     queries                        rows with results
    symbol  start                                           symbol  start       window_start  total
    a       2024-05-01   ──▶ one query of 2024-05-01  ──▶   a       2024-05-01  10:00         3
    b       2024-05-01       one query of 2024-05-02        a       2024-05-01  11:00         5
    a       2024-05-02                                      b       2024-05-01  null          null
                                                            a       2024-05-02  09:00         4

One query returns the results for all rows whose ranges overlap (`join_ranges`). Its results are sorted by key and
window, so that the results for one row are consecutive (`join_matching`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from aggr.arguments import checked_mapping, nearest, shown
from tiltframe.store.query.join_keys import On, check_on
from tiltframe.store.query.query import Query

HOW = ("left", "inner")
# arguments of `Query` that are not options of a join; ``per`` and ``within`` are parameters of `Join`
_EXCLUDED_ARGUMENTS = ("per", "within", "order_by", "limit", "points")
JOIN_OPTIONS = tuple(f.name for f in fields(Query) if f.name not in _EXCLUDED_ARGUMENTS)


@dataclass(frozen=True)
class Join:
    """The arguments of a join of rows with a store; `tiltframe.FrameStore.join` describes them in detail.

    Parameters
    ----------
    on : str, list or mapping
        The condition that matches keys of the store with columns of the rows.
    within : range, column, or pair of moments or columns, optional
        The range of time of each row.
    per : windows or column, optional
        The windows of the results of each row.
    how : "left" or "inner"
        Whether rows without results are returned with nulls ("left") or left out ("inner").
    prefix : str
        Text to prepend to the names of the result columns.
    options : name -> value
        Further arguments of `Query`, such as ``measures``.

    Raises
    ------
    ValueError
        If an argument is invalid. The rows and the store are not read for this check.

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
        """Check all arguments. Columns of the rows are checked later."""
        check_on(self.on)
        if self.how not in HOW:
            raise ValueError(f"the parameter 'how' must be 'left' or 'inner'; got {shown(self.how)}")
        if not isinstance(self.prefix, str):
            raise ValueError(f"prefix must be text, such as 'store_'; got {shown(self.prefix)}")
        for name in self.options:
            if name not in JOIN_OPTIONS:
                raise ValueError(
                    f"a join has no parameter {shown(name)}; {nearest(name, [*JOIN_OPTIONS, *_JOIN_PARAMETERS])}"
                )
        Query(**self.options)

    @classmethod
    def from_dict(cls, described: Mapping[str, Any]) -> Join:
        """Return the join that a dict describes.

        Parameters
        ----------
        described : mapping
            The arguments of `Join` and the members of its argument ``options``, by name.

        Returns
        -------
        Join

        Raises
        ------
        ValueError
            If an argument does not exist or cannot be read.
        """
        members = checked_mapping(described, "a join", "its arguments, by name")
        members = {name: value for name, value in members.items() if value is not None}
        if "on" not in members:
            raise ValueError(
                "a join needs the parameter 'on'; pass a key of the store, a list of keys, or an equality such as "
                "'ticker = symbol'"
            )
        join_arguments = {name: members.pop(name) for name in _JOIN_PARAMETERS if name in members}
        if isinstance(join_arguments.get("within"), list):
            join_arguments["within"] = tuple(join_arguments["within"])
        for name in members:
            if name not in JOIN_OPTIONS:
                raise ValueError(
                    f"a join has no parameter {shown(name)}; {nearest(name, [*JOIN_OPTIONS, *_JOIN_PARAMETERS])}"
                )
        query = Query.from_dict(members)
        return cls(**join_arguments, options={name: getattr(query, name) for name in members})

    def query(self, within: Any, per: Any) -> Query:
        """Return a query for a range and a kind of window, with the options of the join.

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


_JOIN_PARAMETERS = tuple(f.name for f in fields(Join) if f.name != "options")
