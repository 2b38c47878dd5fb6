"""Values: one column and the groups of its rows, with quantities that are computed once and shared by several
functions.

    array     5  null  2  13
    groups    0  1     0  1

The shared quantities are, for example, the column without nulls, and the minimum, the maximum and the exact sum of each
group.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.arrays import Flags, Whole, read_only
from aggr.arrow import compute as pc
from aggr.exact.number_columns import EXACT_POWER, as_floats, exact_float_parts, special_flags
from aggr.exact.row_sums import sum_exactly, sum_products
from aggr.exact.weights import Weights, float_parts
from aggr.groups.groups import Groups
from aggr.groups.numbers import Numbers, sum_by_group


@dataclass(frozen=True, eq=False)
class Values:
    """One column and the groups of its rows. The arrays are shared by several functions, so they are read-only.

    Parameters
    ----------
    array : array, shape (rows,)
        The column in a plain type, or a struct if the function has several inputs.
    groups : Groups
        The groups, with as many rows as ``array``.
    weights : array of int64, each at least 1, shape (rows,), or None
        The number of rows that each row represents; None if all weights are 1.
    refused : array of int64, shape (groups.n,), or None
        The number of rows of each group that were left out because their weight was refused; None if all weights were
        accepted.

    Examples
    --------
    >>> values = Values(pa.array([5.0, None, 2.0]), Groups.of([0, 0, 1], 2))
    >>> values.present.counts, values.present.floats.extremes.high
    (array([1, 1]), array([5., 2.]))
    """

    array: pa.Array
    groups: Groups
    weights: Weights | None = None
    refused: Whole | None = None

    def __post_init__(self) -> None:
        if self.weights is not None:
            object.__setattr__(self, "weights", read_only(self.weights))

    def __len__(self) -> int:
        return len(self.array)

    @property
    def present(self) -> Values:
        """The rows whose value is not null."""
        # This is not a cached property, because an object without nulls would then contain itself: only the garbage
        # collector, and not the reference count, could free it.
        return self._without_nulls if self.array.null_count else self

    @cached_property
    def _without_nulls(self) -> Values:
        return self.filter(self.array.is_valid().to_numpy(zero_copy_only=False))

    @cached_property
    def counts(self) -> Whole:
        """The sum of the weights of each group, or the number of its rows if all weights are 1, shape (groups.n,).

        Raises ``OverflowError`` if a sum exceeds int64.
        """
        return self.groups.counts() if self.weights is None else read_only(sum_by_group(self.weights, self.groups))

    @cached_property
    def numbers(self) -> Numbers:
        """The values without a conversion. They must be float64 or int64, without nulls."""
        return Numbers(self.array.to_numpy(), self.groups)

    @cached_property
    def floats(self) -> Numbers:
        """The values as the nearest doubles. They must be numbers, without nulls."""
        dtype = self.array.type
        if dtype == pa.float64():
            return self.numbers
        if pa.types.is_decimal(dtype) and len(self.parts) == 1 and dtype.scale <= EXACT_POWER:
            # This gives the same numbers as `as_floats`, without another conversion if `parts` was computed before.
            return Numbers(self.parts[0].array / 10.0**dtype.scale, self.groups)
        return Numbers(as_floats(self.array), self.groups)

    @property
    def parts(self) -> list[Numbers]:
        """Columns of finite doubles, which add up exactly to the number of each row.

        Decimals and timestamps are represented by the number of their units: 150 for 1.50. Rows that are NaN or
        infinite have 0.
        """
        return self._parts_and_flags[0]

    @property
    def special(self) -> NDArray[np.int8] | None:
        """Flags of the rows that are NaN or infinite, shape (rows,), or None if all rows are finite.

        In `parts`, the rows with flags have the value 0.
        """
        return self._parts_and_flags[1]

    @cached_property
    def _parts_and_flags(self) -> tuple[list[Numbers], NDArray[np.int8] | None]:
        if not pa.types.is_floating(self.array.type):
            return [Numbers(part, self.groups) for part in exact_float_parts(self.array)], None
        if np.isfinite(self.floats.array).all():
            return [self.floats], None
        special = read_only(special_flags(self.floats.array))
        return [Numbers(np.where(special, 0.0, self.floats.array), self.groups)], special

    @cached_property
    def weight_parts(self) -> list[Numbers]:
        """Doubles that add up to each weight exactly; empty if all weights are 1."""
        return [] if self.weights is None else [Numbers(part, self.groups) for part in float_parts(self.weights)]

    @cached_property
    def exact_sum(self) -> pa.StructArray:
        """The exact weighted sum of each group, in the layout of `aggr.fields.EXACT`, shape (groups.n,)."""
        return sum_exactly(self.parts) if self.weights is None else sum_products(self.parts, self.weight_parts)

    def field(self, name: str) -> Values:
        """Return the values of one of several inputs."""
        return Values(pc.struct_field(self.array, name), self.groups, self.weights, self.refused)

    def filter(self, rows: Flags) -> Values:
        """Return the rows for which a mask is true. The number of groups is unchanged, so groups may become empty."""
        weights = None if self.weights is None else self.weights[rows]
        return Values(self.array.filter(pa.array(rows)), self.groups.filter(rows), weights, self.refused)

    def slice(self, rows: slice) -> Values:
        """Return a range of rows. The number of groups is unchanged, so groups may become empty.

        Only the range that begins with the first row contains ``refused``, so that the states of consecutive ranges
        count refused rows once.
        """
        weights = None if self.weights is None else self.weights[rows]
        refused = None if rows.start else self.refused
        return Values(self.array[rows], self.groups.slice(rows), weights, refused)
