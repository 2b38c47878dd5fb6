"""query_arguments: replace the markers ``?`` of a query by names, and the list ``args`` of ``spark.sql`` by a dict.

A rewritten query may contain a part of the original query twice. It would then have more markers ``?`` than there are
values. A name, such as ``:low``, may occur any number of times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlglot import TokenType

from aggr.arguments import shown
from spark_udaf.udaf.list_sql import read_tokens


def name_arguments(
    query: str, arguments: Mapping[str, Any] | Sequence[Any] | None
) -> tuple[str, dict[str, Any] | None]:
    """Return a query whose parameters have names, and a dict from these names to values.

    Parameters
    ----------
    query : str
        In Spark's SQL, with parameters ``:name``, or markers ``?``.
    arguments : dict, list or None
        The values of the parameters: a dict from names, or a list in the order of the markers.

    Raises
    ------
    TypeError
        If the arguments are neither a dict nor a list.
    ValueError
        If there are fewer values than markers.

    Examples
    --------
    >>> name_arguments("SELECT aggr_sum(x + ?) FROM t WHERE y = '?'", [3])
    ("SELECT aggr_sum(x + :_1) FROM t WHERE y = '?'", {'_1': 3})
    """
    if arguments is None:
        return query, None
    if isinstance(arguments, Mapping):
        return query, dict(arguments)
    if isinstance(arguments, str | bytes) or not isinstance(arguments, Sequence):
        raise TypeError(
            "args must be a dict of the parameters' names, or a list of values for the markers ?; got "
            f"{shown(arguments)}"
        )
    starts = [token.start for token in read_tokens(query) if token.token_type == TokenType.PLACEHOLDER]
    if len(arguments) < len(starts):
        raise ValueError(f"args must have a value for each of the {len(starts)} markers ?; got {len(arguments)} values")
    named: dict[str, Any] = {}
    parts: list[str] = []
    last_end = 0
    for number, (start, value) in enumerate(zip(starts, arguments, strict=False), start=1):
        name = f"_{number}"
        named[name] = value
        parts += [query[last_end:start], f":{name}"]
        last_end = start + 1
    return "".join([*parts, query[last_end:]]), named
