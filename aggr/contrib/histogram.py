"""histogram: the number of values between fixed edges, and outside them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Context, Decimal
from fractions import Fraction
from itertools import pairwise
from numbers import Real
from typing import ClassVar

import numpy as np
import pyarrow as pa

from aggr.extend import NUMBERS, DamagedState, Field, Function, Groups, State, Values
from aggr.extend.arguments import checked_list, shown
from aggr.extend.columns import Whole, field_of_type, normalize_floats, one_array, order_keys, sum_by_group
from aggr.extend.columns import compute as pc

# the edges of the default buckets in Prometheus' client libraries, in seconds
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_MAX_EDGES = 10_000
_RESULT = ("counts", "below", "above", "nan")


@dataclass(frozen=True)
class CellsState(State):
    """The state of `Histogram`: counts of the values between consecutive edges, of the values outside all edges, and of
    NaN.
    """

    edges: tuple[float, ...]

    name = "histogram"
    # In version 1 of the state, decimals and float32 were compared with the exact doubles of the edges. In version 2,
    # they are compared with the values that `_interval_starts` returns.
    versions = (1, 2)
    parameters: ClassVar[Mapping[str, pa.DataType]] = {"edges": pa.list_(pa.float64())}
    counted_by: ClassVar[tuple[str, ...]] = ("counts",)

    @property
    def fields(self) -> Mapping[str, Field]:
        return {"counts": self.counts_field}

    @property
    def counts_field(self) -> CellCounts:
        """The field of the counts. In this order, it counts the values below all edges, the values from each edge to
        the next edge, the values from the last edge on, and NaN.
        """
        return CellCounts(len(self.edges) + 2)

    def reduce_values(self, values: Values) -> Mapping[str, pa.Array]:
        numbers = values.array
        is_nan = np.zeros(len(values), np.bool_)
        if pa.types.is_floating(numbers.type):
            numbers = normalize_floats(numbers)
            is_nan = np.isnan(numbers.to_numpy())
        edges = _interval_starts(self.edges, numbers.type)
        keys = order_keys(pa.concat_arrays([edges, numbers]))
        cell_indices = np.searchsorted(keys[: len(edges)], keys[len(edges) :], side="right")
        nan_index = len(self.edges) + 1
        return {"counts": self.counts_field.count(values, np.where(is_nan, nan_index, cell_indices))}


@dataclass(frozen=True)
class Histogram(Function):
    """Count the values of a column between consecutive edges. A value that equals an edge counts in the interval that
    begins there.

    The intervals are those of PostgreSQL's ``width_bucket`` with thresholds. For decimals and whole numbers, an edge is
    exactly the decimal number that its digits express: 0.1 is one tenth. For floats, including float32, an edge is the
    nearest value of the type. Values from the last edge on are counted as ``above``, and NaN are counted separately.

    Parameters
    ----------
    edges : sequence of float, Decimal or str
        At least two numbers in ascending order. The default is the list of seconds in Prometheus' client libraries,
        from 0.005 to 10. Each number must have at most 15 significant digits, or be the exact value of a double. The
        state depends on the edges.

    Raises
    ------
    ValueError
        If ``edges`` are not at least two finite numbers in ascending order, or if a number has more digits than a
        double can represent.

    Examples
    --------
    >>> from aggr import histogram
    >>> histogram("latency_ms", edges=[0, 10, 100, 1000])
    histogram('latency_ms', edges=[0.0, 10.0, 100.0, 1000.0])
    """

    edges: tuple[float, ...] = field(default=_SECONDS, metadata={"accepts": "Sequence[float | Decimal | str]"})

    name = "histogram"
    is_amount = True
    takes = NUMBERS
    keeps = (
        "one count for each pair of neighbouring edges, one for values below all edges, one for values above them, "
        "and one for NaN"
    )
    returns = "record: counts (a list), below, above, nan, all int64; 0 if there are no values"
    guarantee = "exact"
    takes_weights = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "edges", _checked_edges(self.edges))

    @property
    def own_state(self) -> CellsState:
        return CellsState(self.edges)

    def finish_states(self, states: pa.StructArray) -> pa.Array:
        counts = self.own_state.counts_field.numbers(states.field("counts"))
        interval_counts = counts[:, 1:-2]
        offsets = np.arange(len(counts) + 1, dtype=np.int32) * interval_counts.shape[1]
        lists = pa.ListArray.from_arrays(pa.array(offsets), pa.array(interval_counts.ravel()))
        return pa.StructArray.from_arrays([lists, *(pa.array(counts[:, i]) for i in (0, -2, -1))], names=list(_RESULT))


def _checked_edges(edge_values: object) -> tuple[float, ...]:
    edges = tuple(_read_edge(edge) for edge in checked_list(edge_values, "edges", "numbers"))
    if not 2 <= len(edges) <= _MAX_EDGES or any(b <= a for a, b in pairwise(edges)):
        raise ValueError(f"edges must be 2 to {_MAX_EDGES:,} numbers in ascending order; got {shown(list(edges))}")
    return edges


def _read_edge(value: object) -> float:
    """Return the double that represents an edge. Raise ``ValueError`` if no double represents it."""
    edge = _double_of(value)
    if edge is None:
        raise ValueError(
            f"each edge must be a finite number that has at most 15 digits or is exactly a double; got {shown(value)}"
        )
    return edge


def _double_of(value: object) -> float | None:
    """Return the double that represents a number or its text, or None if no double does.

    A double represents its exact value, and the decimal number that is printed for it, such as one tenth (see
    `_printed_number`).
    """
    if isinstance(value, bool) or not isinstance(value, Real | Decimal | str):
        return None
    try:
        number = Decimal(value) if isinstance(value, str) else value
        double = float(number) + 0.0
        is_same = math.isfinite(double) and (double == number or _printed_number(double) == Fraction(str(number)))
    except (ArithmeticError, ValueError):
        return None
    return double if is_same else None


def _printed_number(edge: float) -> Fraction:
    """Return the decimal number that is printed for a double, such as one tenth for 0.1. From 2^53 on, return the exact
    value of the double.
    """
    return Fraction(edge) if abs(edge) >= 2.0**53 else Fraction(repr(edge))


def _interval_starts(edges: tuple[float, ...], dtype: pa.DataType) -> pa.Array:
    """Return a column of the type ``dtype``: for each edge, the first value of the interval that begins at this edge.

    For integers and decimals, the first value of an interval is the smallest value at or above the edge, and edges
    above all values of the type are left out. For floats, the first value of an interval is the value nearest to the
    edge.
    """
    if pa.types.is_floating(dtype):
        with np.errstate(over="ignore"):  # An edge beyond all numbers of the type becomes an infinity.
            return pa.array(np.array(edges).astype(dtype.to_pandas_dtype()), dtype)
    if pa.types.is_decimal(dtype):
        maximum = 10**dtype.precision - 1
        minimum = -maximum
        scale = dtype.scale
    else:
        limits = np.iinfo(dtype.to_pandas_dtype())
        minimum = int(limits.min)
        maximum = int(limits.max)
        scale = 0
    units = [max(math.ceil(_printed_number(edge) * 10**scale), minimum) for edge in edges]
    starts = [unit for unit in units if unit <= maximum]
    if not pa.types.is_decimal(dtype):
        return pa.array(starts, dtype)
    return pa.array([Decimal(unit).scaleb(-scale, Context(prec=80)) for unit in starts], dtype)


_CELLS_TYPE = pa.list_(pa.int64())


@dataclass(frozen=True)
class CellCounts(Field):
    """A list of ``size`` counts. All counts of a group without values are 0."""

    size: int

    def count(self, values: Values, cell_indices: Whole) -> pa.ListArray:
        """Return the sum of the weights of the rows in each cell, as one list of ``size`` sums per group.
        ``cell_indices`` has the index of the cell of each row, in [0, size).
        """
        groups = Groups(values.groups.ids * self.size + cell_indices, values.groups.n * self.size)
        return self._lists(Values(values.array, groups, values.weights).counts)

    def merge(self, column: pa.ListArray, groups: Groups) -> pa.ListArray:
        ids = groups.ids[:, np.newaxis] * self.size + np.arange(self.size)
        return self._lists(
            sum_by_group(one_array(column).flatten().to_numpy(), Groups(ids.ravel(), groups.n * self.size))
        )

    def subtract(self, column: pa.ListArray, subtracted: pa.ListArray) -> pa.ListArray:
        # A wrong subtraction results in counts below 0, for which `check` raises an error later.
        return self._lists((self.numbers(column) - self.numbers(subtracted)).ravel())

    def row_counts(self, column: pa.ListArray) -> Whole:
        counts: Whole = self.numbers(column).sum(axis=1)
        return counts

    def numbers(self, column: pa.ListArray) -> Whole:
        """Return the counts of each state, shape (states, size)."""
        counts: Whole = column.flatten().to_numpy()
        return counts.reshape(-1, self.size)

    def _lists(self, counts: Whole) -> pa.ListArray:
        offsets = np.arange(0, len(counts) + 1, self.size, dtype=np.int32)
        return pa.ListArray.from_arrays(pa.array(offsets), pa.array(counts))

    def check(self, column: pa.Array) -> None:
        if not pa.types.is_list(column.type):
            raise DamagedState(f"has type {column.type}, not {_CELLS_TYPE}")
        column = field_of_type(column, _CELLS_TYPE)
        counts = column.flatten()
        lengths = pc.list_value_length(column).to_numpy()
        if (wrong_lengths := lengths[lengths != self.size]).size:
            raise DamagedState(f"contains {wrong_lengths[0]} counts, and must contain {self.size}")
        if len(counts) and (minimum := pc.min(counts).as_py()) < 0:
            raise DamagedState(f"contains the negative count {minimum}")
