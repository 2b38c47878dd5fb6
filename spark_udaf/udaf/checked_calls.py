"""Check the calls in a query on the driver: each call runs once over an empty list, before Spark starts a job.

To find the types of a call's arguments, Spark analyzes the arguments over the tables of the query. Two kinds of calls
are checked only in the tasks: calls with parameters that are not literals, and calls whose tables cannot be separated
from the query.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import sqlglot
from pyspark.sql import SparkSession
from pyspark.sql.types import StructField
from sqlglot import exp

import aggr
from aggr.errors import with_text
from aggr.function import Function
from aggr.function_inputs import WEIGHT
from aggr.tables.identify import class_of, unknown_state_type_error
from spark_udaf.plan.columns import collation_message, compares_text, is_collated
from spark_udaf.udaf.accessors import SET_OPERATIONS
from spark_udaf.udaf.aggregate_function import error_label
from spark_udaf.udaf.list_sql import check_columns
from spark_udaf.udaf.sql import LIST, Family, further_inputs
from spark_udaf.versions.arrow_types import to_arrow_type

# sqlglot's names of the parts of a SELECT that determine which columns exist.
_TABLES = ("from", "from_", "joins", "laterals", "with", "with_")
_NO_LITERAL = object()


@dataclass(frozen=True)
class _Call:
    """A call in a query. ``input_expressions`` maps each input of the function to an expression. ``parameters`` and
    ``named`` contain the values of positional and named parameters.
    """

    name: str
    input_expressions: Mapping[str, Any]
    parameters: Sequence[Any]
    named: Mapping[str, Any]


def check_calls(
    spark: SparkSession,
    query: str,
    arguments: Mapping[str, Any] | None,
    functions: Mapping[str, Function],
    families: Mapping[str, Family],
) -> None:
    """Check the calls of this library's functions in a query. A call that aggregates rows is run over an empty list. A
    call of a function of states must have states as arguments.

    Parameters
    ----------
    spark : SparkSession
    query : str
        In Spark's SQL.
    arguments : dict or None
        The values of the query's parameters, by their names.
    functions, families : dicts from the name of a SQL function to its `Function` and to its `Family`

    Raises
    ------
    TypeError, ValueError
        The error that a task would raise for the same call. Its message names the call.
    """
    try:
        tree = sqlglot.parse_one(query, read="spark")
    except sqlglot.errors.SqlglotError:
        return  # sqlglot cannot parse the query. If Spark cannot parse it either, Spark raises an error later.
    for node in tree.find_all(exp.Anonymous):
        name = node.name.lower()
        if name in families and (name not in functions or name.endswith("_merge")) and not name.endswith(LIST):
            # The columns of merging calls, such as aggr_dds_merge, are not checked here, because `with_lists` checks
            # them.
            if not name.endswith("_merge"):
                check_columns(name, [argument.sql("spark") for argument in node.expressions])
            fields = _fields(spark, _probe(_states_of(name, node), node, tree), arguments, functions)
            _check_states(name, fields or [])
        if name not in functions or name.endswith("_merge") or name == f"aggr_{aggr.Count.name}":
            continue
        call = _read_call(name, node, functions[name], arguments or {})
        fields = (
            None if call is None else _fields(spark, _probe(call.input_expressions, node, tree), arguments, functions)
        )
        types = None if fields is None else _arrow_types(fields)
        if call is None or fields is None or types is None:
            continue
        if compares_text(functions[name]) and any(is_collated(field.dataType) for field in fields):
            raise TypeError(collation_message(name))
        function = families[name].udfs()[f"{name}{LIST}"].function
        dtype = types[0] if len(types) == 1 else pa.struct(list(zip(call.input_expressions, types, strict=True)))
        try:
            function(_empty_list(dtype), *map(_constant, call.parameters), **_constants(call.named))
        # The message names the function that reads lists, such as aggr_dds_list. This name is replaced by the name in
        # the query, such as aggr_dds.
        except (TypeError, ValueError, OverflowError) as error:
            raise with_text(error, str(error).replace(f"{name}{LIST}", name)) from None


def _read_call(name: str, node: exp.Anonymous, function: Function, arguments: Mapping[str, Any]) -> _Call | None:
    """Return a call in a query as a `_Call`. Return None for a call without arguments or with ``*``, and for a call
    with a parameter that is neither a literal nor in ``arguments``.
    """
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for argument in _arguments(node):
        if isinstance(argument, exp.Kwarg):
            named[argument.this.name] = argument.expression
        else:
            positional.append(argument)
    if not positional or any(argument.is_star for argument in positional):
        return None
    weight = named.pop(WEIGHT, None) if function.takes_weights else None
    with error_label(name):
        further_columns, positional_parameters, unread_named = further_inputs(function.inputs, positional[1:], named)
    input_expressions = dict(zip(function.inputs, [positional[0], *further_columns], strict=True))
    if weight is not None:
        input_expressions[WEIGHT] = weight
    parameters = [_literal(value, arguments) for value in positional_parameters]
    named_parameters = {word: _literal(value, arguments) for word, value in unread_named.items()}
    if any(value is _NO_LITERAL for value in (*parameters, *named_parameters.values())):
        return None
    return _Call(name, input_expressions, parameters, named_parameters)


def _states_of(name: str, node: exp.Anonymous) -> dict[str, Any]:
    """Return a dict of the arguments of a call that must be states. The keys are the positions of the arguments as
    text, such as "0".
    """
    arguments = [argument for argument in node.expressions if not isinstance(argument, exp.Kwarg)]
    is_set_operation = name.rpartition("_")[2] in SET_OPERATIONS
    return {str(position): argument for position, argument in enumerate(arguments[: 2 if is_set_operation else 1])}


def _check_states(name: str, fields: Sequence[StructField]) -> None:
    """Raise ``TypeError`` if one of the arguments of the function ``name`` is not a column of states. ``fields``
    contains the types of the arguments.
    """
    for dtype in _arrow_types(fields) or []:
        if class_of(dtype) is None:
            with error_label(name):
                raise unknown_state_type_error(dtype)


def _arguments(node: exp.Anonymous) -> Iterator[exp.Expression]:
    for argument in node.expressions:
        yield from argument.expressions if isinstance(argument, exp.Distinct) else [argument]


def _probe(columns: Mapping[str, Any], node: exp.Expression, tree: Any) -> exp.Select | None:
    """Return a query that selects the arguments of a call. Spark finds the types of the arguments by analyzing this
    query, which reads the tables of the SELECT that contains the call. Return None if the call is not in a SELECT.
    """
    select = node.find_ancestor(exp.Select)
    if select is None or not columns or any(column.is_star for column in columns.values()):
        return None
    probe = exp.Select(expressions=[column.copy() for column in columns.values()])
    for owner in (tree, select):
        for part, clause in owner.args.items():
            if not clause or part not in _TABLES:
                continue
            if isinstance(clause, exp.With):
                probe.set(part, _queries_before(clause, node))
            elif owner is select:
                probe.set(part, owner.copy().args[part])
    return probe


def _queries_before(clause: exp.With, node: exp.Expression) -> exp.With | None:
    """Return the queries of a WITH clause whose results a call can read.

    A call within a query of the clause can read only the queries before its own. Any other call can read all queries.
    """
    positions = (
        position for position, query in enumerate(clause.expressions) if any(part is node for part in query.walk())
    )
    count = next(positions, len(clause.expressions))
    return exp.With(expressions=[query.copy() for query in clause.expressions[:count]]) if count else None


def _fields(
    spark: SparkSession,
    probe: exp.Select | None,
    arguments: Mapping[str, Any] | None,
    functions: Mapping[str, Function],
) -> list[StructField] | None:
    """Return the fields of the schema of ``probe``, a query from `_probe`, or None if Spark cannot analyze this query.

    A query that calls functions of this library cannot be analyzed, because these functions are not registered yet.
    """
    if probe is None or any(call.name.lower() in functions for call in probe.find_all(exp.Anonymous)):
        return None
    try:
        return spark.sql(probe.sql("spark"), None if arguments is None else dict(arguments)).schema.fields
    # Spark's errors belong to different classes. They need not be raised here, because Spark analyzes the complete
    # query later, and then raises its errors.
    except Exception:
        return None


def _arrow_types(fields: Sequence[StructField]) -> list[pa.DataType] | None:
    """Return the Arrow types of columns, or None if Arrow has no counterpart of a type."""
    try:
        return [to_arrow_type(field.dataType) for field in fields]
    except TypeError:
        return None


def _empty_list(dtype: pa.DataType) -> pa.Array:
    return pa.array([[]], pa.list_(dtype))


def _literal(node: exp.Expression, arguments: Mapping[str, Any]) -> Any:
    """Return the value of an expression that is a literal, a negative number, a list of literals, a cast of a number,
    or a parameter of the query. Return `_NO_LITERAL` for other expressions.
    """
    if isinstance(node, exp.Placeholder):
        return arguments.get(node.name, _NO_LITERAL)
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    if isinstance(node, exp.Literal):
        if node.is_string:
            return node.this
        return int(node.this) if node.this.isdigit() else float(node.this)
    if isinstance(node, exp.Cast) and isinstance(node.this, exp.Literal) and not node.this.is_string:
        return float(node.this.this) if node.to.this in exp.DataType.FLOAT_TYPES else _NO_LITERAL
    if isinstance(node, exp.Neg):
        value = _literal(node.this, arguments)
        return -value if isinstance(value, int | float) else _NO_LITERAL
    if isinstance(node, exp.Array):
        values = [_literal(part, arguments) for part in node.expressions]
        return _NO_LITERAL if any(value is _NO_LITERAL for value in values) else values
    return _NO_LITERAL


def _constant(value: Any) -> pa.Array:
    return pa.array([value])


def _constants(named: Mapping[str, Any]) -> dict[str, pa.Array]:
    return {name: _constant(value) for name, value in named.items()}
