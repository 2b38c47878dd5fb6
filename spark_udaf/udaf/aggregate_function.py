"""Aggregate functions of Spark that compute the functions of `aggr`, for `groupBy().agg()`, windows and SQL.

In `agg()`, Spark collects the values of each group into a list, and one Python call aggregates the lists of thousands
of groups (`list_udf`). Over windows and in SQL, Spark calls Python once per group with its rows (`grouped_udaf`); each
call costs some hundred microseconds. For groups that do not fit into a list, Spark calls Python once per group, with an
iterator over its rows (`iterating_udaf`). In all three cases, Spark shuffles the rows. Only `su.group_by` reduces them
before the shuffle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from aggr import Function, Groups
from aggr.arrow.normalize import is_number, normalized_type, with_nulls
from aggr.errors import with_text
from aggr.function import input_rule
from aggr.function_inputs import EVENT_TIME, WEIGHT
from aggr.tables.partial_aggregation import REDUCE_ROWS
from spark_udaf.udaf.bounded_lists import bounded_list
from spark_udaf.udaf.exact_cast import exact_cast
from spark_udaf.versions.arrow_types import from_arrow_type, parse_type, to_arrow_type
from spark_udaf.versions.column_functions import iterating_function, list_function, window_function
from tiltframe.event_time import event_times

if TYPE_CHECKING:
    from pyspark.sql.window import WindowSpec

_TIME = pa.timestamp("us", "UTC")

# The number of states of a group that are collected before they are merged to one state.
_STATES_PER_MERGE = 64

# One type for each kind of input, such as int64 for whole numbers. A function is tested with each type in this list
# that it accepts. If all results have the same type, this type does not depend on the column (`has_fixed_result_type`).
_KINDS = [pa.float64(), pa.int64(), pa.decimal128(10, 2), _TIME, pa.string(), pa.date32(), pa.bool_(), pa.binary()]


def column(column_or_name: Column | str) -> Column:
    """Return the Column with this name. A Column is returned unchanged. Spark parses names: a dot selects a field
    unless the name is in backticks.
    """
    if isinstance(column_or_name, str) and column_or_name.strip():
        return F.col(column_or_name)
    if isinstance(column_or_name, Column):
        return column_or_name
    raise TypeError(f"a column must be a Column or a name; got {column_or_name!r}")


@dataclass(frozen=True)
class UdafSpec:
    """The function of `aggr` that an aggregate function of Spark computes, and the type to which the column is cast."""

    function: Function

    # The call as the user wrote it, for messages.
    label: str

    # The type of the column. None if the type of the result does not depend on the type of the column.
    dtype: pa.DataType | None

    # Whether states are returned instead of results.
    returns_states: bool = False

    # Whether another column contains the weights of rows.
    has_weights: bool = False

    # Whether ``dtype`` is only a default, because the type of the column is unknown. Numbers are then aggregated in
    # their own type.
    is_type_assumed: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the function's inputs, followed by the name of the weights if rows have weights."""
        return (*self.function.inputs, *([WEIGHT] if self.has_weights else []))

    @property
    def result_type(self) -> pa.DataType:
        """The Arrow type of the result."""
        dtype = self.dtype or input_kinds(self.function)[0]
        state = self.function.state_type(_input_type(self.function, dtype))
        return state if self.returns_states else self.function.result_type(state)

    def results_of_columns(self, columns: pa.Array, groups: Groups | None = None) -> pa.Array:
        """Return an array with one result per group. ``columns`` is the array of values or, if there are several inputs
        or weights, an array of structs with the fields `names`. By default, all rows are one group.
        """
        with error_label(self.label):
            return self._read_states(self._reduce_columns(columns, groups))

    def _reduce_columns(self, columns: pa.Array, groups: Groups | None) -> pa.Array:
        if not self.has_weights:
            return self._reduce(columns, None, groups)
        if groups is None:
            # Remove the rows that do not meet the condition ``where`` of the call. The struct of such a row is null.
            columns = columns.drop_null()
        inputs = [columns.field(name) for name in self.function.inputs]
        values = inputs[0] if len(inputs) == 1 else pa.StructArray.from_arrays(inputs, names=list(self.function.inputs))
        return self._reduce(values, columns.field(WEIGHT), groups)

    def _reduce(self, values: pa.Array, weights: pa.Array | None, groups: Groups | None) -> pa.Array:
        if groups is None:  # compared with None, because bool() of a `Groups` object without rows is False
            groups = Groups.single(len(values))
        return self.function.reduce(self._cast_values(values), groups, weights)

    def _read_states(self, states: pa.Array) -> pa.Array:
        """Return the states if `returns_states` is true, and otherwise their results."""
        if self.returns_states:
            return states
        results = self.function.finish(states)
        return self._cast_exactly(results) if self.is_type_assumed else results

    def result_of_batches(self, batches: Iterator[pa.Array]) -> pa.Array:
        """Return the result of one group, whose rows are aggregated batch by batch in bounded memory."""
        states: list[pa.Array] = []
        with error_label(self.label):
            for columns in _join_batches(batches):
                states.append(self._reduce_columns(columns, None))
                if len(states) == _STATES_PER_MERGE:
                    states = [self._merge(states)]
            return self._read_states(self._merge(states))

    def _merge(self, states: Sequence[pa.Array]) -> pa.Array:
        if len(states) == 1:
            return states[0]
        return self.function.merge(pa.concat_arrays(states), Groups.single(len(states)))

    def results(self, values: pa.Array, weights: pa.Array | None = None, groups: Groups | None = None) -> pa.Array:
        """Return one result per group, for values with optional weights. By default, all values are one group."""
        with error_label(self.label):
            return self._read_states(self._reduce(values, weights, groups))

    def _cast_exactly(self, results: pa.Array) -> pa.Array:
        """Return the results, cast to the type `result_type`. Raise ``ValueError`` if the cast would change a value."""
        try:
            return exact_cast(results, self.result_type)
        except ValueError as error:
            actual_type, assumed_type = (
                from_arrow_type(dtype).simpleString() for dtype in (results.type, self.result_type)
            )
            raise ValueError(
                f"the result is {assumed_type} if the type of the column is unknown, and {error}; pass "
                f"type={actual_type!r}, or use A.of(df).{self.function.name}(…), which reads the type from the schema; "
                "in SQL, use the function that su.register creates for this type"
            ) from None

    def results_of_lists(self, lists: pa.ListArray) -> pa.Array:
        """Return the result of the values of each list. A null list has no values."""
        return self.results_of_columns(*groups_of_lists(lists))

    def _cast_values(self, values: pa.Array) -> pa.Array:
        """Return the values, cast to ``dtype``. If ``dtype`` equals None, the values are not cast. If results and not
        states are computed, and the results have the right type without a cast (`_keeps_result_type`), the values are
        not cast either.
        """
        if self.dtype is None:
            return values
        if not self.returns_states and self._keeps_result_type(values):
            return values
        input_type = _input_type(self.function, self.dtype)
        if len(self.function.inputs) == 1:
            return self._cast(values, input_type)
        names = self.function.inputs
        parts = [self._cast(values.field(names[0]), self.dtype)]
        # If states are returned, further inputs are cast as well, because the type of a state depends on the types of
        # all inputs. In contrast, the type of a result depends only on the first input.
        for name in names[1:]:
            part = values.field(name)
            if self.returns_states:
                part = _times(part) if name == EVENT_TIME else self._cast(part, input_type.field(name).type)
            parts.append(part)
        return pa.StructArray.from_arrays(parts, names=list(names), mask=values.is_null())

    def _keeps_result_type(self, values: pa.Array) -> bool:
        """Return whether the result would have the type `result_type` even if ``values`` were not cast to ``dtype``.

        If ``dtype`` is only a default, return True for every numeric type, because `_cast_exactly` casts the results
        later.
        """
        first = values if len(self.function.inputs) == 1 else values.field(self.function.inputs[0])
        dtype = normalized_type(first.type)
        if self.is_type_assumed:
            return is_number(dtype)
        return dtype == self.dtype or (
            is_number(dtype)
            and is_number(self.dtype)
            and UdafSpec(self.function, "", dtype).result_type == self.result_type
        )

    def _cast(self, values: pa.Array, target: pa.DataType) -> pa.Array:
        dtype = normalized_type(values.type)
        if dtype == target or pa.types.is_null(values.type):
            return values.cast(target)
        type_text = from_arrow_type(dtype).simpleString()
        remedy = (
            f"; pass type={type_text!r}, use A.of(df) (in SQL, the function that su.register creates for this type), "
            "or cast the column"
        )
        would_round = pa.types.is_decimal(dtype) and pa.types.is_floating(target)
        if would_round or (
            not (is_number(dtype) and is_number(target))
            and not (pa.types.is_timestamp(dtype) and pa.types.is_timestamp(target))
        ):
            raise TypeError(f"the column has the type {dtype}, but is read as {target}{remedy}")
        try:
            return values.cast(target)
        except pa.ArrowInvalid as error:
            raise ValueError(f"the column is read as {target}, which would change a value: {error}{remedy}") from None


