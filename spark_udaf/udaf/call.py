"""Calls of functions on Columns: the results of `spark_udaf.functions`, for `agg()` and `over()`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

import aggr
from aggr import Function
from aggr.function import column_keywords, input_rule
from aggr.function_inputs import EVENT_TIME, WEIGHT
from aggr.sql.number_columns import Use
from spark_udaf.plan.attachments import attach, attached_value
from spark_udaf.plan.columns import check_collation, compares_text, with_collation_check
from spark_udaf.plan.fractions import check_no_fractions
from spark_udaf.udaf.aggregate_function import (
    UdafSpec,
    arrow_type,
    grouped_udaf,
    has_fixed_result_type,
    iterating_udaf,
    list_udf,
    udaf_spec,
)
from spark_udaf.udaf.aggregate_function import column as column_named
from spark_udaf.udaf.job_errors import explain_task_errors
from spark_udaf.versions.column_text import text_of
from spark_udaf.versions.features import has_collations


@dataclass(frozen=True, eq=False)
class Call:
    """A call of an aggregate function, with the Columns of its arguments."""

    function: Function

    # The Columns of the function's inputs. They are empty for ``count()``, which counts rows.
    columns: tuple[Column, ...]

    # The weights of rows.
    weight: Column | None
    where: Column | None

    # The text of the call, which is the default name of the result.
    label: str

    @property
    def input_column(self) -> Column:
        """The Column that Spark sends to Python for this call. With several inputs or with weights, its values are
        structs. Its value is null in rows that do not meet the condition of the call.
        """
        columns = dict(zip(self.function.inputs, self.columns or (F.lit(1),), strict=True))
        if self.columns and has_collations() and compares_text(self.function):
            columns = {role: self._with_collation_check(role, column) for role, column in columns.items()}
        if self.weight is not None:
            columns[WEIGHT] = self.weight
        named_columns = [column.alias(name) for name, column in columns.items()]
        values = F.struct(*named_columns) if len(named_columns) > 1 else next(iter(columns.values()))
        return values if self.where is None else F.when(self.where, values)

    def _with_collation_check(self, role: str, column: Column) -> Column:
        """Return the Column of an input of the function. Unless the input is always a number, a check is added, which
        fails the query if the Column contains strings with a collation other than UTF8_BINARY.
        """
        if input_rule(self.function, role).use == Use.NUMBER:
            return column
        return with_collation_check(column, self.label)


def caller(name: str, df: DataFrame | None = None) -> Callable[..., Column]:
    """Return a function that receives Columns, and returns a Column with the results of the registered function
    ``name``. If ``df`` is passed, the types of the Columns are read from its schema.
    """
    measure_of = aggr.caller(name)
    keywords_of_columns = column_keywords(aggr.get(name))
    needs_times = EVENT_TIME in aggr.get(name).inputs

    def call(
        column: Column | str | Sequence[Column | str] | None = None,
        *parameters: Any,
        where: Column | str | None = None,
        type: DataType | str | None = None,
        groups: Literal["large"] | None = None,
        **named: Any,
    ) -> Column:
        if groups not in (None, "large"):
            raise ValueError(f"groups must be None, or 'large' for groups that do not fit into a list; got {groups!r}")
        first_column = column if column is None or isinstance(column, Column | str) else _column_or_struct(name, column)
        label = f"{name}({text_of(first_column) if first_column is not None else ''})"
        first_column = None if counts_rows(name, first_column) else first_column
        positional: list[Any] = [None if first_column is None else "value", *parameters]
        call_signature = inspect.signature(measure_of)
        try:
            arguments = call_signature.bind(*positional, **named).arguments
        except TypeError as error:
            raise TypeError(f"{name}: {error}; write {name}({', '.join(call_signature.parameters)})") from None
        columns_by_keyword = {word: arguments[word] for word in keywords_of_columns if arguments.get(word) is not None}
        function = measure_of(**{**arguments, **dict.fromkeys(columns_by_keyword, "other")}).function
        if function.further_columns:
            raise ValueError(
                f"{name} was called with Columns, but its parameters contain names of columns; write "
                f"su.group_by(df, …).agg(m=aggr.{name}(…))"
            )
        if needs_times and "by" not in columns_by_keyword:
            raise ValueError(f"{name} needs event times; name their column as by='…'")
        converted_columns = {word: column_named(value) for word, value in columns_by_keyword.items()}
        weight = converted_columns.pop(WEIGHT, None) if function.takes_weights else None
        columns = () if first_column is None else (column_named(first_column), *converted_columns.values())
        condition = None if where is None else _condition(where)
        aggregate_call = Call(function, columns=columns, weight=weight, where=condition, label=label)
        return _result_column(aggregate_call, _spec_of(aggregate_call, type, df), groups)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = _describe(name)
    call.__dict__["__signature__"] = signature(name)
    return call


def _column_or_struct(name: str, columns: Any) -> Column:
    """Return the first argument of a call as one Column. If the function accepts records, a list of columns becomes a
    struct. Raise ``TypeError`` for other arguments that are neither a name nor a Column.
    """
    function = aggr.get(name)
    takes_records = input_rule(function, function.inputs[0]).takes_records
    if not takes_records or not isinstance(columns, list | tuple) or not columns:
        return column_named(columns)
    return F.struct(*(column_named(column) for column in columns))


def counts_rows(name: str, column: Column | str | None) -> bool:
    """Return whether a call is ``count("*")``, which counts rows as in SQL."""
    return name == aggr.Count.name and column is not None and text_of(column) == "*"


def call_of(column: Any) -> tuple[Call, str] | None:
    """Return the call that created a Column, and the name of the call's result. Return None if no call of
    `spark_udaf.functions` created it.
    """
    call: tuple[Call, str] | None = attached_value(column, "call") if isinstance(column, Column) else None
    return call


def signature(name: str) -> inspect.Signature:
    """Return the signature of a function of `spark_udaf.functions`. It is the signature of the function of `aggr` with
    the same name, with Columns instead of names of columns, and with the additional parameters ``type`` and ``groups``.
    """
    columns = ("column", "where", *column_keywords(aggr.get(name)))
    parameters = [
        _with_columns(parameter) if parameter.name in columns else parameter
        for parameter in inspect.signature(aggr.caller(name)).parameters.values()
    ]
    additional_parameters = {"type": "DataType | str | None", "groups": "str | None"}
    parameters += [
        inspect.Parameter(word, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for word, annotation in additional_parameters.items()
    ]
    return inspect.Signature(parameters, return_annotation="Column")


def _with_columns(parameter: inspect.Parameter) -> inspect.Parameter:
    return parameter.replace(annotation=str(parameter.annotation).replace("str", "Column | str"))


def _spec_of(call: Call, type: DataType | str | None, df: DataFrame | None) -> UdafSpec:
    """Return the `UdafSpec` of a call. The column of the call has the type ``type``. By default, the type is read from
    the schema of ``df``.
    """
    if df is not None:
        for field in df.select(*call.columns).schema.fields:
            check_collation(field)
    if type is None and df is not None and call.columns:
        column_type = df.select(call.columns[0]).schema.fields[0].dataType
        if isinstance(call.function, aggr.Hdr):
            check_no_fractions(call.function, arrow_type(column_type), call.label)
        if not has_fixed_result_type(call.function):
            type = column_type
        elif call.function.name != "count":
            call.function.check_input(arrow_type(column_type))
    return udaf_spec(call.function, call.label, type, has_weights=call.weight is not None)


def _result_column(call: Call, spec: UdafSpec, groups: Literal["large"] | None) -> Column:
    """Return the Column with the results of a call. Spark cannot collect lists over windows. The method ``over`` of the
    Column therefore uses `grouped_udaf`, which does not read lists.
    """
    explain_task_errors()

    def over(window: Any) -> Column:
        return grouped_udaf(spec)(call.input_column, window)

    if isinstance(call.function, aggr.Count) and call.weight is None:
        # Spark's own function returns the same count, and does not need Python.
        count_column = F.count(call.input_column)
        return _with_call(count_column.alias(call.label), call, call.label, count_column.over)
    create_udf = iterating_udaf if groups == "large" else list_udf
    return _with_call(create_udf(spec)(call.input_column).alias(call.label), call, call.label, over)


def _with_call(column: Column, call: Call, name: str, over: Callable[[Any], Column]) -> Column:
    """Attach a call and the name of its result to the Column that the call created, and return this Column.
    `su.group_by` can then plan the call. Renamed copies of the Column keep the call.
    """
    original_alias = column.alias

    def alias(*names: str, **metadata: Any) -> Column:
        return _with_call(original_alias(*names, **metadata), call, names[0] if names else name, over)

    attach(column, "call", (call, name), alias=alias, name=alias, over=over)
    return column


def _condition(condition: Column | str) -> Column:
    if isinstance(condition, str):
        return F.expr(condition)
    if isinstance(condition, Column):
        return condition
    raise TypeError(f"the argument where must be a Column or a condition in SQL; got {condition!r}")


def _describe(name: str) -> str:
    function = aggr.get(name)
    return f"""{(function.__doc__ or name).splitlines()[0]}

    Parameters
    ----------
    column : Column or name
        Spark parses a name: use backticks if it contains a dot. Nulls are skipped. Only count can be called without a
        column; it then counts rows.
    parameters
        As in `aggr.{name}`.
    by : Column or name
        For first and last, the event times; for arg_min and arg_max, the column to minimize or maximize. For any other
        function of several inputs, pass each further input by its own name instead.
    weight : Column or name
        For count, sum, avg, dds and hdr, the number of rows that each row represents: integers from 0.
    where : Column or SQL condition
        Only rows for which the condition is true are aggregated.
    type : Spark type or its name, say 'bigint'
        The type in which the column is read. If the result has the type of its column, the default is double. For
        functions from ``spark_udaf.functions.of(df)``, the default is the type in the schema of ``df``. With the
        default double, the job fails for a column that is not numeric, and for a result that a double cannot represent
        exactly.
    groups : "large" or None
        ``"large"`` aggregates groups that do not fit into a list, by one Python call per group. Spark allows one such
        call in an `agg()`, without other aggregates.

    Returns
    -------
    Column
        {function.returns}. For `agg()`, also together with Spark's own functions, and for `over()`.

    Raises
    ------
    ValueError, TypeError
        For an invalid argument, immediately. An error in a worker names the function and the column.

    Guarantee
    ---------
    {function.guarantee}
    """
