"""Measure constructors: Python functions such as ``aggr.avg``, which return a measure.

They are generated from the inputs, the parameters and the docstring of a function.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import Field, fields
from functools import cache
from inspect import Parameter, Signature
from typing import Any

from aggr.arguments import checked_truth, is_name, shown
from aggr.function import Function, input_rule
from aggr.function_inputs import EVENT_TIME, WEIGHT, keyword
from aggr.functions.limits import ACTIONS, BEYOND, ERROR, check_beyond
from aggr.measure import Measure
from aggr.parameters import default_of, parse_parameter
from aggr.registry import get
from aggr.sql.inputs import quoted

_OPTIONAL_TEXT = "str | None"
# For each function that accepts ``distinct``, the function that replaces it if distinct=True is passed.
_DISTINCT_FUNCTIONS = {"count": "count_distinct", "sum": "sum_distinct", "avg": "avg_distinct"}
# For each function that accepts beyond="estimate", the function that replaces it if this argument is passed.
_ESTIMATES = {"count_distinct": "approx_count_distinct"}
_ESTIMATE = "estimate"
_DESCRIPTIONS = {  # the descriptions of parameters that several measure constructors share
    "by": "The column of event times. The default is the time column of the frame.",
    "where": "Aggregate only the rows for which this SQL condition is true.",
    "distinct": "Aggregate each distinct value of a group once. The state then contains these values, at most ``max`` "
    "per group.",
    WEIGHT: """The column with the number of rows that each row represents: whole numbers, at least 0, of any numeric
    type. Rows with a weight of 0 or null are skipped. The state is bit-identical to the state of rows repeated that
    often.""",
}
_COLUMN_TYPES = {False: "str", True: "str or sequence of str"}
_RAISES = """TypeError, ValueError
    For arguments that the function does not take, and for values that it does not allow."""


def caller(name: str) -> Callable[..., Measure]:
    """Return the measure constructor of the function with this name, such as ``aggr.var``. Another package may have
    registered the function.

    Parameters
    ----------
    name : str
        The name or an alias of a registered function.

    Returns
    -------
    callable of (column, further inputs, the function's parameters, where=None) that returns a measure
        The column of event times is passed as ``by``. A function that takes weights also accepts ``weight``. Parameters
        that are decimals or times may also be passed as text.

    Raises
    ------
    UnknownFunction, ValueError
        For the same reasons as `aggr.get`. The returned constructor raises ``TypeError`` for arguments that the
        function does not take, and ``ValueError`` for values that the function does not allow.

    Examples
    --------
    >>> caller("var")("bytes", 0)
    var('bytes', ddof=0)
    """
    return measure_constructor_of(get(name))


@cache
def measure_constructor_of(function: type[Function]) -> Callable[..., Measure]:
    """Return the measure constructor of a function: a Python function that takes columns and parameters, and returns a
    measure.
    """
    signature = _signature(function)
    parameter_names = [parameter.name for parameter in _parameters(function)]

    def call(*positional: Any, **named: Any) -> Measure:
        try:
            arguments = signature.bind(*positional, **named).arguments
        except TypeError as error:
            reason = str(error).replace("got an unexpected keyword argument", "there is no parameter")
            raise TypeError(f"{function.name}: {reason}; it takes {', '.join(signature.parameters)}") from None
        if "distinct" in arguments and checked_truth(arguments.pop("distinct"), "distinct"):
            return measure_constructor_of(get(_DISTINCT_FUNCTIONS[function.name]))(**arguments)
        if function.name in _ESTIMATES and _is_estimate(arguments.get(BEYOND, ERROR)):
            del arguments[BEYOND]
            estimate_parameters = {"k": arguments.pop("max")} if "max" in arguments else {}
            return measure_constructor_of(get(_ESTIMATES[function.name]))(**arguments, **estimate_parameters)
        if input_rule(function, function.inputs[0]).takes_records and not isinstance(arguments["column"], str):
            arguments["column"] = _struct_expression(function, arguments["column"])
        parameters = {name: arguments.pop(name) for name in parameter_names if name in arguments}
        state_parameters = function().own_state.parameters if parameters else {}
        for name in parameters.keys() & state_parameters.keys():
            parameters[name] = parse_parameter(name, parameters[name], state_parameters[name])
        further_inputs = tuple(arguments.pop(keyword(role), None) for role in function.inputs[1:])
        return Measure(function(**parameters), arguments.pop("column", None), others=further_inputs, **arguments)

    call.__name__ = call.__qualname__ = function.name
    call.__doc__ = _docstring(function, signature)
    call.__dict__["__signature__"] = signature
    return call


def _struct_expression(function: type[Function], columns: object) -> str:
    """Return the SQL expression ``struct(…)`` that combines a list of columns. Raises ``ValueError`` if ``columns`` is
    not a list of names.
    """
    if not isinstance(columns, list | tuple) or not columns or not all(map(is_name, columns)):
        raise ValueError(
            f"the column of {function.name} must be a name, an expression, or a list of names, such as "
            f"['span_id', 'name']; got {shown(columns)}"
        )
    parts = (name if re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", name) else quoted(name) for name in columns)
    return f"struct({', '.join(parts)})"


def _is_estimate(beyond: object) -> bool:
    """Return whether ``beyond`` is "estimate", which replaces the exact function by an estimating one.

    Raises ``ValueError`` if ``beyond`` is not an allowed word.
    """
    check_beyond(beyond, (*ACTIONS, _ESTIMATE))
    return beyond == _ESTIMATE


def _parameters(function: type[Function]) -> Iterator[Field[Any]]:
    parameters = (parameter for parameter in fields(function) if parameter.init)
    yield from sorted(parameters, key=lambda parameter: bool(parameter.kw_only))


def _signature(function: type[Function]) -> Signature:
    """Return the signature of a function's measure constructor: the column, further inputs, the function's own
    parameters, ``by``, ``where`` and ``weight``.
    """
    can_count_rows = function.name == "count"  # count is the only function that can be called without a column
    column = _parameter("column", *((_OPTIONAL_TEXT, None) if can_count_rows else (_column_type(function),)))
    further_columns = [_parameter(keyword(role), "str") for role in function.inputs[1:] if role != EVENT_TIME]
    parameters = [_parameter(p.name, p.metadata.get("accepts", p.type), default_of(p)) for p in _parameters(function)]
    keywords = [
        *(["by"] if EVENT_TIME in function.inputs else []),
        "where",
        *([WEIGHT] if function.takes_weights else []),
    ]
    keyword_parameters = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=_OPTIONAL_TEXT) for name in keywords
    ]
    if function.name in _DISTINCT_FUNCTIONS:
        keyword_parameters.append(Parameter("distinct", Parameter.KEYWORD_ONLY, default=False, annotation="bool"))
    return Signature([column, *further_columns, *parameters, *keyword_parameters], return_annotation="Measure")


def _column_type(function: type[Function]) -> str:
    return "str | Sequence[str]" if input_rule(function, function.inputs[0]).takes_records else "str"


def _parameter(name: str, annotation: Any, default: Any = Parameter.empty) -> Parameter:
    return Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=annotation)


def _docstring(function: type[Function], signature: Signature) -> str:
    """Return the docstring of a function's measure constructor: the docstring of the function, with the columns among
    the parameters, and a section about the returned measure.
    """
    summary, *titled_parts = re.split(r"^(\w[^\n]*)\n-+\n", inspect.cleandoc(function.__doc__ or ""), flags=re.M)
    sections = {title: text.strip("\n") for title, text in zip(titled_parts[::2], titled_parts[1::2], strict=True)}
    first_role, *further_roles = function.inputs
    rules = {"column": input_rule(function, first_role)}
    rules |= {keyword(role): input_rule(function, role) for role in further_roles if role != EVENT_TIME}
    column_texts = [
        f"{word} : {_COLUMN_TYPES[rule.takes_records]}\n    {rule.sentence}" for word, rule in rules.items()
    ]
    keywords = [p.name for p in signature.parameters.values() if p.kind is p.KEYWORD_ONLY]
    types = {"distinct": "bool"}
    keyword_texts = [f"{word} : {types.get(word, 'str, optional')}\n    {_DESCRIPTIONS[word]}" for word in keywords]
    parameter_texts = [sections["Parameters"]] if "Parameters" in sections else []
    sections = {
        **{"Parameters": "\n".join([*column_texts, *parameter_texts, *keyword_texts])},
        **{"Returns": f"Measure\n    Its result: {function.returns}. Guarantee: {function.guarantee}."},
        **{"Raises": _RAISES},
        **{title: text for title, text in sections.items() if title != "Parameters"},
    }
    section_texts = [f"{title}\n{'-' * len(title)}\n{text}" for title, text in sections.items()]
    return "\n\n".join([summary.rstrip(), *section_texts])


def each_column(
    columns: Iterable[str], call: Callable[..., Measure], *arguments: Any, **named: Any
) -> dict[str, Measure]:
    """Return the same measure for each of several columns.

    Parameters
    ----------
    columns : columns or expressions
    call : callable that returns a Measure
        A measure constructor, such as ``aggr.avg``.
    arguments, named : anything
        Additional arguments of the measure constructor.

    Returns
    -------
    dict of measures
        The measures, named by column and function; ``|`` joins such dicts.

    Raises
    ------
    TypeError, ValueError
        If ``columns`` is not a list of columns, and for the same reasons as the measure
        constructor.

    Examples
    --------
    >>> import aggr
    >>> aggr.each_column(["price", "size"], aggr.var, ddof=0)
    {'price_var': var('price', ddof=0), 'size_var': var('size', ddof=0)}
    """
    if isinstance(columns, str) or not isinstance(columns, Iterable) or not callable(call):
        raise TypeError(
            "each_column takes a list of columns and a measure constructor, such as aggr.avg; got "
            f"{shown(columns)} and {shown(call)}; write each_column(['a', 'b'], aggr.avg)"
        )
    measures = {column: call(column, *arguments, **named) for column in columns}
    return {f"{column}_{measure.function.name}": measure for column, measure in measures.items()}
