"""Join: join each row with the results of a store for its keys, its range of time and its windows.

    symbol  start        results per (within, per)          symbol  start       window_start  total
    a       2024-05-01   ──▶ one query of 2024-05-01  ──▶   a       2024-05-01  10:00         3
    b       2024-05-01       one query of 2024-05-02        a       2024-05-01  11:00         5
    a       2024-05-02                                      b       2024-05-01  null          null

The store is queried once for ranges that overlap (`join_ranges`), and never per row. Results are sorted by key and
window, so the results of a row are a range of rows of their table (`join_matching`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from aggr.arguments import checked_mapping, nearest, shown
from tiltframe.store.query.join_keys import On, check_on
from tiltframe.store.query.query import Query

HOW = ("left", "inner")
_NOT_OF_JOINS = ("per", "within", "order_by", "limit", "points")  # the first two are arguments of the join
JOIN_OPTIONS = tuple(f.name for f in fields(Query) if f.name not in _NOT_OF_JOINS)


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
        """Return the join that plain data describes. The members are arguments of a join or of `Query`.

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
            raise ValueError(
                "a join needs the parameter on, which is a key, a list of keys, or an equality such as 'ticker = "
                "symbol'"
            )
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
