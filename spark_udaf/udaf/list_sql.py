"""list_sql: rewrite a query so that calls of this library's functions read lists. Spark can combine such calls with any
aggregate.

    SELECT k, aggr_dds(x) FILTER (WHERE y > 0), max(x) FROM t GROUP BY k
    SELECT k, aggr_dds_list(collect_list(x) FILTER (WHERE y > 0)), max(x) FROM t GROUP BY k

Other parts of the query are not changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import sqlglot
from sqlglot import Token, TokenType, exp

import aggr
from aggr.function import WEIGHT, Function, keyword
from spark_udaf.plan.columns import COLLATED, collation_message, compares_text
from spark_udaf.udaf.bounded_lists import interval_step
from spark_udaf.udaf.sql import LIST
from spark_udaf.versions.features import has_collations

_OPENING = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE)
_CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE)
# The tokens that may stand between SELECT and its first result.
_BEFORE_RESULTS = (TokenType.HINT, TokenType.DISTINCT, TokenType.ALL)
# The tokens that end the results of a SELECT clause.
_AFTER_RESULTS = (
    TokenType.FROM,
    TokenType.LATERAL,
    TokenType.WHERE,
    TokenType.GROUP_BY,
    TokenType.HAVING,
    TokenType.WINDOW,
    TokenType.QUALIFY,
    TokenType.ORDER_BY,
    TokenType.SORT_BY,
    TokenType.CLUSTER_BY,
    TokenType.DISTRIBUTE_BY,
    TokenType.LIMIT,
    TokenType.OFFSET,
    TokenType.UNION,
    TokenType.EXCEPT,
    TokenType.INTERSECT,
    TokenType.SEMICOLON,
)
_NAMED = re.compile(r"\s*(\w+)\s*=>(.*)", re.DOTALL)  # weight => n


@dataclass(frozen=True)
class _Call:
    """A call in the text of a query. The call begins at the position ``start`` of the text and ends before the position
    ``end``.
    """

    name: str
    function: Function
    start: int
    end: int
    arguments: Sequence[str]
    condition: str  # the text ``FILTER (…)``, or the empty string
    is_distinct: bool


def with_lists(query: str, functions: Mapping[str, Function], most_values: int) -> tuple[str, set[str]]:
    """Return a query whose calls read lists, and the names of the functions that it calls.

    Parameters
    ----------
    query : str
        In Spark's SQL.
    functions : dict from the name of each SQL function that aggregates rows, such as ``aggr_dds`` and
        ``aggr_dds_state``, to its `Function`
    most_values : int
        The maximum number of values of a list.

    Raises
    ------
    ValueError
        For a text that cannot be read, ``DISTINCT`` in a call of a function with several inputs, or a call without a
        column.
    """
    tokens = read_tokens(query)
    called: set[str] = set()
    calls: list[_Edit] = []
    after = 0
    for place, token in enumerate(tokens):
        name = token.text.lower()
        is_call = place + 1 < len(tokens) and tokens[place + 1].token_type == TokenType.L_PAREN
        if token.start < after or not is_call or not name.startswith("aggr_"):
            continue
        if name not in functions:
            called.add(name)
            continue
        call = _read_call(query, tokens, place, functions[name])
        if call is None:  # a call with OVER is not rewritten, because Spark cannot collect lists over windows
            called.add(name)
            continue
        inner = [with_lists(argument, functions, most_values) for argument in call.arguments]
        called.update(*(names for _, names in inner))
        text, function_name = _list_call(call, [argument for argument, _ in inner], most_values)
        called.add(function_name)
        calls.append(_Edit(call.start, call.end, text))
        after = call.end
    return _edited(query, [*calls, *_names_of_results(query, tokens, calls)]), called


def read_tokens(query: str) -> Sequence[Token]:
    """Return the tokens of a query in Spark's SQL. Raise ``ValueError`` for a text that cannot be read."""
    try:
        return sqlglot.tokenize(query, read="spark")
    except sqlglot.errors.SqlglotError as error:
        raise ValueError(f"cannot read the query: {str(error).splitlines()[0]}; correct its SQL") from None


@dataclass(frozen=True)
class _Edit:
    """A text that replaces the part of a query from the position ``start`` to the position ``end``, exclusive."""

    start: int
    end: int
    text: str


def _edited(query: str, edits: Sequence[_Edit]) -> str:
    """Return the query in which all ``edits`` have been made. They must not overlap."""
    parts: list[str] = []
    after = 0
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end)):
        parts += [query[after : edit.start], edit.text]
        after = edit.end
    return "".join([*parts, query[after:]])


