"""Quantiles as parameters: checked when given, named in results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from numbers import Real

import pyarrow as pa

from aggr.arguments import shown

DEFAULT = (0.5, 0.9, 0.99)


def check_quantiles(quantiles: Iterable[float] | float) -> tuple[float, ...]:
    """Return quantiles as a tuple of floats; raises ``ValueError`` for one outside [0, 1] or given twice.

    >>> check_quantiles([0.5, 1])
    (0.5, 1.0)
    """
    if isinstance(quantiles, str | bytes | Mapping | set | frozenset):
        raise ValueError(f"quantiles must be a list of numbers from 0 to 1; got {shown(quantiles)}")
    given = tuple(quantiles) if isinstance(quantiles, Iterable) else (quantiles,)
    for q in given:
        if isinstance(q, bool) or not isinstance(q, Real) or not 0.0 <= float(q) <= 1.0:
            raise ValueError(f"a quantile must be a number from 0 to 1; got {q!r}")
    if not given:
        raise ValueError("name at least one quantile, say [0.5]")
    if len(set(given)) < len(given):
        raise ValueError(f"each quantile must be given once; got {list(given)}")
    return tuple(float(q) for q in given)


def record(quantiles: tuple[float, ...], results: list[pa.Array], dtype: pa.DataType) -> pa.Array:
    """Make the struct of quantiles, its fields named as people write them: ``0.5``, ``0.99``, ``1``."""
    fields = [pa.field(label(q), dtype) for q in quantiles]
    return pa.StructArray.from_arrays(results, fields=fields)


def label(q: float) -> str:
    """Write a quantile as short as it reads back.

    >>> label(0.999), label(1.0)
    ('0.999', '1')
    """
    return repr(q).removesuffix(".0")


def percentile(q: float) -> float:
    """Return the percentile that a person means by a quantile: 14.5 for 0.145, not 14.499999999999998."""
    return float(Decimal(repr(q)) * 100)
