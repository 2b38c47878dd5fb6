"""SQL: every registered function has a family of SQL functions ``aggr_…``: results, states, merges and accessors.

aggr_dds(x, array(0.5D, 0.99D))      the result in one step
aggr_dds_list(collect_list(x))       the same from a list: thousands of groups per call; the same SELECT may also
                                     contain Spark's own aggregates
aggr_dds_state(x)                    a state for each group …
aggr_dds_merge(state)                … merged into coarser groups …
aggr_dds_quantile(state, 0.99)       … and read repeatedly
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from decimal import Decimal
from functools import cache
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

import aggr
from aggr import Function, Groups
from aggr.arguments import is_name, shown
from aggr.arrow.normalize import with_nulls
from aggr.function_inputs import EVENT_TIME, WEIGHT, keyword
from aggr.registry import aliases
from aggr.tables.accessors import accessors_of, parameters_of, read_accessor, result_type
from aggr.tables.identify import function_of
from spark_udaf.plan.session import check_session
from spark_udaf.store.source import register_source
from spark_udaf.udaf.accessors import SET_OPERATIONS, set_operation, set_operation_result_type
from spark_udaf.udaf.aggregate_function import (
    UdafSpec,
    accepts_records,
    arrow_type,
    error_label,
    groups_of_lists,
    has_fixed_result_type,
    input_kinds,
)
from spark_udaf.udaf.job_errors import explain_errors, explain_task_errors
from spark_udaf.versions.pickling import pickle_for_tasks
from spark_udaf.versions.registration import compile_ahead, register_functions
from spark_udaf.versions.same_version import check_version, installed_version
from spark_udaf.versions.sql_function import SqlFunction

T = TypeVar("T")
LIST = "_list"  # the end of the name of each SQL function that reads lists
_TYPES = ("bigint", "string", "timestamp")
_MISPLACED = re.compile(r"INVALID_PANDAS_UDF_PLACEMENT\][^`]*`(aggr_\w+)`")
# The families that `register` has registered, by name. All sessions share this dict, because a name belongs to the same
# family in each session.
_registered_families: dict[str, Family] = {}


def register(spark: SparkSession, *names: str, types: Sequence[str] = _TYPES) -> list[str]:
    """Register functions for SQL, and the data source ``tiltframe``.

    Parameters
    ----------
    spark : SparkSession
        Classic or Connect.
    names : str
        Functions such as ``"dds"`` and ``"hdr"``. The default is all functions, which are
        registered by one call to the JVM. On Spark Connect each function is one request.
    types : names of Spark types
        Functions whose result has the type of their column (min, max, sum, first, last, …) read the column as double.
        Each type adds functions that read the column in this type, such as ``aggr_min_string`` and ``aggr_sum_bigint``.

    Returns
    -------
    list of str
        The names of the functions, sorted. For a function ``f``: ``aggr_f(x, parameters…)``,
        ``aggr_f_state(x, parameters…)`` with the parameters that determine the state, ``aggr_f_merge(state)``,
        ``aggr_f_finish(state)``, and the accessors of the state, such as ``aggr_f_quantile(state, q)``. The first
        three also exist in a form that reads lists, such as ``aggr_f_list(collect_list(x), parameters…)``. If the
        function has several inputs, or values and weights, the elements of the lists are structs. Functions of several
        inputs accept the inputs in their order; for first and last, the event time is second. Functions with weights
        accept ``weight => w``. If a result is a struct, its quantiles are a map from the names of the quantiles to
        their values, and its other numbers, except the count, are double.

    Raises
    ------
    ValueError
        If a type is not supported, or a function does not exist.

    Examples
    --------
    The documentation has a tested example::

        su.register(spark)
        spark.sql("SELECT host, aggr_hdr(ms, array(0.5D, 0.99D)).quantiles['0.99'] FROM requests GROUP BY host")
    """
    check_session(spark)
    if isinstance(types, str) or not isinstance(types, Sequence):
        raise ValueError(f"types must be a list of names of Spark's types; got {types!r}")
    for name in names:
        if not is_name(name):
            raise ValueError(f"expected names of functions, such as 'dds'; got {shown(name)}")
    types_by_name = {name: arrow_type(name) for name in types}
    compile_ahead(spark)
    families = [
        family for name in names or _all_names() for family in _families(name, types_by_name, is_requested=bool(names))
    ]
    udfs = {name: udf for family in families for name, udf in family.udfs().items()}
    explain_task_errors()
    explain_errors(_explain_misplaced_aggregate)
    register_functions(spark, list(udfs.values()))
    register_source(spark)
    _registered_families.update((family.name, family) for family in families)
    return sorted(udfs)


def _explain_misplaced_aggregate(text: str) -> str | None:
    """Return the explanation that is put before Spark's error ``text`` if an aggregate function of this library was
    called next to Spark's own aggregates, and None otherwise.
    """
    match = _MISPLACED.search(text)
    if match is None:
        return None
    return f"{match[1]} cannot be called next to Spark's own aggregates by spark.sql; use su.sql(spark, query)"


def registered_families() -> tuple[Family, ...]:
    """Return the families of SQL functions that `register` has registered in this process, in any session."""
    return tuple(_registered_families.values())


@dataclass(frozen=True)
class Family:
    """The SQL functions that are made from one function of `aggr`. They aggregate rows, merge states and compute
    results from states.

    The functions read their column in the type ``dtype``. Without ``dtype``, the column is read in its own type,
    because the types of the results do not depend on the type of the column.
    """

    name: str
    function: Function
    dtype: pa.DataType | None

    @property
    def aggregate_names(self) -> tuple[str, ...]:
        """The names of the SQL functions that aggregate rows or merge states. For each such function, there is also
        a function that reads lists.
        """
        return (self.name, f"{self.name}_state", f"{self.name}_merge")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all SQL functions of the family."""
        reader_suffixes = ["finish", *accessors_of(type(self.function))]
        if self.name == f"aggr_{aggr.ApproxCountDistinct.name}":
            reader_suffixes += SET_OPERATIONS
        list_function_names = (f"{name}{LIST}" for name in self.aggregate_names)
        reader_names = (f"{self.name}_{suffix}" for suffix in reader_suffixes)
        return (*self.aggregate_names, *list_function_names, *reader_names)

    def udfs(self) -> dict[str, SqlFunction]:
        """Return a dict from the names of the SQL functions of the family to the functions."""
        return _udfs_of(self)

    def _make_udfs(self) -> dict[str, SqlFunction]:
        udfs = _create_functions(self.name, self.function, self.dtype)
        if self.name != f"aggr_{aggr.ApproxCountDistinct.name}":
            return udfs
        for operation in SET_OPERATIONS:
            name = f"{self.name}_{operation}"
            dtype = set_operation_result_type(operation)
            returns_states = pa.types.is_struct(dtype)
            udfs[name] = SqlFunction(
                name, set_operation(operation), dtype, is_aggregate=False, returns_states=returns_states
            )
        return udfs