def groups_of_lists(lists: pa.ListArray) -> tuple[pa.Array, Groups]:
    """Return the elements of all lists as one array, and their groups, one group per list. A null list is an empty
    group.
    """
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
    return lists.flatten(), Groups(np.repeat(np.arange(len(lists)), lengths), len(lists))


@contextmanager
def error_label(label: str) -> Iterator[None]:
    """A context manager that adds ``label``, the text of a call, to the beginning of the messages of errors in its
    block. Without the label, Spark's message would not name the call.
    """
    try:
        yield
    except (TypeError, ValueError, OverflowError) as error:
        labelled_error = with_text(error, f"{label}: {error}")
        raise labelled_error from labelled_error.__cause__
    except pa.ArrowNotImplementedError as error:
        reason = str(error).splitlines()[0]
        raise TypeError(f"{label}: Arrow does not support this operation: {reason}; cast the column") from None


def udaf_spec(
    function: Function, label: str, type: DataType | str | None, states: bool = False, has_weights: bool = False
) -> UdafSpec:
    """Return the `UdafSpec` of a function whose column has the type ``type``. Without ``type``, the column is
    read as doubles if the type of the result depends on the type of the column.

    Raise ``ValueError`` for a type that cannot be parsed, and ``TypeError`` for a type that the function does not
    accept. Also raise ``TypeError`` if the column would have to be read as doubles, and the function does not accept
    doubles.
    """
    if type is not None:
        dtype = arrow_type(type)
        function.check_input(_input_type(function, dtype))
        return UdafSpec(function, label, dtype, returns_states=states, has_weights=has_weights)
    kinds = [] if has_fixed_result_type(function, states) else input_kinds(function)
    if not kinds:
        return UdafSpec(function, label, dtype=None, returns_states=states, has_weights=has_weights)
    numbers = [dtype for dtype in kinds if is_number(dtype)]
    if pa.float64() not in numbers:
        raise TypeError(
            f"the result of {label} has the type of its column, which Spark must know in advance; use "
            f"A.of(df).{function.name}(…), which reads the schema of the DataFrame, or pass type=, such as "
            "type='string'; su.group_by(df, …).agg(…) finds the type by itself"
        )
    depends_on_type = len({UdafSpec(function, label, dtype, states).result_type for dtype in numbers}) > 1
    return UdafSpec(
        function,
        label,
        dtype=pa.float64(),
        returns_states=states,
        has_weights=has_weights,
        is_type_assumed=depends_on_type and not states,
    )