def _names_of_results(query: str, tokens: Sequence[Token], calls: Sequence[_Edit]) -> Iterator[_Edit]:
    """Yield an alias for each result of a SELECT clause that contains a rewritten call and has no alias. Without the
    alias, Spark would name the column by the rewritten text.
    """
    for first, last in _results(tokens):
        start, end = tokens[first].start, tokens[last].end + 1
        has_call = any(start <= call.start and call.end <= end for call in calls)
        is_in_call = any(call.start < start and end < call.end for call in calls)
        text = query[start:end]
        if has_call and not is_in_call and not _has_alias(text):
            name_in_spark = " ".join(text.split()).replace("`", "``")
            yield _Edit(end, end, f" AS `{name_in_spark}`")


def _has_alias(result: str) -> bool:
    """Return whether a result of a SELECT clause has an alias.

    Return True for a text that cannot be parsed, so that no alias is added to this text.
    """
    try:
        select = sqlglot.parse_one(f"SELECT {result}", read="spark")
    except sqlglot.errors.SqlglotError:
        return True
    return not isinstance(select, exp.Select) or isinstance(select.expressions[0], exp.Alias | exp.Aliases)


def _results(tokens: Sequence[Token]) -> Iterator[tuple[int, int]]:
    """Yield the positions of the first and the last token of each result of a SELECT clause."""
    # For the text outside of brackets and for each open bracket: the position at which the current result of a SELECT
    # clause begins, or None outside of such a clause.
    starts: list[int | None] = [None]
    for place, token in enumerate([*tokens, None]):
        kind = None if token is None else token.token_type
        start = starts[-1]
        if start is not None and _ends_result(tokens, place):
            if start < place:
                yield start, place - 1
            starts[-1] = place + 1 if kind == TokenType.COMMA else None
        if kind in _OPENING:
            starts.append(None)
        elif kind in _CLOSING:
            starts = starts[:-1] or [None]
        elif kind == TokenType.SELECT or (kind in _BEFORE_RESULTS and start == place):
            starts[-1] = place + 1


def _ends_result(tokens: Sequence[Token], place: int) -> bool:
    """Return whether the token at a position, or the end of the query, ends a result of a SELECT clause."""
    if place == len(tokens):
        return True
    kind, previous = tokens[place].token_type, tokens[place - 1].token_type
    following = tokens[place + 1].token_type if place + 1 < len(tokens) else None
    if (kind, previous) in ((TokenType.FROM, TokenType.DISTINCT), (TokenType.EXCEPT, TokenType.STAR)):
        return False  # FROM in ``x IS DISTINCT FROM y``, and EXCEPT in ``* EXCEPT (y)``
    if kind == TokenType.WINDOW and following == TokenType.L_PAREN:
        return False  # the function ``window(ts, '1 hour')``, not the clause WINDOW
    return kind in (*_CLOSING, TokenType.COMMA, *_AFTER_RESULTS)


def _read_call(query: str, tokens: Sequence[Token], place: int, function: Function) -> _Call | None:
    first = place + 2
    last = _closing(tokens, place + 1)
    is_distinct = tokens[first].token_type == TokenType.DISTINCT
    cuts = [first + is_distinct, *_commas(tokens, first, last)]
    end_places = [*cuts[1:], last]
    starts = [cuts[0], *(cut + 1 for cut in cuts[1:])]
    pieces = zip(starts, end_places, strict=True)
    arguments = [query[tokens[start].start : tokens[end - 1].end + 1] for start, end in pieces if start < end]
    condition, end = "", last
    if last + 1 < len(tokens) and tokens[last + 1].text.upper() == "FILTER":
        end = _closing(tokens, last + 2)
        condition = query[tokens[last + 1].start : tokens[end].end + 1]
    if end + 1 < len(tokens) and tokens[end + 1].text.upper() == "OVER":
        return None
    return _Call(
        name=tokens[place].text.lower(),
        function=function,
        start=tokens[place].start,
        end=tokens[end].end + 1,
        arguments=arguments,
        condition=condition,
        is_distinct=is_distinct,
    )


def _closing(tokens: Sequence[Token], opening: int) -> int:
    """Return the position of the closing bracket for an opening bracket."""
    depth = 0
    for place in range(opening, len(tokens)):
        depth += (tokens[place].token_type in _OPENING) - (tokens[place].token_type in _CLOSING)
        if not depth:
            return place
    raise ValueError(f"the call of {tokens[opening - 1].text} has no closing parenthesis; add it")