@dataclass(frozen=True)
class _FamilyFunction(SqlFunction):
    """A SQL function that belongs to a `Family`.

    The pickle of the function is small. It contains only the family and the name of the function, from which a worker
    creates the function again.
    """

    family: Family | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _function_of, (installed_version(), _pickle_of(self.family), self.name)


@cache
def _udfs_of(family: Family) -> dict[str, SqlFunction]:
    return {name: _FamilyFunction(**vars(udf), family=family) for name, udf in family._make_udfs().items()}


@cache
def _pickle_of(family: Family) -> bytes:
    return pickle_for_tasks(family)


@cache
def _family_of(family_pickle: bytes) -> Family:
    family: Family = pickle.loads(family_pickle)
    return family


def _function_of(driver_version: str | None, family_pickle: bytes, name: str) -> SqlFunction:
    check_version(driver_version)
    return _udfs_of(_family_of(family_pickle))[name]


def families(types: Sequence[str] = _TYPES) -> list[Family]:
    """Return the families of SQL functions for all registered functions of `aggr`. ``types`` is the same as in
    `register`.
    """
    types_by_name = {name: arrow_type(name) for name in types}
    return [family for name in _all_names() for family in _families(name, types_by_name, is_requested=False)]


def _all_names() -> list[str]:
    return [*aggr.names(), *aliases()]


