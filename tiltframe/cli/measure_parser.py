"""Measures as people type them: ``dds(latency_ms, quantiles=[0.5, 0.99])``, read as Python would."""

from __future__ import annotations

import ast
import inspect
import warnings
from collections.abc import Iterable
from typing import Any

import aggr
from aggr import Measure, sql
from aggr.arguments import shortened, shown
from aggr.function import column_keywords


def measure_from(text: str) -> Measure:
    """Read a measure from a call.

    Parameters
    ----------
    text : str
        A function's name and its arguments, the column first: ``count()``, ``sum(bytes)``,
        ``count(where="status >= 500")``, ``sum(price * quantity)``. A column or an expression needs quotes only where
        Python could not read it: ``hdr('latency ms', digits=2)``, ``sum("CASE WHEN ok THEN 1 ELSE 0 END")``.

    Raises
    ------
    ValueError
        If it is no call, the function is unknown, or an argument is wrong.

    Examples
    --------
    >>> measure_from("dds(latency_ms, quantiles=[0.5, 0.99])")
    dds('latency_ms', quantiles=[0.5, 0.99])
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a call that is refused, or is right as it is
            call = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        call = None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise ValueError(
            f"cannot read {shown(text)} as a measure; write a call such as count(), sum(bytes) or dds(latency_ms), "
            "with quotes around an expression that Python cannot read"
        )
    name = call.func.id
    maker = aggr.caller(name)
    bare = {"column", *column_keywords(aggr.get(name))}  # words that need no quotes
    order = [*inspect.signature(maker).parameters]
    columns = [_value(a, text, bare=not bare.isdisjoint(order[i : i + 1])) for i, a in enumerate(call.args)]
    named = {k.arg: _value(k.value, text, bare=k.arg in bare) for k in call.keywords if k.arg}
    if len(named) < len(call.keywords):
        raise ValueError(f"cannot read {shown(text)} as a measure; give arguments one by one, and each once")
    _check_bound(maker, columns, named, name, text)
    try:
        return maker(*columns, **named)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{shortened(text)}: {error}") from None


def keys_from(given: Iterable[str]) -> dict[str, str]:
    """Read keys given as a column, or as ``NAME=EXPRESSION``; raises ``ValueError`` also for a name given twice.

    >>> keys_from(["host", "route=lower(route)"])
    {'host': 'host', 'route': 'lower(route)'}
    """
    keys: dict[str, str] = {}
    for text in given:
        name, equals, expression = (part.strip() for part in text.partition("="))
        if equals and not (name and expression):
            raise ValueError(f"cannot read {shown(text)} as a key; write COL, or NAME=EXPRESSION: route=lower(route)")
        if not equals:
            name = expression = text
        if name in keys:
            raise ValueError(f"the key {shown(name)} is given twice; give it once")
        keys[name] = expression
    return keys


def measures_from(given: Iterable[str]) -> dict[str, Measure]:
    """Read measures given as ``NAME=CALL``; raises ``ValueError`` also for a name given twice."""
    measures: dict[str, Measure] = {}
    for text in given:
        name, equals, call = text.partition("=")
        if not equals or not name.strip().isidentifier():
            raise ValueError(f"cannot read {shown(text)} as a measure; write NAME=CALL, such as requests=count()")
        if name.strip() in measures:
            raise ValueError(f"the measure {name.strip()!r} is given twice; give each a name of its own")
        measures[name.strip()] = measure_from(call)
    return measures


def _value(node: ast.expr, text: str, bare: bool) -> Any:
    if bare and isinstance(node, ast.Name):
        return node.id
    written = ast.get_source_segment(text.strip(), node) or text
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        if bare:
            sql.columns_of(written, "expression")  # what is no expression is refused before there are files
            return written
        wrong = shown(written)
        raise ValueError(f"{shown(text)}: cannot read {wrong}; write numbers, lists, or text in quotes") from None


def _check_bound(maker: Any, columns: list[Any], named: dict[str, Any], name: str, text: str) -> None:
    """Raise ``ValueError`` unless a function takes these arguments."""
    signature = inspect.signature(maker)
    takes = f"{name} takes {_signature(maker)}"
    any_name = any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())
    for given in named:
        if given not in signature.parameters and not any_name:
            raise ValueError(f"{shown(text)}: there is no parameter {given!r}; {takes}")
    try:
        signature.bind(*columns, **named)
    except TypeError as error:
        raise ValueError(f"{shown(text)}: {str(error).replace(' positional', '')}; {takes}") from None


def _signature(maker: Any) -> str:
    return ", ".join(str(p).split(":")[0] for p in inspect.signature(maker).parameters.values())
