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
from aggr.function import Function
from aggr.function_inputs import WEIGHT, keyword
from spark_udaf.plan.columns import COLLATED, collation_message, compares_text
from spark_udaf.udaf.bounded_lists import interval_per_value
from spark_udaf.udaf.sql import LIST
from spark_udaf.versions.features import has_collations

_OPENING_TOKENS = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE)
_CLOSING_TOKENS = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE)
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
# Matches an argument that is passed by name, such as ``weight => n``.
_NAMED_ARGUMENT = re.compile(r"\s*(\w+)\s*=>(.*)", re.DOTALL)


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
    condition: str  # the text ``FILTER (…)`` after the call, or the empty string
    is_distinct: bool


def with_lists(query: str, functions: Mapping[str, Function], max_values: int) -> tuple[str, set[str]]:
    """Return two values: the query with its calls of ``functions`` rewritten, so that they read lists, and the names of
    the functions that the rewritten query calls.

    Parameters
    ----------
    query : str
        In Spark's SQL.
    functions : dict from the name of each SQL function that aggregates rows, such as ``aggr_dds`` and
        ``aggr_dds_state``, to its `Function`
    max_values : int
        The maximum number of values of a list.

    Raises
    ------
    ValueError
        For a text that cannot be read, EXPLAIN of a query with such a call, ``DISTINCT`` in a call of a function with
        several inputs, or a call without a column.
    """
    tokens = read_tokens(query)
    if tokens and tokens[0].text.upper() == "EXPLAIN" and re.search(r"\baggr_\w+\s*\(", query, re.IGNORECASE):
        raise ValueError("su.sql cannot run EXPLAIN; pass the query without EXPLAIN, and call .explain() on the result")
    called_names: set[str] = set()
    calls: list[_Edit] = []
    last_end = 0
    for position, token in enumerate(tokens):
        name = token.text.lower()
        is_call = position + 1 < len(tokens) and tokens[position + 1].token_type == TokenType.L_PAREN
        if token.start < last_end or not is_call or not name.startswith("aggr_"):
            continue
        if name not in functions:
            called_names.add(name)
            continue
        call = _read_call(query, tokens, position, functions[name])
        # `_read_call` returns None for a call with OVER. Such a call is not rewritten, because Spark cannot collect
        # lists over windows.
        if call is None:
            called_names.add(name)
            continue
        rewritten_arguments = [with_lists(argument, functions, max_values) for argument in call.arguments]
        called_names.update(*(names for _, names in rewritten_arguments))
        text, function_name = _list_call(call, [argument for argument, _ in rewritten_arguments], max_values)
        called_names.add(function_name)
        calls.append(_Edit(call.start, call.end, text))
        last_end = call.end
    return _apply_edits(query, [*calls, *_names_of_results(query, tokens, calls)]), called_names


def read_tokens(query: str) -> Sequence[Token]:
    """Return the tokens of a query in Spark's SQL. Raise ``ValueError`` for a text that cannot be read."""
    try:
        return sqlglot.tokenize(query, read="spark")
    except sqlglot.errors.SqlglotError as error:
        raise ValueError(f"cannot read the query: {str(error).splitlines()[0]}; correct its SQL") from None


@dataclass(frozen=True)
class _Edit:
    """A change of a query: the text ``text`` replaces the characters from the position ``start`` to the position
    ``end``, exclusive.
    """

    start: int
    end: int
    text: str


def _apply_edits(query: str, edits: Sequence[_Edit]) -> str:
    """Return the query after all ``edits`` have been made. The edits must not overlap."""
    parts: list[str] = []
    last_end = 0
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end)):
        parts += [query[last_end : edit.start], edit.text]
        last_end = edit.end
    return "".join([*parts, query[last_end:]])


def _names_of_results(query: str, tokens: Sequence[Token], calls: Sequence[_Edit]) -> Iterator[_Edit]:
    """Yield edits that add aliases to results of SELECT clauses. A result receives an alias if it contains a rewritten
    call and has no alias yet. Without the alias, Spark would name the column by the rewritten text.
    """
    for first, last in _results(tokens):
        start = tokens[first].start
        end = tokens[last].end + 1
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
    # A stack with one element for the text outside of all brackets, and one for each open bracket. An element is the
    # position at which the current result of a SELECT clause begins, or None outside of such a clause.
    starts: list[int | None] = [None]
    for position, token in enumerate([*tokens, None]):
        token_kind = None if token is None else token.token_type
        start = starts[-1]
        if start is not None and _ends_result(tokens, position):
            if start < position:
                yield start, position - 1
            starts[-1] = position + 1 if token_kind == TokenType.COMMA else None
        if token_kind in _OPENING_TOKENS:
            starts.append(None)
        elif token_kind in _CLOSING_TOKENS:
            starts = starts[:-1] or [None]
        elif token_kind == TokenType.SELECT or (token_kind in _BEFORE_RESULTS and start == position):
            starts[-1] = position + 1


def _ends_result(tokens: Sequence[Token], position: int) -> bool:
    """Return whether the token at a position, or the end of the query, ends a result of a SELECT clause."""
    if position == len(tokens):
        return True
    token_kind = tokens[position].token_type
    previous_kind = tokens[position - 1].token_type
    next_kind = tokens[position + 1].token_type if position + 1 < len(tokens) else None
    if (token_kind, previous_kind) in ((TokenType.FROM, TokenType.DISTINCT), (TokenType.EXCEPT, TokenType.STAR)):
        # FROM is a part of the result ``x IS DISTINCT FROM y``, and EXCEPT is a part of the result ``* EXCEPT (y)``.
        return False
    if token_kind == TokenType.WINDOW and next_kind == TokenType.L_PAREN:
        return False  # The token is the name of the function ``window(ts, '1 hour')``, not the clause WINDOW.
    return token_kind in (*_CLOSING_TOKENS, TokenType.COMMA, *_AFTER_RESULTS)