def _families(name: str, types_by_name: Mapping[str, pa.DataType], is_requested: bool) -> list[Family]:
    """Return the families of SQL functions for the function ``name`` of `aggr`. There is one family if the type of the
    results does not depend on the type of the column. Otherwise, there is a family for doubles, and a family for each
    type in ``types_by_name`` that the function accepts.

    A function whose result type depends on its parameters, such as funnel, has no families. For such a function, raise
    ``ValueError`` if ``is_requested`` is true, and otherwise return an empty list.
    """
    try:
        function = aggr.get(name)()
        input_types = input_kinds(function)
        _ = UdafSpec(function, name, input_types[0]).result_type
        has_fixed_type = has_fixed_result_type(function) and has_fixed_result_type(function, states=True)
    except aggr.UnknownFunction as unknown_function:
        raise ValueError(str(unknown_function)) from None
    except TypeError:
        if is_requested:
            raise ValueError(
                f"{name} cannot be used in SQL, because its result depends on its parameters; use su.group_by"
            ) from None
        return []
    families_of_types = [Family(f"aggr_{name}", function, None if has_fixed_type else pa.float64())]
    for type_name, dtype in types_by_name.items():
        if not has_fixed_type and (
            any(dtype.id == input_type.id for input_type in input_types) or accepts_records(function, dtype)
        ):
            families_of_types.append(
                Family(f"aggr_{name}_{re.sub('[^a-z0-9]+', '_', type_name).strip('_')}", function, dtype)
            )
    return families_of_types


