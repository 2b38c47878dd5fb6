"""Bounds of keys: the smallest and the largest value of each key that a condition allows, so that data can be skipped.

Bounds may also allow values that the condition excludes, because readers apply the complete condition afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from aggr import sql
from tiltframe.store.backends.stored_types import stored

# The maximum number of values in `KeyBound.values`. If a condition allows more values of a key, rows are compared only
# with the smallest and the largest value.
_MAX_VALUES = 100


@dataclass(frozen=True)
class KeyBound:
    """The values that a condition allows for a key, in the type in which the key is stored. Rows whose key is null do
    not fulfil the condition.
    """

    key: str
    # the type of the stored key, and of ``low``, ``high`` and ``values``: whole numbers, decimals, text, dates or times
    # in microseconds
    dtype: pa.DataType
    # The smallest allowed value, or None for no limit.
    low: pa.Scalar | None
    # The largest allowed value, or None for no limit.
    high: pa.Scalar | None
    # All allowed values, or None if the values are not known, or if there are more than `_MAX_VALUES`.
    values: pa.Array | None


def bounds_of_keys(where: str | None, schema: pa.Schema) -> list[KeyBound] | None:
    """Return the bounds that the condition ``where`` sets on keys. If the condition is true for a row, the row's keys
    lie within all bounds. Return an empty list if there is no condition, and None if the condition cannot be true for
    any row.

    ``schema`` is the schema of the store, in the types of the frame.
    """
    if where is None:
        return []
    bounds_by_key = sql.bounds(where, schema)
    if any(bound.empty for bound in bounds_by_key.values()):
        return None
    stored_bounds = [_stored_bound(name, bound, schema.field(name).type) for name, bound in bounds_by_key.items()]
    return [bound for bound in stored_bounds if bound is not None]


def _stored_bound(key: str, bound: sql.Bound, dtype: pa.DataType) -> KeyBound | None:
    """Return a bound of a condition in the stored type of the key. Stored values have the same order as the values of
    the key. Return None if the stored type cannot represent the bound.
    """
    try:
        low, high = (None if limit is None else _stored_array([limit], dtype)[0] for limit in (bound.low, bound.high))
        has_few_values = bound.values is not None and len(bound.values) <= _MAX_VALUES
        values = _stored_array(sorted(bound.values), dtype) if has_few_values and bound.values is not None else None
    except (pa.ArrowException, OverflowError):
        return None  # The bound is a time that microseconds cannot represent.
    return KeyBound(key, _stored_array([], dtype).type, low=low, high=high, values=values)


def _stored_array(values: list[Any], dtype: pa.DataType) -> pa.Array:
    if not pa.types.is_temporal(dtype):
        return stored(pa.array(values, dtype))
    return stored(pa.array(values, pa.int32() if pa.types.is_date32(dtype) else pa.int64()).cast(dtype))
