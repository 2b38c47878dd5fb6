"""Constants of `funnel` and `duration_in` that are compared with the values of a column."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import pyarrow as pa


def is_nan(value: Any) -> bool:
    """Return whether a constant is NaN, as a float or a Decimal."""
    return isinstance(value, float | Decimal) and value != value


def values_of_type(constants: Iterable[Any], dtype: pa.DataType) -> pa.Array:
    """Return constants as an array of a column's type. Raise ``pa.ArrowException``, ``TypeError``, ``ValueError`` or
    ``OverflowError`` if the type does not have one of the values, such as 1.5 for whole numbers.
    """
    values = list(constants)
    has_fractions = pa.types.is_floating(dtype) or pa.types.is_decimal(dtype)
    for value in values:
        # Arrow would leave out the fraction.
        if not has_fractions and isinstance(value, float | Decimal) and value % 1:
            raise ValueError(f"{dtype} does not have the value {value}")
    return pa.array(values, dtype)
