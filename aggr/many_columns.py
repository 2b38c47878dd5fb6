"""Many columns: the same call of each of them, as one dict of measures."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from aggr.arguments import shown
from aggr.measure import Measure


def each_column(columns: Iterable[str], call: Callable[..., Measure], *given: Any, **named: Any) -> dict[str, Measure]:
    """Make the same call of every column.

    Parameters
    ----------
    columns : columns or expressions
    call : a call of `aggr`
        Such as ``aggr.avg``.
    given, named : anything
        What the call takes besides its column.

    Returns
    -------
    dict of measures
        Named by column and function, to be joined with ``|``.

    Raises
    ------
    TypeError, ValueError
        For what are no columns, and as the call does.

    Examples
    --------
    >>> import aggr
    >>> aggr.each_column(["price", "size"], aggr.var, ddof=0)
    {'price_var': var('price', ddof=0), 'size_var': var('size', ddof=0)}
    """
    if isinstance(columns, str) or not isinstance(columns, Iterable) or not callable(call):
        raise TypeError(
            f"each_column takes a list of columns and a call, such as each_column(['a', 'b'], aggr.avg); "
            f"got {shown(columns)} and {shown(call)}"
        )
    measures = {column: call(column, *given, **named) for column in columns}
    return {f"{column}_{measure.function.name}": measure for column, measure in measures.items()}
