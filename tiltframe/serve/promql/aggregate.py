"""Aggregation of values over series, moment by moment; what is a merge of states is done before, by `cells`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tiltframe.serve.promql.cells import Floats, Vector
from tiltframe.serve.promql.labels import Grouping

Present = NDArray[np.bool_]
Ids = NDArray[np.intp]


def _sum(vector: Vector, ids: Ids, n: int) -> Floats:
    out = np.zeros((n, vector.values.shape[1]))
    np.add.at(out, ids, np.where(vector.present, vector.values, 0.0))
    return out


def _count(vector: Vector, ids: Ids, n: int) -> Floats:
    out = np.zeros((n, vector.values.shape[1]))
    np.add.at(out, ids, vector.present)
    return out


def _avg(vector: Vector, ids: Ids, n: int) -> Floats:
    return _sum(vector, ids, n) / _count(vector, ids, n)


def _min(vector: Vector, ids: Ids, n: int) -> Floats:
    out = np.full((n, vector.values.shape[1]), np.nan)
    np.fmin.at(out, ids, np.where(vector.present, vector.values, np.nan))
    return out


def _max(vector: Vector, ids: Ids, n: int) -> Floats:
    out = np.full((n, vector.values.shape[1]), np.nan)
    np.fmax.at(out, ids, np.where(vector.present, vector.values, np.nan))
    return out


AGGREGATIONS: dict[str, Callable[[Vector, Ids, int], Floats]] = {
    "sum": _sum,
    "avg": _avg,
    "min": _min,
    "max": _max,
    "count": _count,
}


def aggregated(name: str, vector: Vector, grouping: Grouping) -> Vector:
    """Aggregate by ``sum``, ``avg``, ``min``, ``max`` or ``count``."""
    ids, labels = grouping.groups(vector.series)
    with np.errstate(invalid="ignore", divide="ignore"):
        values = AGGREGATIONS[name](vector, ids, len(labels))
    return Vector(labels, values, _count(vector, ids, len(labels)) > 0)


def quantile(vector: Vector, grouping: Grouping, q: float) -> Vector:
    """Find the quantile of values in each group, between two of them as Prometheus has it."""
    ids, labels = grouping.groups(vector.series)
    counts = _count(vector, ids, len(labels))
    values = np.full(counts.shape, np.nan)
    for group in range(len(labels)):
        rows = np.flatnonzero(ids == group)
        ordered = np.sort(np.where(vector.present[rows], vector.values[rows], np.nan), axis=0)  # absent ones are last
        rank = q * (counts[group] - 1) if 0 <= q <= 1 else np.zeros_like(counts[group])
        low = np.maximum(np.floor(rank), 0).astype(np.int64)
        high = np.minimum(low + 1, np.maximum(counts[group] - 1, 0)).astype(np.int64)
        moments, weight = np.arange(counts.shape[1]), rank - np.floor(rank)
        values[group] = ordered[low, moments] * (1 - weight) + ordered[high, moments] * weight
    if not 0 <= q <= 1:
        values[:] = np.nan if np.isnan(q) else np.copysign(np.inf, q)
    return Vector(labels, values, counts > 0)


def ranked(name: str, vector: Vector, grouping: Grouping, k: float) -> Vector:
    """Keep the k greatest (``topk``) or least (``bottomk``) values of each group and moment; NaN comes last."""
    ids, _ = grouping.groups(vector.series)
    sign = -1.0 if name == "topk" else 1.0
    order_by = np.where(np.isnan(vector.values), np.inf, sign * vector.values)
    order = np.lexsort((order_by, np.isnan(vector.values), ~vector.present), axis=0)
    by_group = np.take_along_axis(order, np.argsort(ids[order], axis=0, kind="stable"), axis=0)
    sizes = np.bincount(ids, minlength=1)
    rank = np.arange(len(ids)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    among = np.zeros(vector.present.shape, np.bool_)
    np.put_along_axis(among, by_group, np.broadcast_to((rank < np.trunc(k))[:, None], among.shape), axis=0)
    kept = Vector(vector.series, vector.values, vector.present & among)
    rows = by_group[:, 0] if among.shape[1] == 1 else np.arange(len(ids))
    return kept.chosen(rows[kept.present[rows].any(axis=1)])
