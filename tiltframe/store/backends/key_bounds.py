"""Narrowing: what a condition on keys leaves to be read, in the types that a store keeps.

Readers filter by the whole condition afterwards, so bounds may be wider than the condition, and never narrower.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from aggr import sql
from tiltframe.store.backends.stored_types import stored

_MOST_VALUES = 100  # each is compared on its own; of more, the least and the greatest are


@dataclass(frozen=True)
class KeyBound:
    """What a stored key can be, in the type that it is stored in; it is not null."""

    key: str
    dtype: pa.DataType  # whole numbers, decimals, text, dates or times in microseconds
    low: pa.Scalar | None  # the least and the greatest, both included
    high: pa.Scalar | None
    values: pa.Array | None  # the only ones, at most 100


def key_bounds(where: str | None, schema: pa.Schema) -> list[KeyBound] | None:
    """Find what a condition lets the keys of a store be: a row for which it is true lies within every bound.

    Given the store's schema, in the types of the frame; returns None if no row can be true.
    """
    if where is None:
        return []
    bounds_by_key = sql.bounds(where, schema)
    if any(bound.empty for bound in bounds_by_key.values()):
        return None
    stored_bounds = [_stored_bound(name, bound, schema.field(name).type) for name, bound in bounds_by_key.items()]
    return [bound for bound in stored_bounds if bound is not None]


def _stored_bound(key: str, bound: sql.Bound, dtype: pa.DataType) -> KeyBound | None:
    """Give a bound in the type that a key is stored in, in which values have the same order."""
    try:
        low, high = (None if end is None else _stored([end], dtype)[0] for end in (bound.low, bound.high))
        few = bound.values is not None and len(bound.values) <= _MOST_VALUES
        values = _stored(sorted(bound.values), dtype) if few and bound.values is not None else None
    except (pa.ArrowException, OverflowError):
        return None  # a time that microseconds do not reach
    return KeyBound(key, _stored([], dtype).type, low=low, high=high, values=values)


def _stored(values: list[Any], dtype: pa.DataType) -> pa.Array:
    if not pa.types.is_temporal(dtype):
        return stored(pa.array(values, dtype))
    return stored(pa.array(values, pa.int32() if pa.types.is_date32(dtype) else pa.int64()).cast(dtype))
