"""Weights: the number of rows that each row represents, a whole number of at least 0."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from aggr.arguments import shown
from aggr.arrays import Flags, Floats, Whole
from aggr.arrow import compute as pc

Weights = Whole

_WEIGHT_RULE = "a weight is the number of rows that a row represents, a whole number from 0 to 2^63 - 1"


def check_weight_type(dtype: pa.DataType) -> None:
    """Raise ``TypeError`` for a type that cannot represent whole numbers."""
    is_number = pa.types.is_integer(dtype) or pa.types.is_floating(dtype) or pa.types.is_decimal(dtype)
    if not is_number and not pa.types.is_null(dtype):
        hint = "; cast it to an integer" if pa.types.is_boolean(dtype) else "; name a column of integers"
        raise TypeError(f"{_WEIGHT_RULE}; got a column of type {shown(dtype)}{hint}")


def read_weights(column: pa.Array) -> Weights:
    """Return weights as int64. Null counts as 0.

    Raise ``TypeError`` for a column that is not numeric, and ``ValueError`` for a weight that is negative, not whole,
    not finite, or beyond int64.

    >>> read_weights(pa.array([2.0, None, 0.0]))
    array([2, 0, 0])
    """
    check_weight_type(column.type)
    if pa.types.is_null(column.type):
        return np.zeros(len(column), np.int64)
    weights = _cast_weights(column)
    if weights is None or (len(weights) and weights.min() < 0):
        weight = _first_invalid_weight(column)
        hint = "correct the weight, or exclude the row by where"
        if 0 < weight < 2**63:  # The weight is rejected because it is not whole.
            hint = "use weighted_avg for fractional weights"
        raise ValueError(f"{_WEIGHT_RULE}; got {weight}; {hint}")
    return weights


def _cast_weights(column: pa.Array) -> Weights | None:
    """Return a column as int64, with 0 for null. Return None if a value is not whole, not finite, or beyond int64."""
    try:
        integers = column.cast(pa.int64())
    except pa.ArrowInvalid:
        return None
    weights: Weights = (integers.fill_null(0) if integers.null_count else integers).to_numpy()
    return weights


def _first_invalid_weight(column: pa.Array) -> Any:
    return next(v for v in column.drop_null().to_pylist() if not (0 <= v < 2**63 and v == int(v)))


def accepted_weights(column: pa.Array) -> tuple[Weights, Flags]:
    """Return weights as int64, and a mask of the weights that `read_weights` rejects, each of shape (rows,).

    Rejected weights and nulls become 0.

    Raise ``TypeError`` for a column that is not numeric.

    >>> accepted_weights(pa.array([2.0, None, -1.0, 0.5]))
    (array([2, 0, 0, 0]), array([False, False,  True,  True]))
    """
    check_weight_type(column.type)
    if pa.types.is_null(column.type):
        return np.zeros(len(column), np.int64), np.zeros(len(column), np.bool_)
    if pa.types.is_float16(column.type):
        column = column.cast(pa.float32())
    is_accepted = pc.greater_equal(column, pa.scalar(0, column.type))
    if _exceeds_int64(column.type):
        limit = 2.0**63 if pa.types.is_floating(column.type) else 2**63
        is_accepted = pc.and_(is_accepted, pc.less(column, pa.scalar(limit, column.type)))
    if not pa.types.is_integer(column.type):
        # Decimals are cast to a wider type, because decimal(2, 2) has no digits before the point, so that it cannot
        # represent the result of floor.
        widened = column.cast(pa.decimal256(76, column.type.scale)) if pa.types.is_decimal(column.type) else column
        is_accepted = pc.and_(is_accepted, pc.equal(pc.floor(widened), widened))
    is_accepted = pc.fill_null(is_accepted, True)
    weights = pc.if_else(is_accepted, column, pa.scalar(None, column.type)).cast(pa.int64())
    return pc.fill_null(weights, 0).to_numpy(), ~is_accepted.to_numpy(zero_copy_only=False)


def _exceeds_int64(dtype: pa.DataType) -> bool:
    """Return whether a numeric type has values of 2^63 or more."""
    if pa.types.is_decimal(dtype):
        return bool(dtype.precision - dtype.scale >= 19)
    return bool(pa.types.is_floating(dtype) or dtype == pa.uint64())


def float_parts(weights: Weights) -> list[Floats]:
    """Return one or two arrays of floats that add up exactly to the weights."""
    low = (weights & 0xFFFFFFFF).astype(np.float64)
    high = weights >> 32
    return [low, high.astype(np.float64) * 2.0**32] if high.any() else [low]
