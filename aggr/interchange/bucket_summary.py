"""The sum, min and max of imported sketches.

Messages of other systems may lack the sum, min or max of their values, so the caller may supply these figures for each
message. A figure that is not supplied is computed from the values that represent the buckets. The value of a bucket
and any value in this bucket differ by at most the relative accuracy.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aggr.extend import Function, Groups, Histograms, Numbers, sum_exactly
from aggr.extend.columns import Flags, Floats, Ids, Whole, normalize
from aggr.extend.exact import EXACT_TYPE
from aggr.extend.histograms import first_last


def derive_summaries(
    positive: Histograms, negative: Histograms, zero: Whole, values_of: Callable[[Histograms], Floats]
) -> dict[str, pa.Array]:
    """Return the fields ``sum``, ``min`` and ``max`` of ``n`` sketches, computed from the values of their buckets.

    ``positive`` and ``negative`` are the buckets of positive and of negative numbers. ``zero`` contains the number of
    zeros in each sketch, shape (n,). ``values_of`` returns the value that represents each bucket. Min and max of an
    empty sketch are null.

    >>> from aggr.histograms.logarithmic_mapping import LogarithmicMapping
    >>> none, one = np.zeros(0, np.int64), np.ones(1, np.int64)
    >>> parts = derive_summaries(Histograms(one, one, one), Histograms(0 * one, none, none), one,
    ...     lambda histograms: LogarithmicMapping(0.5).values(histograms.keys))
    >>> parts["min"][0].as_py(), round(parts["max"][0].as_py(), 9)
    (0.0, 1.5)
    """
    values = [_clip_infinities(values_of(positive)), -_clip_infinities(values_of(negative))]
    has_positive = positive.sizes > 0
    has_negative = negative.sizes > 0
    (positive_low, positive_high), (negative_high, negative_low) = (
        first_last(histograms.sizes, bucket_values)
        for bucket_values, histograms in zip(values, (positive, negative), strict=True)
    )
    is_empty = ~(has_positive | has_negative | (zero > 0))
    minima = np.where(has_negative, negative_low, np.where(zero > 0, 0.0, positive_low))
    maxima = np.where(has_positive, positive_high, np.where(zero > 0, 0.0, negative_high))
    with np.errstate(over="ignore"):
        weighted = np.concatenate([v * h.counts for v, h in zip(values, (positive, negative), strict=True)])
    owners = np.concatenate([positive.rows(), negative.rows()])
    sums = sum_exactly([Numbers(_clip_infinities(weighted), Groups._trusted(owners, len(zero)))])
    return {"sum": sums, "min": pa.array(minima, mask=is_empty), "max": pa.array(maxima, mask=is_empty)}


def fill_summaries(
    parts: dict[str, pa.Array], columns: dict[str, pa.Array | None], valid: Flags
) -> dict[str, pa.Array]:
    """Return ``parts`` with the values that the caller has supplied in ``columns``.

    ``parts`` contains the values that were computed from buckets. A computed value is returned only if the caller has
    not supplied its column, or has supplied null for its message. ``valid`` is a mask of the messages that are not
    null. ``columns`` have a row for each message, and ``parts`` have a row for each valid message.

    Raise ``TypeError`` or ``ValueError`` for a column of another type or length, and if a min is greater than its max.

    >>> parts = {"min": pa.array([1.0, 2.0]), "max": pa.array([3.0, 3.0])}
    >>> fill_summaries(parts, {"min": pa.array([0.5, None])}, np.ones(2, np.bool_))["min"].to_pylist()
    [0.5, 2.0]
    """
    filled_parts = dict(parts)
    supplied = {}
    for name, column in columns.items():
        if column is not None:
            supplied[name] = _supplied_column(f"{name}s", column, valid)
            filled_parts[name] = pc.coalesce(supplied[name], parts[name])
    # The min and the max of an empty sketch stay null, even if the caller supplies them.
    for name in ("min", "max"):
        filled_parts[name] = pc.if_else(parts[name].is_valid(), filled_parts[name], None)
    for name, other, limit in (("min", "max", pc.min_element_wise), ("max", "min", pc.max_element_wise)):
        # A computed min above the supplied max is replaced by the supplied max. A computed max below the supplied min
        # is replaced by the supplied min.
        if other in supplied:
            is_supplied = supplied[name].is_valid() if name in supplied else pa.scalar(False)
            is_final = pc.or_(is_supplied, filled_parts[name].is_null())
            filled_parts[name] = pc.if_else(
                is_final, filled_parts[name], limit(filled_parts[name], filled_parts[other])
            )
    is_crossed = pc.fill_null(pc.greater(filled_parts["min"], filled_parts["max"]), False).to_numpy(
        zero_copy_only=False
    )
    if is_crossed.any():
        first_row = int(np.argmax(is_crossed))
        low, high = (filled_parts[name][first_row].as_py() for name in ("min", "max"))
        raise ValueError(
            f"message {np.flatnonzero(valid)[first_row]} has the min {low}, which is above its max, {high}; correct "
            "them, or leave them out to compute them from its buckets"
        )
    return filled_parts


def check_fit(function: Function, states: pa.StructArray, rows: Ids) -> None:
    """Raise ``ValueError`` if the sum, min or max of one of ``states`` contradicts its buckets.

    ``rows`` has the number of the message from which each state was read. The error names the first such state by this
    number.
    """
    if not function.own_state.is_sound(states):
        first_row = next(i for i in range(len(rows)) if not function.own_state.is_sound(states.slice(i, 1)))
        raise ValueError(
            f"message {rows[first_row]} has a sum, a min or a max that is impossible for the values in its buckets; "
            "correct them, or leave them out to compute them from its buckets"
        )


def _supplied_column(name: str, column: pa.Array, valid: Flags) -> pa.Array:
    """Return a supplied column of sums, mins or maxs, at the rows that the mask ``valid`` selects.

    Sums are returned as exact sums. A supplied column of sums may contain numbers or exact sums. Raise ``TypeError``
    for a column that is not numeric, and ``ValueError`` for another length, an infinity or NaN.

    >>> _supplied_column("sums", pa.array([1, None, 3]), np.array([True, True, False])).to_pylist()
    [{'exponent': 0, 'limbs': [1]}, None]
    """
    column = normalize(column)
    if len(column) != len(valid):
        raise ValueError(
            f"{name} must have one value for each message; got {len(column)} values for {len(valid)} messages"
        )
    column = column.filter(pa.array(valid))
    if name == "sums" and column.type == EXACT_TYPE:
        return column
    types = pa.types
    if not (types.is_integer(column.type) or types.is_floating(column.type)):
        allowed_types = "integers or floats, or exact sums" if name == "sums" else "integers or floats"
        raise TypeError(f"{name} must be {allowed_types}; got {column.type}")
    column = column.cast(pa.float64())
    floats = pc.fill_null(column, 0.0).to_numpy()
    if (bad := np.flatnonzero(~np.isfinite(floats))).size:
        row = np.flatnonzero(valid)[bad[0]]
        value = floats[bad[0]]
        raise ValueError(
            f"{name} must be finite or null; got {value} in row {row}; pass null to compute the value from the buckets"
        )
    if name != "sums":
        return column
    sums = sum_exactly([Numbers(floats, Groups.each(len(floats)))])
    return pc.if_else(column.is_valid(), sums, pa.scalar(None, EXACT_TYPE))


def _clip_infinities(values: Floats) -> Floats:
    """Return values with infinities replaced by the largest double. The value of the last bucket may be infinite."""
    return np.clip(values, -sys.float_info.max, sys.float_info.max)
