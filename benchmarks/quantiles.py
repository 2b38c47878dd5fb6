"""The quantiles of the benchmarks."""

from __future__ import annotations

QUANTILES = (0.5, 0.9, 0.99, 0.999)
EXTREME_QUANTILES = (*QUANTILES, 0.9999)