@cache
def has_fixed_result_type(function: Function, states: bool = False) -> bool:
    """Return whether a function has the same result type for every type of column. If ``states`` is true, the type of
    the state is examined instead of the type of the result.
    """
    if len(function.inputs) > 1:
        return False
    return len({UdafSpec(function, "", dtype, states).result_type for dtype in input_kinds(function)}) == 1


def arrow_type(type: DataType | str) -> pa.DataType:
    """Return the Arrow type of a Spark type, or of its name in SQL."""
    try:
        return normalized_type(to_arrow_type(parse_type(type) if isinstance(type, str) else type))
    except Exception:  # Spark's errors belong to different classes, and their messages are long.
        raise ValueError(
            f"cannot read {type!r} as a type; write a type of Spark, such as 'bigint', 'string' or 'decimal(20,2)'"
        ) from None


@cache
def input_kinds(function: Function) -> list[pa.DataType]:
    """Return one type for each kind of input that a function accepts, such as int64 for whole numbers."""
    kinds = []
    for dtype in _KINDS:
        try:
            function.state_type(_input_type(function, dtype))
        except (TypeError, ValueError, pa.ArrowException):
            continue
        kinds.append(dtype)
    if not kinds:
        raise TypeError(f"{function.name} accepts only nested types; pass a struct column")
    return kinds