def _commas(tokens: Sequence[Token], first: int, last: int) -> list[int]:
    depth, places = 0, []
    for place in range(first, last):
        depth += (tokens[place].token_type in _OPENING) - (tokens[place].token_type in _CLOSING)
        if not depth and tokens[place].token_type == TokenType.COMMA:
            places.append(place)
    return places


def _list_call(call: _Call, arguments: Sequence[str], most_values: int) -> tuple[str, str]:
    """Return the text of the rewritten call, which reads a list, and the name of the function that it calls. A call of
    ``aggr_count`` without weights is replaced by Spark's own ``count``.
    """
    distinct = "DISTINCT " if call.is_distinct else ""
    weights = [argument for argument in arguments if argument.split("=>")[0].strip().lower() == WEIGHT]
    plain = [argument for argument in arguments if argument not in weights]
    counts_rows = isinstance(call.function, aggr.Count) and not call.name.endswith("_merge")
    if call.name == f"aggr_{aggr.Count.name}" and plain and not weights and (call.is_distinct or len(plain) == 1):
        return " ".join(filter(None, [f"count({distinct}{', '.join(plain)})", call.condition])), "count"
    if counts_rows and plain in ([], ["*"]):
        plain = ["1"]
    check_columns(call.name, plain)
    is_merge = call.name.endswith("_merge")
    inputs = 1 if is_merge else len(call.function.inputs)
    values, parameters = _split_inputs(plain, () if is_merge else call.function.inputs)
    if call.is_distinct and (inputs > 1 or weights):
        raise ValueError(
            f"{call.name} takes several columns, but DISTINCT works only with one; use a subquery with DISTINCT"
        )
    row = values[0]
    if inputs > 1 or weights:
        fields = [*values, *(weight.split("=>", 1)[1].strip() for weight in weights)]
        names = [*call.function.inputs[: len(values)], *([WEIGHT] if weights else [])]
        row = "named_struct(" + ", ".join(f"'{name}', {field}" for name, field in zip(names, fields, strict=True)) + ")"
    if has_collations() and not is_merge and compares_text(call.function):
        row = f"IF(typeof({row}) RLIKE '{COLLATED}', raise_error('{collation_message(call.name)}'), {row})"
    collected = f"collect_{'set' if call.is_distinct else 'list'}({row})"
    listed = " ".join(filter(None, [collected, call.condition]))
    if not call.is_distinct:
        bound = " ".join(filter(None, [_bound(call.name, row, most_values), call.condition]))
        # the bound is null if there are no values, and IF then returns the empty array
        listed = f"IF({bound} >= INTERVAL '0' SECOND, {listed}, array())"
    return f"{call.name}{LIST}({', '.join([listed, *parameters])})", f"{call.name}{LIST}"


def check_columns(name: str, arguments: Sequence[str]) -> None:
    """Raise ``ValueError`` if the first argument of a call is missing, or an argument stands for all columns."""
    if not arguments:
        raise ValueError(f"{name}: it needs a column as its first argument; rows are counted by aggr_count(1)")
    stars = [argument for argument in arguments if argument == "*" or argument.endswith(".*")]
    if stars:
        raise ValueError(
            f"{name}: {stars[0]} stands for all columns; pass the column by its name; rows are counted by aggr_count(1)"
        )


def _split_inputs(arguments: Sequence[str], inputs: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return two lists: the arguments that are inputs of the function, and those that are parameters. Inputs after the
    first may be passed by keyword.

    >>> _split_inputs(["x", "concat(a, '=>', b)"], ("value", "time"))
    (['x', "concat(a, '=>', b)"], [])
    >>> _split_inputs(["x", "0.5", "by => ts"], ("value", "time"))
    (['x', 'ts'], ['0.5'])
    """
    keywords = {keyword(role) for role in inputs[1:]}
    named: dict[str, str] = {}
    left: list[str] = []
    for argument in arguments:
        named_argument = _NAMED.fullmatch(argument)
        word = named_argument[1].lower() if named_argument else None
        if named_argument and word in keywords and word not in named:
            named[word] = named_argument[2].strip()
        else:
            left.append(argument)
    values = [left.pop(0)] if left else []
    for role in inputs[1:]:
        if keyword(role) in named:
            values.append(named[keyword(role)])
        elif left and not _NAMED.fullmatch(left[0]):
            values.append(left.pop(0))
    return values, left


def _bound(name: str, row: str, most_values: int) -> str:
    """Return an aggregate in SQL that fails if a group has more than about ``most_values`` values."""
    return f"sum(IF(({row}) IS NOT NULL, {interval_step(name, most_values)}, INTERVAL '0' SECOND))"