def _read_call(query: str, tokens: Sequence[Token], position: int, function: Function) -> _Call | None:
    first = position + 2
    last = _closing_position(tokens, position + 1)
    is_distinct = tokens[first].token_type == TokenType.DISTINCT
    separators = [first + is_distinct, *_comma_positions(tokens, first, last)]
    end_positions = [*separators[1:], last]
    starts = [separators[0], *(cut + 1 for cut in separators[1:])]
    spans = zip(starts, end_positions, strict=True)
    arguments = [query[tokens[start].start : tokens[end - 1].end + 1] for start, end in spans if start < end]
    condition = ""
    end = last
    if last + 1 < len(tokens) and tokens[last + 1].text.upper() == "FILTER":
        end = _closing_position(tokens, last + 2)
        condition = query[tokens[last + 1].start : tokens[end].end + 1]
    if end + 1 < len(tokens) and tokens[end + 1].text.upper() == "OVER":
        return None
    return _Call(
        name=tokens[position].text.lower(),
        function=function,
        start=tokens[position].start,
        end=tokens[end].end + 1,
        arguments=arguments,
        condition=condition,
        is_distinct=is_distinct,
    )


def _closing_position(tokens: Sequence[Token], opening: int) -> int:
    """Return the position of the token that closes the bracket at the position ``opening``."""
    depth = 0
    for position in range(opening, len(tokens)):
        depth += (tokens[position].token_type in _OPENING_TOKENS) - (tokens[position].token_type in _CLOSING_TOKENS)
        if not depth:
            return position
    raise ValueError(f"the call of {tokens[opening - 1].text} has no closing parenthesis; add it")


def _comma_positions(tokens: Sequence[Token], first: int, last: int) -> list[int]:
    depth = 0
    positions = []
    for position in range(first, last):
        depth += (tokens[position].token_type in _OPENING_TOKENS) - (tokens[position].token_type in _CLOSING_TOKENS)
        if not depth and tokens[position].token_type == TokenType.COMMA:
            positions.append(position)
    return positions


def _list_call(call: _Call, arguments: Sequence[str], max_values: int) -> tuple[str, str]:
    """Return the text of the rewritten call, which reads a list, and the name of the function that it calls. A call of
    ``aggr_count`` without weights is replaced by Spark's own ``count``.
    """
    distinct = "DISTINCT " if call.is_distinct else ""
    weights = [argument for argument in arguments if argument.split("=>")[0].strip().lower() == WEIGHT]
    other_arguments = [argument for argument in arguments if argument not in weights]
    counts_rows = isinstance(call.function, aggr.Count) and not call.name.endswith("_merge")
    if (
        call.name == f"aggr_{aggr.Count.name}"
        and other_arguments
        and not weights
        and (call.is_distinct or len(other_arguments) == 1)
    ):
        return " ".join(filter(None, [f"count({distinct}{', '.join(other_arguments)})", call.condition])), "count"
    if counts_rows and other_arguments in ([], ["*"]):
        other_arguments = ["1"]
    check_columns(call.name, other_arguments)
    is_merge = call.name.endswith("_merge")
    inputs = 1 if is_merge else len(call.function.inputs)
    values, parameters = _split_inputs(other_arguments, () if is_merge else call.function.inputs)
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
    collect_call = f"collect_{'set' if call.is_distinct else 'list'}({row})"
    list_expression = " ".join(filter(None, [collect_call, call.condition]))
    if not call.is_distinct:
        overflow_check = " ".join(filter(None, [_overflow_check(call.name, row, max_values), call.condition]))
        # Without rows, the sum in `overflow_check` is null, and IF returns the empty array.
        list_expression = f"IF({overflow_check} >= INTERVAL '0' SECOND, {list_expression}, array())"
    return f"{call.name}{LIST}({', '.join([list_expression, *parameters])})", f"{call.name}{LIST}"


def check_columns(name: str, arguments: Sequence[str]) -> None:
    """Raise ``ValueError`` if a call has no arguments, or if an argument means all columns, such as ``*``."""
    if not arguments:
        raise ValueError(f"{name}: the call needs a column as its first argument; to count rows, use aggr_count(1)")
    stars = [argument for argument in arguments if argument == "*" or argument.endswith(".*")]
    if stars:
        raise ValueError(
            f"{name}: {stars[0]} stands for all columns; pass one column by its name; to count rows, use aggr_count(1)"
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
    remaining: list[str] = []
    for argument in arguments:
        named_argument = _NAMED_ARGUMENT.fullmatch(argument)
        keyword_name = named_argument[1].lower() if named_argument else None
        if named_argument and keyword_name in keywords and keyword_name not in named:
            named[keyword_name] = named_argument[2].strip()
        else:
            remaining.append(argument)
    values = [remaining.pop(0)] if remaining else []
    for role in inputs[1:]:
        if keyword(role) in named:
            values.append(named[keyword(role)])
        elif remaining and not _NAMED_ARGUMENT.fullmatch(remaining[0]):
            values.append(remaining.pop(0))
    return values, remaining


def _overflow_check(name: str, row: str, max_values: int) -> str:
    """Return an aggregate in SQL that fails if a group has more than about ``max_values`` values."""
    return f"sum(IF(({row}) IS NOT NULL, {interval_per_value(name, max_values)}, INTERVAL '0' SECOND))"
