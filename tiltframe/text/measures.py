"""Parse measures and keys from text: ``dds(latency_ms, quantiles=[0.5, 0.99])``, ``route=lower(route)``."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import aggr
from aggr import Measure, sql
from aggr.arguments import shortened, shown
from aggr.call_text import bind_call, read_call, read_mapping, read_value
from aggr.function import column_keywords
from aggr.tables.result_expressions import is_expression


def measure_from(text: str) -> Measure:
    """Return the measure for the text of a call. A call is the name of a function with its arguments, the column first,
    in the syntax of `aggr.call_text`.

    Raise ``ValueError`` if the text is not a call, the function is unknown, or an argument is invalid.

    >>> measure_from("dds(latency_ms, quantiles=[0.5, 0.99])")
    dds('latency_ms', quantiles=[0.5, 0.99])
    >>> measure_from("arg_max(url, by=ms, where='status < 500')")
    arg_max('url', by='ms', where='status < 500')
    """
    call = read_call(text)
    if call is None:
        raise ValueError(
            f"cannot read {shown(text)} as a measure; write a call such as count(), sum(bytes) or dds(latency_ms), "
            "with quotes around an expression that contains a comma or an ="
        )
    maker = aggr.caller(call.name)
    columns = {"column", *column_keywords(aggr.get(call.name))}

    def value(argument: str, parameter: str | None) -> Any:
        if parameter in columns:
            return _column(argument)
        value = read_value(argument)
        calls = read_mapping(argument)
        return {name: measure_from(inner) for name, inner in calls.items()} if calls and value == argument else value

    measure = bind_call(call, maker, text, "a measure", parse_value=value)
    try:
        return measure()
    except (TypeError, ValueError) as error:
        raise ValueError(f"{shortened(text)}: {error}") from None


def keys_from(texts: Iterable[str]) -> dict[str, str]:
    """Return the keys of a frame, as name → column or expression. A text is the name of a column, or
    ``NAME=EXPRESSION``. Raise ``ValueError`` if a text cannot be read or a name is repeated.

    >>> keys_from(["host", "route=lower(route)"])
    {'host': 'host', 'route': 'lower(route)'}
    """
    keys: dict[str, str] = {}
    for text in texts:
        name, equals, expression = (part.strip() for part in text.partition("="))
        if equals and not (name and expression):
            raise ValueError(f"cannot read {shown(text)} as a key; write COL, or NAME=EXPRESSION: route=lower(route)")
        if not equals:
            name = expression = text
        if name in keys:
            raise ValueError(f"the key {shown(name)} is listed twice; list it once")
        keys[name] = expression
    return keys


def measures_from(texts: Iterable[str]) -> dict[str, Measure | str]:
    """Return the measures of a frame by name. A text is ``NAME=CALL``, or ``NAME=EXPRESSION`` for an expression over
    other measures. Raise ``ValueError`` if a text cannot be read or a name is repeated.

    >>> measures_from(["errors=count(where='status >= 500')", "n=count()", "rate=errors / n"])
    {'errors': count(where='status >= 500'), 'n': count(), 'rate': 'errors / n'}
    """
    measures: dict[str, Measure | str] = {}
    for text in texts:
        name, equals, call = (part.strip() for part in text.partition("="))
        if not equals or not name.isidentifier():
            raise ValueError(f"cannot read {shown(text)} as a measure; write NAME=CALL, such as requests=count()")
        if name in measures:
            raise ValueError(f"the measure {name!r} is used twice; rename one of them")
        measures[name] = call if _is_expression(call) else measure_from(call)
    return measures


def query_measures_from(texts: Iterable[str]) -> dict[str, Measure | str] | None:
    """Return the measures of a query by name, or None if there are no texts. A text is ``NAME``, ``NAME=CALL`` for a
    new measure, or ``NAME=EXPRESSION`` for an expression over results.

    >>> query_measures_from(["n", "rate=errors / n", "p99=dds(ms, [0.99])"])
    {'n': 'n', 'rate': 'errors / n', 'p99': dds('ms', quantiles=[0.99])}
    """
    measures: dict[str, Measure | str] = {}
    for text in texts:
        name, equals, _ = (part.strip() for part in text.partition("="))
        if name in measures:
            raise ValueError(f"the measure {shown(name)} is requested twice; name it once, or rename one")
        if not equals:
            measures[name] = name
        else:
            measures |= measures_from([text])
    return measures or None


def _is_expression(text: str) -> bool:
    """Return whether a text is an expression over results. Return False for the name of a function of `aggr`, and for
    calls of such a function.
    """
    call = read_call(text, allows_bare_name=True)
    if call is not None:
        with suppress(aggr.UnknownFunction):
            aggr.get(call.name)
            return False
    return is_expression(text)


def _column(argument: str) -> Any:
    """Return the column or the expression that an argument names. An invalid expression raises an error here, before
    files are read.
    """
    value = read_value(argument)
    if value == argument and not argument.isidentifier():
        sql.columns_of(argument, "expression")
    return value
