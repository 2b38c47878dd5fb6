"""Quantiles as parameters: checks of their values, and the names of their results."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
import pyarrow as pa

from aggr.arguments import shown
from aggr.arrays import Floats, Whole

DEFAULT_QUANTILES = (0.5, 0.9, 0.99)


def check_quantiles(quantiles: Iterable[float | str] | float) -> tuple[float, ...]:
    """Return quantiles as a tuple of floats; raises ``ValueError`` if one is outside [0, 1] or occurs twice.

    An element of a list may also be the text of a number, such as ``"0.99"``, as in Tremor's scripts.

    >>> check_quantiles([0.5, 1]), check_quantiles(["0.5", "0.99"])
    ((0.5, 1.0), (0.5, 0.99))
    """
    if isinstance(quantiles, str | bytes | Mapping | set | frozenset):
        raise ValueError(f"quantiles must be a list of numbers from 0 to 1; got {shown(quantiles)}")
    fractions = tuple(map(_as_number, quantiles)) if isinstance(quantiles, Iterable) else (quantiles,)
    for q in fractions:
        if isinstance(q, bool) or not isinstance(q, Real) or not 0.0 <= float(q) <= 1.0:
            raise ValueError(f"a quantile must be a number from 0 to 1; got {shown(q)}")
    if not fractions:
        raise ValueError("quantiles is empty; name at least one quantile, such as [0.5]")
    if len(set(fractions)) < len(fractions):
        raise ValueError(f"quantiles must not contain a value twice; got {shown(list(fractions))}")
    return tuple(float(q) for q in fractions)


def _as_number(quantile: Any) -> Any:
    """Return the number in a text of decimal digits, such as ``0.999``. Other values are unchanged."""
    if isinstance(quantile, str) and re.fullmatch(r"[01](\.[0-9]{1,30})?", quantile, re.ASCII):
        return float(quantile)
    return quantile


def quantile_struct(quantiles: tuple[float, ...], results: list[pa.Array], dtype: pa.DataType) -> pa.Array:
    """Return a struct column with one field of type ``dtype`` per quantile. ``results`` has a column per quantile.

    The fields are named by the shortest texts of the quantiles: ``0.5``, ``0.99``, ``1``.
    """
    return pa.StructArray.from_arrays(results, fields=[pa.field(quantile_label(q), dtype) for q in quantiles])


def quantile_label(q: float) -> str:
    """Return the shortest text that parses to the same quantile.

    >>> quantile_label(0.999), quantile_label(1.0)
    ('0.999', '1')
    """
    return repr(q).removesuffix(".0")


def percentile(q: float) -> float:
    """Return 100 times a quantile, computed in decimal: 14.5 for 0.145, not 14.499999999999998."""
    return float(Decimal(repr(q)) * 100)


def cap_ranks(ranks: Floats, counts: Whole) -> Whole:
    """Return ranks as whole numbers of at most ``counts - 1``, shape (n,). Ranks are counted from 0.

    Without this limit, a rank could exceed the last rank, ``counts - 1``, because doubles round some large ranks up.

    >>> cap_ranks(np.array([3.0, 2.0**63]), np.array([9, 2**63 - 1]))
    array([                  3, 9223372036854775806])
    """
    last_ranks = np.maximum(counts - 1, 0)
    is_too_large = ranks >= last_ranks
    return np.where(is_too_large, last_ranks, np.where(is_too_large, 0.0, ranks).astype(np.int64))
