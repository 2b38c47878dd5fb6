"""SQL: every registered function as ``aggr_…``, its states, their merges and what can be read from them.

aggr_dds(x, array(0.5D, 0.99D))      the result in one step
aggr_dds_state(x)                    a state for each group …
aggr_dds_merge(state)                … merged into coarser groups …
aggr_dds_quantile(state, 0.99)       … and read, as often as one likes
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

import aggr
from aggr import Function, Groups
from aggr.arrow.normalize import with_nulls
from aggr.function import EVENT_TIME, WEIGHT
from aggr.registry import aliases
from aggr.tables.accessors import ACCESSORS, accessors_of, result_type
from aggr.tables.identify import function_of
from spark_udaf.plan.session import check_session
from spark_udaf.store.source import register_source
from spark_udaf.udaf.accessors import OPERATIONS, operation_type, set_operation
from spark_udaf.udaf.aggregate_function import (
    UdafSpec,
    arrow_type,
    error_label,
    has_fixed_result_type,
    input_kinds,
)
from spark_udaf.versions.sql_function import SqlFunction
from spark_udaf.versions.sql_udfs import sql_udf

_TYPES = ("bigint", "string", "timestamp")


def register(spark: SparkSession, types: Sequence[str] = _TYPES) -> list[str]:
    """Register every function for SQL, and the data source ``tiltframe``.

    Parameters
    ----------
    spark : SparkSession
        Classic or Connect.
    types : names of Spark types
        Functions whose result has the type of their column (min, max, sum, first, last, …) read it as double; for
        each of these types there is one more, say ``aggr_min_string`` and ``aggr_sum_bigint``.

    Returns
    -------
    list of str
        The names of the functions, sorted. For a function ``f``: ``aggr_f(x, parameters…)``,
        ``aggr_f_state(x, parameters…)`` with the parameters that shape the state, ``aggr_f_merge(state)``,
        ``aggr_f_finish(state)``, and the accessors that can read it, say ``aggr_f_quantile(state, q)``. first and
        last take the event time second, as functions of several inputs take these in their order; functions that take
        weights, ``weight => w``. Quantiles come as a
        map from their names, and the numbers of a record but its count as double.

    Raises
    ------
    ValueError
        If a type cannot be read.

    Examples
    --------
    The docs have one that runs::

        su.register(spark)
        spark.sql("SELECT host, aggr_hdr(ms, array(0.5D, 0.99D)).quantiles['0.99'] FROM requests GROUP BY host")
    """
    check_session(spark)
    if isinstance(types, str) or not isinstance(types, Sequence):
        raise ValueError(f"types must be a list of names of Spark's types; got {types!r}")
    udfs: dict[str, SqlFunction] = {}
    kinds = {name: arrow_type(name) for name in types}
    for name in [*aggr.names(), *aliases()]:
        function = aggr.get(name)()
        try:
            takes = input_kinds(function)
            free = has_fixed_result_type(function) and has_fixed_result_type(function, states=True)
            udfs |= _family(f"aggr_{name}", function, None if free else pa.float64())
        except TypeError:  # such as funnel, which gives nothing before it is told its steps
            continue
        for word, dtype in kinds.items():
            if not free and any(dtype.id == taken.id for taken in takes):
                udfs |= _family(f"aggr_{name}_{re.sub('[^a-z0-9]+', '_', word).strip('_')}", function, dtype)
    for name in OPERATIONS:
        dtype = operation_type(name)
        function_name = f"aggr_{aggr.ApproxCountDistinct.name}_{name}"
        returns_states = pa.types.is_struct(dtype)
        udfs[function_name] = SqlFunction(
            function_name, set_operation(name), dtype, is_aggregate=False, returns_states=returns_states
        )
    for name, udf in udfs.items():
        spark.udf.register(name, sql_udf(udf))
    register_source(spark)
    return sorted(udfs)


def _family(name: str, function: Function, dtype: pa.DataType | None) -> dict[str, SqlFunction]:
    plain, states = UdafSpec(function, name, dtype), UdafSpec(function, f"{name}_state", dtype, states=True)
    result, state = sql_type(plain.result), states.result
    inputs = len(function.inputs)
    parameters = [f.name for f in sorted(fields(function), key=lambda f: bool(f.kw_only))]  # in the order of the call
    reads = [parameter for parameter in parameters if parameter not in function.state_parameters]

    def whole(*positional: pa.Array, **named: pa.Array) -> pa.Scalar:
        applied, values, weights = _apply_parameters(plain, parameters, positional, named)
        return sql_column(applied.results(values, weights), result)[0]

    def reduced(*positional: pa.Array, **named: pa.Array) -> pa.Scalar:
        applied, values, weights = _apply_parameters(states, list(function.state_parameters), positional, named)
        return applied.results(values, weights)[0]

    def merged(*positional: pa.Array, **named: pa.Array) -> pa.Scalar:
        with error_label(f"{name}_merge"):
            column, rest = _column(positional)
            _constants([], rest, named)
            return _own(function, column).merge(column, Groups.single(len(column)))[0]

    def finished(*positional: pa.Array, **named: pa.Array) -> pa.Array:
        with error_label(f"{name}_finish"):
            column, rest = _column(positional)
            applied = replace(_own(function, column), **_constants(reads, rest, named))
            return sql_column(applied.finish(column), result)

    family = {
        name: SqlFunction(name, whole, result, is_aggregate=True, input_count=inputs),
        f"{name}_state": SqlFunction(
            f"{name}_state", reduced, state, is_aggregate=True, returns_states=True, input_count=inputs
        ),
        f"{name}_merge": SqlFunction(f"{name}_merge", merged, state, is_aggregate=True, returns_states=True),
        f"{name}_finish": SqlFunction(f"{name}_finish", finished, result, is_aggregate=False),
    }
    accessors = {f"{name}_{accessor}": accessor for accessor in accessors_of(type(function))}
    return family | {
        whole_name: SqlFunction(whole_name, _accessor(accessor), result_type(accessor), is_aggregate=False)
        for whole_name, accessor in accessors.items()
    }


def _own(function: Function, states: pa.Array) -> Function:
    """Give the function the parameters that its states were shaped by; it refuses those of other functions itself."""
    shaped_by = function_of(states)
    shaped = {name: getattr(shaped_by, name) for name in function.state_parameters if hasattr(shaped_by, name)}
    return replace(function, **shaped)


def _accessor(name: str) -> Callable[..., pa.Array]:
    read = ACCESSORS[name]
    parameters = list(inspect.signature(read).parameters.values())[1:]

    def accessor(*positional: pa.Array, **named: pa.Array) -> pa.Array:
        with error_label(name):
            states, rest = _column(positional)
            asks = _arguments([p.name for p in parameters], rest, named)
            if not asks and any(p.default is p.empty for p in parameters):
                raise ValueError(f"it needs {parameters[0].name} after the states")
            if not asks:
                return read(states)
            (values,) = asks.values()
            if pa.types.is_nested(values.type):
                raise TypeError(f"{parameters[0].name} must be a number; got {values.type}")
            distinct_values = pc.unique(values).drop_null()
            results = pa.nulls(len(states), result_type(name))
            for value in distinct_values:  # as a rule there is but one
                rows = pc.fill_null(pc.equal(values, value), False)
                its = with_nulls(read(states.filter(rows), _number(value.as_py())), rows)
                results = pc.if_else(rows, its, results)
            return results

    return accessor


def _apply_parameters(
    spec: UdafSpec, names: list[str], positional: Sequence[pa.Array], named: Mapping[str, pa.Array]
) -> tuple[UdafSpec, pa.Array, pa.Array | None]:
    """Apply the parameters that SQL gave as columns; further inputs come before them, weights by name."""
    with error_label(spec.label):
        values, positional = _column(positional)
        inputs = spec.function.inputs
        weights = named.get(WEIGHT) if spec.function.takes_weights else None
        if weights is not None:
            named = {name: column for name, column in named.items() if name != WEIGHT}
        if len(inputs) > 1:
            if len(positional) < len(inputs) - 1:
                further = ("event times" if name == EVENT_TIME else f"a column for {name}" for name in inputs[1:])
                raise ValueError(f"it needs {' and '.join(further)}, after its first column")
            values = pa.StructArray.from_arrays([values, *positional[: len(inputs) - 1]], names=list(inputs))
            positional = positional[len(inputs) - 1 :]
        constants = _constants(names, positional, named)
        applied = replace(spec, function=replace(spec.function, **constants)) if constants else spec
        return applied, values, weights


def _column(positional: Sequence[pa.Array]) -> tuple[pa.Array, Sequence[pa.Array]]:
    if not positional:
        raise ValueError("it needs a column as its first argument; rows are counted by aggr_count(1)")
    return positional[0], positional[1:]


def _arguments(names: list[str], positional: Sequence[pa.Array], named: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
    """Give arguments the names of parameters: those by place, those by name."""
    takes = f"it takes {', '.join(names) or 'no parameters'} after its column"
    if len(positional) > len(names):
        raise ValueError(
            f"{takes}; got {len(positional)} (* stands for all columns; rows are counted by aggr_count(1))"
        )
    arguments = dict(zip(names, positional, strict=False))
    for name, column in named.items():
        if name not in names or name in arguments:
            raise ValueError(f"{takes}; got {name!r}{' twice' if name in arguments else ''}")
        arguments[name] = column
    return arguments


def _constants(names: list[str], positional: Sequence[pa.Array], named: Mapping[str, pa.Array]) -> dict[str, Any]:
    """Read parameters, each the same in all rows."""
    constants = {}
    for name, column in _arguments(names, positional, named).items():
        if len(column) and (column.null_count or not column[1:].equals(column[:-1])):
            raise ValueError(f"{name} must be the same in all rows, and not null")
        if len(column):
            constants[name] = _number(column[0].as_py())
    return constants


def _number(sql_value: Any) -> Any:
    """Take decimals, which is what SQL makes of 0.99, as floats."""
    if isinstance(sql_value, list):
        return tuple(_number(value) for value in sql_value)
    return float(sql_value) if isinstance(sql_value, Decimal) else sql_value


def sql_type(dtype: pa.DataType) -> pa.DataType:
    """Return the type of results in SQL, which must not depend on parameters: quantiles are a map."""
    if not pa.types.is_struct(dtype):
        return dtype
    return pa.struct([pa.field(f.name, _member(f)) for f in dtype])


def _member(field: pa.Field) -> pa.DataType:
    if field.name == "quantiles":
        return pa.map_(pa.string(), pa.float64())
    return pa.float64() if pa.types.is_integer(field.type) and field.name != "count" else field.type


def sql_column(results: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Give results the type that they have in SQL."""
    if not pa.types.is_struct(dtype):
        return results.cast(dtype)
    pairs = zip(results.flatten(), dtype, strict=True)
    children = [_map(part) if pa.types.is_map(f.type) else part.cast(f.type, safe=False) for part, f in pairs]
    return pa.StructArray.from_arrays(children, fields=list(dtype), mask=results.is_null())


def _map(record: pa.StructArray) -> pa.MapArray:
    """Turn a record of quantiles into maps from their names."""
    names = [f.name for f in record.type]
    n, width = len(record), len(names)
    order = pa.array(np.arange(n * width).reshape(width, n).T.ravel())
    items = pa.concat_arrays([child.cast(pa.float64(), safe=False) for child in record.flatten()]).take(order)
    offsets = pa.array(np.arange(0, (n + 1) * width, width, dtype=np.int32))
    return pa.MapArray.from_arrays(offsets, pa.array(names * n, pa.string()), items)