def _create_functions(name: str, function: Function, dtype: pa.DataType | None) -> dict[str, SqlFunction]:
    result_spec = UdafSpec(function, name, dtype, is_type_assumed=dtype == pa.float64())
    state_spec = UdafSpec(function, f"{name}_state", dtype, returns_states=True)
    sql_result_type = sql_type(result_spec.result_type)
    state_type = state_spec.result_type
    input_count = len(function.inputs)
    # The parameters have the same order as the arguments of the call in `aggr`: keyword-only parameters are last.
    parameters = [f.name for f in sorted(fields(function), key=lambda f: bool(f.kw_only))]
    # Some parameters determine the state. The other parameters determine only how the result is computed from the
    # state.
    state_parameters = [parameter for parameter in function.own_state.parameters if parameter in parameters]
    result_parameters = [parameter for parameter in parameters if parameter not in state_parameters]

    def result_of_rows(*positional: pa.Array, **named: pa.Array) -> pa.Scalar:
        called_spec, values, weights = _read_arguments(result_spec, parameters, positional, named)
        return sql_column(called_spec.results(values, weights), sql_result_type)[0]

    def state_of_rows(*positional: pa.Array, **named: pa.Array) -> pa.Scalar:
        called_spec, values, weights = _read_arguments(state_spec, state_parameters, positional, named)
        return called_spec.results(values, weights)[0]

    def results_of_lists(*positional: pa.Array, **named: pa.Array) -> pa.Array:
        called_spec, values, groups = _read_list_arguments(result_spec, parameters, positional, named)
        return sql_column(called_spec.results_of_columns(values, groups), sql_result_type)

    def states_of_lists(*positional: pa.Array, **named: pa.Array) -> pa.Array:
        called_spec, values, groups = _read_list_arguments(state_spec, state_parameters, positional, named)
        return called_spec.results_of_columns(values, groups)

    def merge_lists(*positional: pa.Array, **named: pa.Array) -> pa.Array:
        with error_label(f"{name}_merge{LIST}"):
            lists, parameters = _column(positional)
            _constants([], parameters, named)
            column, groups = groups_of_lists(lists)
            merged_states = _with_state_parameters(function, column).merge(column, groups)
            has_state = np.bincount(groups.ids[_is_valid(column)], minlength=groups.n) > 0
            return merged_states.take(pa.array(np.arange(groups.n), mask=~has_state))

    def merge_states(*positional: pa.Array, **named: pa.Array) -> pa.Scalar:
        with error_label(f"{name}_merge"):
            column, parameters = _column(positional)
            _constants([], parameters, named)
            # A state that is not null contains the parameters of its function. If all states are null, the parameters
            # of the merged state are unknown, so the merged state is null.
            if column.null_count == len(column):
                return pa.scalar(None, column.type)
            return _with_state_parameters(function, column).merge(column, Groups.single(len(column)))[0]

    def finish_states(*positional: pa.Array, **named: pa.Array) -> pa.Array:
        with error_label(f"{name}_finish"):
            column, parameters = _column(positional)
            constants = _constants(result_parameters, parameters, named)
            called_function = replace(_with_state_parameters(function, column), **constants)
            return sql_column(called_function.finish(column), sql_result_type)

    functions_by_name = {
        name: SqlFunction(name, result_of_rows, sql_result_type, is_aggregate=True, input_count=input_count),
        f"{name}_state": SqlFunction(
            f"{name}_state", state_of_rows, state_type, is_aggregate=True, returns_states=True, input_count=input_count
        ),
        f"{name}_merge": SqlFunction(f"{name}_merge", merge_states, state_type, is_aggregate=True, returns_states=True),
        f"{name}_finish": SqlFunction(f"{name}_finish", finish_states, sql_result_type, is_aggregate=False),
    }
    # The functions above receive each value of an input as a list of at most one value. In the first `input_count`
    # arguments, these lists are replaced by their values. The following functions receive real lists, which must not be
    # replaced, so their `input_count` is 0.
    list_functions = [
        SqlFunction(f"{name}{LIST}", results_of_lists, sql_result_type, is_aggregate=False, input_count=0),
        SqlFunction(
            f"{name}_state{LIST}", states_of_lists, state_type, is_aggregate=False, returns_states=True, input_count=0
        ),
        SqlFunction(
            f"{name}_merge{LIST}", merge_lists, state_type, is_aggregate=False, returns_states=True, input_count=0
        ),
    ]
    functions_by_name |= {function_of_lists.name: function_of_lists for function_of_lists in list_functions}
    accessors = {f"{name}_{accessor}": accessor for accessor in accessors_of(type(function))}
    return functions_by_name | {
        full_name: SqlFunction(
            full_name,
            _accessor(accessor, type(function)),
            result_type(accessor, type(function)),
            is_aggregate=False,
        )
        for full_name, accessor in accessors.items()
    }


def _read_list_arguments(
    spec: UdafSpec, names: list[str], positional: Sequence[pa.Array], named: Mapping[str, pa.Array]
) -> tuple[UdafSpec, pa.Array, Groups]:
    """Return three values for a call that reads lists: ``spec`` with the parameters of the call, an array with the
    elements of all lists, and the groups of the elements, one group per list. If there are several inputs or weights,
    the elements are structs. SQL passes parameters as columns.
    """
    with error_label(spec.label + LIST):
        lists, parameters = _column(positional)
        if not pa.types.is_list(lists.type):
            raise TypeError(f"the call needs lists, such as {spec.label}{LIST}(collect_list(x)); got {lists.type}")
        values, groups = groups_of_lists(lists)
        constants = _constants(names, parameters, named)
        inputs = spec.function.inputs
        field_count = values.type.num_fields if pa.types.is_struct(values.type) else 1
        has_weights = spec.function.takes_weights and field_count == len(inputs) + 1
        called_spec = replace(spec, function=replace(spec.function, **constants), has_weights=has_weights)
        if len(called_spec.names) == 1:
            return called_spec, values, groups
        if field_count != len(called_spec.names):
            raise TypeError(
                f"the call needs lists of structs, such as {spec.label}{LIST}(collect_list(struct("
                f"{', '.join(inputs)}))); got {lists.type}"
            )
        rows = pa.StructArray.from_arrays(values.flatten(), names=list(called_spec.names), mask=values.is_null())
        return called_spec, rows, groups


