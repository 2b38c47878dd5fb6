"""A measure: a function over a column, for all rows or for the rows that meet a condition."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import pyarrow as pa

from aggr import sql
from aggr.arguments import checked_mapping, is_name, nearest, shown
from aggr.arrow.normalize import filterable
from aggr.errors import with_text
from aggr.exact.weights import check_weight_type
from aggr.function import Function, input_rule
from aggr.function_inputs import EVENT_TIME, WEIGHT, keyword
from aggr.groups.groups import Groups
from aggr.parameters import default_of, describe_parameter, parameter_text, restore_parameter
from aggr.registry import get, names
from aggr.sql.inputs import columns_in, possible_columns, type_in, values_in
from aggr.sql.number_columns import Use, columns_needed
from aggr.state_checks import FUNCTION
from aggr.values import Values

T = TypeVar("T")


@dataclass(frozen=True)
class Measure:
    """A function over a column, for all rows or for the rows that meet the condition ``where``.

    Parameters
    ----------
    function : Function
    column : str or None
        A column, or an expression over columns. `aggr.sql.inputs` explains how columns and expressions are
        distinguished. None counts rows, and is allowed only for ``count``.
    where : str or None
        An SQL condition, such as ``"status >= 500"``.
    others : columns or expressions
        The columns of the function's further inputs, in order. None stands for the event time of the frame.
    weight : str or None
        The column or expression with the number of rows that each row represents. It is allowed only if the function
        takes weights.

    Raises
    ------
    ValueError
        If a name is invalid, an input is missing or superfluous, or the condition cannot be parsed.
    TypeError
        If a parameter of the function has another type.

    Examples
    --------
    >>> import aggr
    >>> aggr.dds("latency_ms", quantiles=[0.5], where="status < 500")
    dds('latency_ms', quantiles=[0.5], where='status < 500')
    """

    function: Function
    column: str | None
    where: str | None = None
    others: tuple[str | None, ...] = ()
    weight: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.function, Function):
            raise ValueError(f"a measure needs a function such as aggr.Sum(); got {self.function!r}")
        name = self.function.name
        self.function.own_state.parameter_columns(0)  # raises TypeError if a parameter does not have its declared type
        if self.column is None and name != "count":
            raise ValueError(f"{name} needs a column, such as {name}('x')")
        if self.column is not None and not is_name(self.column):
            raise ValueError(f"the column of {name} must be a name or an expression; got {shown(self.column)}")
        self._check_others()
        self._check_weight()
        if self.where is not None:
            sql.check_condition(self.where)

    def _check_others(self) -> None:
        """Raise ``ValueError`` unless ``others`` has a valid name or expression for each further input of the function.

        The column of event times may be None. If ``others`` is empty, it is first set to `Function.further_columns`, or
        to None for each input if the function does not name further columns.
        """
        name = self.function.name
        inputs = self.function.inputs[1:]
        if not self.others:
            object.__setattr__(self, "others", self.function.further_columns or (None,) * len(inputs))
        if len(self.others) != len(inputs):
            raise ValueError(
                f"{name} takes one column for each input: {' and '.join(self.function.inputs)}; "
                f"got {1 + len(self.others)} columns"
            )
        for text, role in zip(self.others, inputs, strict=True):
            if text is None and role != EVENT_TIME:
                raise ValueError(f"{name} needs {keyword(role)}=, the column of its input {role!r}")
            if text is not None and not is_name(text):
                what = "the column of event times" if role == EVENT_TIME else f"the column of {role}"
                raise ValueError(f"{keyword(role)}=, {what}, must be a name or an expression; got {shown(text)}")

    def _check_weight(self) -> None:
        if self.weight is not None and not self.function.takes_weights:
            functions_with_weights = ", ".join(name for name in names() if get(name).takes_weights)
            raise ValueError(
                f"{self.function.name} does not accept a weight; got {shown(self.weight)}; these functions do: "
                f"{functions_with_weights}"
            )
        if self.weight is not None and not is_name(self.weight):
            raise ValueError(f"weight=, the column of weights, must be a name; got {shown(self.weight)}")

    @property
    def inputs(self) -> tuple[str, ...]:
        """The columns or expressions of the inputs and of the weight, without the event time of the frame."""
        return tuple(text for text in (self.column, *self.others, self.weight) if text is not None)

    def columns(self, names: Collection[str] | None = None) -> tuple[str, ...]:
        """Return the names of the columns that are read, except for the event time of the frame.

        Parameters
        ----------
        names : collection of str, optional
            The columns of the data. They determine whether a text is a column or an expression. Without ``names``, all
            columns that the measure might read are returned: each text itself, which may be the name of a column, and
            the columns in the text, which may be an expression.

        Returns
        -------
        tuple of str

        Raises
        ------
        ValueError
            If a column does not exist, or a text is both a column and an expression over other columns.

        Examples
        --------
        >>> import aggr
        >>> aggr.sum("price * quantity", where="status < 400").columns(["price", "quantity", "status"])
        ('price', 'quantity', 'status')
        """
        if names is None:
            read = [name for text in self.inputs for name in possible_columns(text)]
            read_by_condition = () if self.where is None else sql.columns_of(self.where)
            return tuple(dict.fromkeys([*read, *read_by_condition]))
        read = [name for text, use in self.input_uses() for name in columns_in(text, names, use)]
        if self.where is not None:
            for name, use in sql.uses_among(self.where, names):
                read += columns_needed(_column_in(name, names), names, use)
        return tuple(dict.fromkeys(read))

    def input_uses(self) -> list[tuple[str, Use]]:
        """Return the texts of the inputs, like `inputs`, each with the way in which its values are used.

        Returns
        -------
        list of (str, Use)
        """
        function = self.function
        texts = zip((self.column, *self.others), function.inputs, strict=True)
        uses = [(text, input_rule(function, name).use) for text, name in texts if text is not None]
        return [*uses, *([] if self.weight is None else [(self.weight, Use.NUMBER)])]

    def input_type(self, schema: pa.Schema, time: pa.DataType | None = None) -> pa.DataType:
        """Return the type of the input that is passed to the function.

        Parameters
        ----------
        schema : pa.Schema
            The schema of the data.
        time : pa.DataType, optional
            The type of the event times, for a function that uses the event time of the frame.

        Returns
        -------
        pa.DataType
            The type of the column, a struct of `Function.inputs` for a function with several inputs, or int64 if rows
            are counted.

        Raises
        ------
        ValueError
            If the data has no such column, an expression does not fit the types, or the function needs event times and
            ``time`` is None.
        TypeError
            If the weights are not numeric.
        """
        if self.weight is not None:
            check_weight_type(type_in(self.weight, schema, Use.NUMBER))
        if self.column is None:
            return pa.int64()
        name, *further = self.function.inputs
        dtype = type_in(self.column, schema, input_rule(self.function, name).use)
        if not self.others:
            return dtype
        further_types = [
            self._required_times(time) if text is None else type_in(text, schema, input_rule(self.function, other).use)
            for text, other in zip(self.others, further, strict=True)
        ]
        return pa.struct(list(zip(self.function.inputs, [dtype, *further_types], strict=True)))

    def reduce(
        self, table: pa.Table | pa.RecordBatch, groups: Groups, times: pa.Array | None = None, timezone: str = "UTC"
    ) -> pa.StructArray:
        """Reduce the grouped rows of a table to one state per group.

        Parameters
        ----------
        table : table or record batch
            A table that has at least the columns that the measure reads.
        groups : Groups
            The groups, with as many rows as the table.
        times : array of timestamps, shape (rows,), optional
            The event times, for a function that uses the event time of the frame.
        timezone : str
            The IANA name of the time zone in which expressions interpret times.

        Returns
        -------
        column of states, shape (groups.n,)

        Raises
        ------
        TypeError, ValueError, OverflowError
            For the same reasons as `Function.reduce`, and ``ValueError`` for a missing column. The message begins with
            the call that creates the measure.
        """
        return self.reduce_values(self.values(table, groups, times, timezone))

    def values(
        self, table: pa.Table | pa.RecordBatch, groups: Groups, times: pa.Array | None = None, timezone: str = "UTC"
    ) -> Values:
        """Return the values of grouped rows, which `reduce_values` takes. Measures with equal `reads` can share them.

        Parameters
        ----------
        table : table or record batch
        groups : Groups
        times : array of timestamps, optional
        timezone : str
            See `reduce`.

        Returns
        -------
        Values

        Raises
        ------
        TypeError, ValueError
            For the same reasons as `reduce`.
        """
        with self._named_errors():
            table = table.select(list(self.columns(table.schema.names)))
            if self.where is not None:
                is_selected = sql.rows_where(self.where, table, timezone)
                table = filterable(table).filter(pa.array(is_selected))
                groups = groups.filter(is_selected)
                times = times if times is None else times.filter(pa.array(is_selected))
            weights = None if self.weight is None else values_in(self.weight, table, timezone, Use.NUMBER)
            if self.column is None:
                return self.function.grouped(pa.array(groups.ids), groups, weights)
            column, *further_columns = [
                self._required_times(times)
                if text is None
                else values_in(text, table, timezone, input_rule(self.function, name).use)
                for text, name in zip((self.column, *self.others), self.function.inputs, strict=True)
            ]
            return self.function.grouped([column, *further_columns] if further_columns else column, groups, weights)

    def reduce_values(self, values: Values) -> pa.StructArray:
        """Reduce a result of `values` to one state per group.

        Parameters
        ----------
        values : Values

        Returns
        -------
        column of states, shape (groups.n,)

        Raises
        ------
        TypeError, ValueError, OverflowError
            For the same reasons as `reduce`.
        """
        with self._named_errors():
            return self.function.reduce(values)

    @property
    def reads(self) -> tuple[object, ...]:
        """A tuple that identifies the values that the measure reads from rows. Measures with equal tuples read equal
        values from the same rows.
        """
        skips_weights = self.weight is not None and self.function.skips_bad_values
        return self.function.inputs, self.column, self.others, self.where, self.weight, skips_weights

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except (TypeError, ValueError, OverflowError) as error:
            named = with_text(error, f"{self!r}: {error}")
            raise named from named.__cause__

    def of_states(self) -> Measure:
        """Return a measure with the same states, in which parameters that affect only results have their default
        values.

        Returns
        -------
        Measure

        Examples
        --------
        >>> import aggr
        >>> aggr.dds("ms", [0.5], relative_accuracy=0.02).of_states()
        dds('ms', relative_accuracy=0.02)
        """
        state = self.function.own_state
        parameters = {
            f.name: state.parameter(f.name) if f.name in state.parameters else default_of(f)
            for f in fields(self.function)
        }
        return replace(self, function=replace(self.function, **parameters))

    def describe(self) -> dict[str, Any]:
        """Return the measure as plain data, from which `from_description` restores it."""
        parameters = {f.name: describe_parameter(getattr(self.function, f.name)) for f in fields(self.function)}
        texts = {"column": self.column, "where": self.where, **self.named_inputs()}
        return {
            "function": self.function.name,
            **{k: v for k, v in texts.items() if v is not None},
            **({"parameters": parameters} if parameters else {}),
        }

    def named_inputs(self) -> dict[str, str | None]:
        """Return the columns of the further inputs, and of weights, by the keywords that pass them."""
        # Only the inputs that the class declares have keywords. If an instance has further inputs, their columns are
        # named by parameters of the function.
        by_name = type(self.function).inputs[1:]
        named = {keyword(role): name for role, name in zip(by_name, self.others, strict=False)}
        return named | ({WEIGHT: self.weight} if self.function.takes_weights else {})

    def _required_times(self, times: T | None) -> T:
        if times is None:
            raise ValueError(f"{self.function.name} needs event times; name their column as by='…'")
        return times

    def __repr__(self) -> str:
        """Return the measure as the text of the call that creates it."""
        arguments = [repr(self.column)] if self.column is not None else []
        for f in fields(self.function):
            value = getattr(self.function, f.name)
            if value != default_of(f):
                arguments.append(f"{f.name}={parameter_text(value)}")
        named = {**self.named_inputs(), "where": self.where}
        arguments += [f"{name}={value!r}" for name, value in named.items() if value is not None]
        return f"{self.function.name}({', '.join(arguments)})"


def from_description(description: dict[str, Any]) -> Measure:
    """Restore a measure from its description.

    Parameters
    ----------
    description : dict
        A description from `Measure.describe`.

    Returns
    -------
    Measure

    Raises
    ------
    KeyError
        If the function of the measure is not registered.
    TypeError, ValueError
        If the function does not take these parameters, or the data does not describe a measure.

    Examples
    --------
    >>> from_description({"function": "sum", "column": "bytes"})
    sum('bytes')
    """
    if not isinstance(description, dict) or FUNCTION not in description:
        raise ValueError(
            "the description of a measure must be a dict with the key 'function', as Measure.describe returns it; got "
            f"{shown(description)}"
        )
    values = checked_mapping(description.get("parameters", {}), "parameters", "values by name")
    function = get(description["function"])(**{name: restore_parameter(value) for name, value in values.items()})
    roles = [keyword(role) for role in type(function).inputs[1:]]
    keys = [FUNCTION, "parameters", "column", "where", *roles, *([WEIGHT] if function.takes_weights else [])]
    for part in description:
        if part not in keys:
            raise ValueError(
                f"the description of {function.name} cannot have the key {shown(part)}; {nearest(str(part), keys)}"
            )
    further_columns = tuple(description.get(role) for role in roles)
    weight = description.get(WEIGHT) if function.takes_weights else None
    return Measure(
        function,
        description.get("column"),
        where=description.get("where"),
        others=further_columns,
        weight=weight,
    )


def _column_in(name: str, names: Collection[str]) -> str:
    column = sql.column_in(name, names)
    if column is None:
        raise ValueError(f"the data has no column {shown(name)}; {nearest(name, names)}")
    return column