def accepts_records(function: Function, dtype: pa.DataType) -> bool:
    """Return whether a type is a struct and the function accepts a column of this type."""
    if not input_rule(function, function.inputs[0]).takes_records or not pa.types.is_struct(dtype):
        return False
    try:
        function.check_input(_input_type(function, dtype))
    except TypeError:
        return False
    return True


def _input_type(function: Function, dtype: pa.DataType) -> pa.DataType:
    """Return the type of the array that a function receives if its first input has the type ``dtype``.

    For a function with one input, this type is ``dtype``. For a function with several inputs, it is a struct: the first
    field has the type ``dtype``, and the other fields are timestamps or doubles.
    """
    if len(function.inputs) == 1:
        return dtype
    further_types = [_TIME if name == EVENT_TIME else pa.float64() for name in function.inputs[1:]]
    return pa.struct(list(zip(function.inputs, [dtype, *further_types], strict=True)))


def _times(column: pa.Array) -> pa.Array:
    """Return a column of event times as timestamps in microseconds UTC, converted in the same way as by a tilt frame.
    Nulls are preserved.
    """
    times = pa.array(event_times(column.drop_null(), EVENT_TIME)).cast(_TIME)
    return with_nulls(times, column.is_valid())


def grouped_udaf(spec: UdafSpec) -> Callable[[Column, WindowSpec], Column]:
    """Return a function that receives a Column and a window, and returns a Column with the results of ``spec``.
    Spark calls Python once per group, with all rows of the group.
    """

    def aggregate(values: pa.Array) -> pa.Scalar:
        return spec.results_of_columns(values)[0]

    aggregate.__name__ = spec.function.name  # The name of the function becomes a part of the name of the result column.
    return window_function(aggregate, from_arrow_type(spec.result_type))


def iterating_udaf(spec: UdafSpec) -> Callable[[Column], Column]:
    """Return a function that receives a Column, and returns a Column with the results of ``spec``. Spark calls
    Python once per group, with an iterator over batches of the group's rows.
    """

    def aggregate(batches: Iterator[pa.Array]) -> pa.Scalar:
        return spec.result_of_batches(batches)[0]

    aggregate.__name__ = spec.function.name
    return iterating_function(aggregate, from_arrow_type(spec.result_type))


def list_udf(spec: UdafSpec) -> Callable[[Column], Column]:
    """Return a function that receives a Column of values, and returns a Column with the results of ``spec``. Spark
    collects the values of each group into a list, and calls Python once for thousands of lists.
    """

    def aggregate(lists: pa.Array) -> pa.Array:
        return spec.results_of_lists(lists)

    aggregate.__name__ = spec.function.name
    aggregate_lists = list_function(aggregate, from_arrow_type(spec.result_type), spec.names)

    return lambda values: aggregate_lists(bounded_list(values, spec.label))


def _join_batches(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
    """Yield arrays that are concatenated from the batches of Spark. Each array except the last one has at least
    `REDUCE_ROWS` values. Empty batches are included, because the type of the values is needed even without rows.
    """
    arrays: list[pa.Array] = []
    rows = 0
    for batch in batches:
        arrays.append(batch)
        rows += len(batch)
        if rows >= REDUCE_ROWS:
            yield pa.concat_arrays(arrays)
            arrays = []
            rows = 0
    if arrays:
        yield pa.concat_arrays(arrays)