def _is_valid(column: pa.Array) -> np.ndarray[Any, Any]:
    is_valid: np.ndarray[Any, Any] = column.is_valid().to_numpy(zero_copy_only=False)
    return is_valid


def _with_state_parameters(function: Function, states: pa.Array) -> Function:
    """Return a copy of ``function`` with the parameters that ``states`` contain. If the states belong to another
    function, the methods of the copy raise an error.
    """
    function_of_states = function_of(states)
    state_parameters = {
        name: getattr(function_of_states, name)
        for name in function.own_state.parameters
        if hasattr(function_of_states, name)
    }
    return replace(function, **state_parameters)


def _accessor(name: str, function: type[Function]) -> Callable[..., pa.Array]:
    parameters = parameters_of(name, function)

    def accessor(*positional: pa.Array, **named: pa.Array) -> pa.Array:
        with error_label(name):
            states, columns = _column(positional)
            arguments = _arguments(list(parameters), columns, named)
            if not arguments and not all(parameters.values()):
                parameter = next(iter(parameters))
                raise ValueError(f"the call needs {parameter} after the states, as in {name}(states, {parameter})")
            if not arguments:
                return read_accessor(states, name)
            ((parameter, values),) = arguments.items()
            if pa.types.is_nested(values.type):
                raise TypeError(f"{parameter} must be a single value, such as a number; got {values.type}")
            distinct_values = pc.unique(values).drop_null()
            results = pa.nulls(len(states), result_type(name, function))
            # There is usually only one distinct value, because the parameter is the same in all rows.
            for value in distinct_values:
                rows = pc.fill_null(pc.equal(values, value), False)
                results_of_value = with_nulls(
                    read_accessor(states.filter(rows), name, _parameter_value(value.as_py())), rows
                )
                results = pc.if_else(rows, results_of_value, results)
            return results

    return accessor


def _read_arguments(
    spec: UdafSpec, names: list[str], positional: Sequence[pa.Array], named: Mapping[str, pa.Array]
) -> tuple[UdafSpec, pa.Array, pa.Array | None]:
    """Return three values for a call that aggregates rows: ``spec`` with the parameters of the call, an array with the
    values of the inputs, and an array of the weights, or None without weights. If there are several inputs, the values
    are structs. SQL passes parameters as columns after the inputs, and weights by name.
    """
    with error_label(spec.label):
        values, positional = _column(positional)
        inputs = spec.function.inputs
        weights = named.get(WEIGHT) if spec.function.takes_weights else None
        if weights is not None:
            named = {name: column for name, column in named.items() if name != WEIGHT}
        if len(inputs) > 1:
            further_columns, positional, named = further_inputs(inputs, positional, named)
            values = pa.StructArray.from_arrays([values, *further_columns], names=list(inputs))
        constants = _constants(names, positional, named)
        called_spec = replace(spec, function=replace(spec.function, **constants)) if constants else spec
        return called_spec, values, weights


def further_inputs(
    inputs: Sequence[str], positional: Sequence[T], named: Mapping[str, T]
) -> tuple[list[T], Sequence[T], Mapping[str, T]]:
    """Return three values: the inputs of a call after its first input, and the remaining positional and named
    arguments, which are parameters. An input is passed by name or by position. Raise ``ValueError`` if an input is
    missing.
    """
    remaining = list(positional)
    remaining_named = dict(named)
    further_columns: list[T] = []
    missing: list[str] = []
    for role in inputs[1:]:
        if keyword(role) in remaining_named:
            further_columns.append(remaining_named.pop(keyword(role)))
        elif remaining:
            further_columns.append(remaining.pop(0))
        else:
            missing.append("event times" if role == EVENT_TIME else f"a column for {role}")
    if missing:
        by_name = ", ".join(f"{keyword(role)} => column" for role in inputs[1:])
        raise ValueError(f"the call needs {' and '.join(missing)}, after its first column or by name: {by_name}")
    return further_columns, remaining, remaining_named


