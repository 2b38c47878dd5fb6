"""A measure: a function over a column, perhaps of some rows only."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, TypeVar

import pyarrow as pa

from aggr.function import Function
from aggr.groups import Groups
from aggr.plain import one_array
from aggr.registry import get
from aggr.where import checked_condition, columns_of, rows_where

T = TypeVar("T")


@dataclass(frozen=True)
class Measure:
    """What to compute: ``function`` over ``column``, for the rows ``where`` a condition is true.

    Parameters
    ----------
    function : Function
    column : str or None
        None counts rows; only ``count`` takes that.
    where : str or None
        A condition in SQL, say ``"status >= 500"``.
    by : str or None
        For first and last, the column of event times; None means the frame's own.

    Examples
    --------
    >>> import aggr
    >>> aggr.dds("latency_ms", quantiles=[0.5], where="status < 500")
    dds('latency_ms', quantiles=[0.5], where='status < 500')
    """

    function: Function
    column: str | None
    where: str | None = None
    by: str | None = None

    def __post_init__(self) -> None:
        """Check the names and the condition, as early as they are known."""
        if not isinstance(self.function, Function):
            raise ValueError(f"a measure needs a function such as aggr.Sum(); got {self.function!r}")
        name = self.function.name
        if self.by is not None and not self.timed:
            raise ValueError(f"{name} has no use for by={self.by!r}; first and last do")
        if self.column is None and name != "count":
            raise ValueError(f"{name} needs a column, say {name}('x')")
        if self.column is not None and (not isinstance(self.column, str) or not self.column):
            raise ValueError(f"the column of {name} must be a name; got {self.column!r}")
        if self.where is not None:
            checked_condition(self.where)

    @property
    def timed(self) -> bool:
        """Whether the function needs event times beside the values."""
        return self.function.timed

    def columns(self) -> tuple[str, ...]:
        """Name the columns it reads, but for the frame's own time."""
        named = [c for c in (self.column, self.by) if c is not None]
        return tuple(dict.fromkeys([*named, *columns_of(self.where)]))

    def input_type(self, schema: pa.Schema, time: pa.DataType | None = None) -> pa.DataType:
        """Return the type of what the function gets, for data of a schema and event times of a type."""
        if self.column is None:
            return pa.int64()
        kind = schema.field(self.column).type
        if not self.timed:
            return kind
        if self.by is not None:
            time = schema.field(self.by).type
        return pa.struct([("value", kind), ("time", self._timed(time))])

    def reduce(self, table: pa.Table | pa.RecordBatch, groups: Groups, times: pa.Array | None = None) -> pa.StructArray:
        """Reduce the grouped rows of a table, and their event times, to one state per group.

        An error names the measure.
        """
        try:
            return self._reduce(table, groups, times)
        except (TypeError, ValueError, OverflowError) as error:
            raise type(error)(f"{self!r}: {error}") from None

    def _reduce(self, table: pa.Table | pa.RecordBatch, groups: Groups, times: pa.Array | None) -> pa.StructArray:
        for name in self.columns():
            if name not in table.schema.names:
                raise ValueError(f"the data has no column {name!r}; there are {', '.join(table.schema.names)}")
        table = table.select(list(self.columns()))
        if self.by is not None:
            times = one_array(table.column(self.by))
        if self.where is not None:
            rows = rows_where(self.where, table)
            table, groups = table.filter(pa.array(rows)), groups.where(rows)
            times = times if times is None else times.filter(pa.array(rows))
        if self.column is None:
            return self.function.reduce(pa.array(groups.ids), groups)
        values = one_array(table.column(self.column))
        if self.timed:
            values = pa.StructArray.from_arrays([values, self._timed(times)], names=["value", "time"])
        return self.function.reduce(values, groups)

    def describe(self) -> dict[str, Any]:
        """Describe it as plain data; `from_description` reads it back."""
        parameters = {k: list(v) if isinstance(v, tuple) else v for k, v in self.function.parameters().items()}
        given = {"column": self.column, "where": self.where, "by": self.by}
        return {
            "function": self.function.name,
            **{k: v for k, v in given.items() if v is not None},
            **({"parameters": parameters} if parameters else {}),
        }

    def _timed(self, times: T | None) -> T:
        if times is None:
            raise ValueError(f"{self.function.name} needs event times: name their column as by='…'")
        return times

    def __repr__(self) -> str:
        """Write it as the call that makes it."""
        given = [repr(self.column)] if self.column is not None else []
        for f in fields(self.function):
            value = getattr(self.function, f.name)
            if value != f.default:
                given.append(f"{f.name}={list(value) if isinstance(value, tuple) else value!r}")
        given += [f"{name}={getattr(self, name)!r}" for name in ("by", "where") if getattr(self, name) is not None]
        return f"{self.function.name}({', '.join(given)})"


def from_description(described: dict[str, Any]) -> Measure:
    """Make a measure from what `Measure.describe` returned."""
    function = get(described["function"])(**described.get("parameters", {}))
    return Measure(function, described.get("column"), described.get("where"), described.get("by"))