def _column(positional: Sequence[pa.Array]) -> tuple[pa.Array, Sequence[pa.Array]]:
    if not positional:
        raise ValueError("the call needs a column as its first argument; to count rows, use aggr_count(1)")
    return positional[0], positional[1:]


def _arguments(names: list[str], positional: Sequence[pa.Array], named: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
    """Return a dict from the names of parameters to their arguments, which are positional or named. ``names`` contains
    the names of the parameters in the order of positional arguments.
    """
    expectation = f"the call takes {', '.join(names) or 'no parameters'} after its column"
    if len(positional) > len(names):
        raise ValueError(
            f"{expectation}; got {len(positional)} arguments after the column; if the call contains *, which stands "
            "for all columns, pass one column instead, or count rows by aggr_count(1)"
        )
    arguments = dict(zip(names, positional, strict=False))
    for name, column in named.items():
        if name not in names or name in arguments:
            raise ValueError(f"{expectation}; got {name!r}{' twice' if name in arguments else ''}")
        arguments[name] = column
    return arguments


def _constants(names: list[str], positional: Sequence[pa.Array], named: Mapping[str, pa.Array]) -> dict[str, Any]:
    """Return a dict from the names of parameters to their values. SQL passes a parameter as a column, whose values must
    be equal in all rows.
    """
    constants = {}
    for name, column in _arguments(names, positional, named).items():
        if len(column) and (column.null_count or not column[1:].equals(column[:-1])):
            values = column.to_pylist()
            other_value = next((value for value in values if value != values[0]), None)
            received = "null" if column.null_count else f"{shown(values[0])} and {shown(other_value)}"
            raise ValueError(f"{name} must be the same in all rows, and not null; got {received}; pass a constant")
        if len(column):
            constants[name] = _parameter_value(column[0].as_py())
    return constants


def _parameter_value(value: Any) -> Any:
    """Convert a value from SQL to the value of a function's parameter. Decimals, such as 0.99, become floats, and lists
    become tuples.
    """
    if isinstance(value, list):
        return tuple(_parameter_value(element) for element in value)
    return float(value) if isinstance(value, Decimal) else value


def sql_type(dtype: pa.DataType) -> pa.DataType:
    """Return the type in SQL of results whose type in Python is ``dtype``. A SQL function is registered with one result
    type, which must not depend on parameters. Quantiles are therefore a map and not a record.
    """
    if not pa.types.is_struct(dtype):
        return dtype
    return pa.struct([pa.field(f.name, _sql_field_type(f)) for f in dtype])


def _sql_field_type(field: pa.Field) -> pa.DataType:
    if field.name == "quantiles":
        return pa.map_(pa.string(), pa.float64())
    return pa.float64() if pa.types.is_integer(field.type) and field.name != "count" else field.type


def sql_column(results: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Return results converted to ``dtype``, the type of the results in SQL."""
    if not pa.types.is_struct(dtype):
        return results.cast(dtype)
    pairs = zip(results.flatten(), dtype, strict=True)
    children = [_sql_field(values, f.type) for values, f in pairs]
    return pa.StructArray.from_arrays(children, fields=list(dtype), mask=results.is_null())


def _sql_field(values: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Return a field of results converted to ``dtype``, its type in SQL. Quantiles are a record in Python and a map in
    SQL.
    """
    if pa.types.is_map(dtype) and pa.types.is_struct(values.type):
        return _quantile_maps(values)
    return values.cast(dtype, safe=False)


def _quantile_maps(record: pa.StructArray) -> pa.MapArray:
    """Return records of quantiles as maps from the names of fields to their values."""
    names = [f.name for f in record.type]
    count = len(record)
    width = len(names)
    order = pa.array(np.arange(count * width).reshape(width, count).T.ravel())
    items = pa.concat_arrays([child.cast(pa.float64(), safe=False) for child in record.flatten()]).take(order)
    offsets = pa.array(np.arange(0, (count + 1) * width, width, dtype=np.int32))
    return pa.MapArray.from_arrays(offsets, pa.array(names * count, pa.string()), items)
