"""Random samples for comparing sketches, and true quantiles computed by sorting."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

QUANTILES = (0.5, 0.9, 0.99, 0.999)
EXTREME_QUANTILES = (*QUANTILES, 0.9999)

_DRAW: dict[str, Callable[[np.random.Generator, int], Floats]] = {
    "Pareto": lambda rng, n: rng.pareto(1.1, n) + 1.0,
    "lognormal": lambda rng, n: rng.lognormal(3.0, 1.0, n),
    "uniform": lambda rng, n: rng.uniform(0.0, 100.0, n),
}

DISTRIBUTIONS = tuple(_DRAW)


def draw(distribution: str, n: int, seed: int = 1) -> Floats:
    """Draw ``n`` values of one of `DISTRIBUTIONS`.

    >>> len(draw("Pareto", 3))
    3
    """
    return _DRAW[distribution](np.random.default_rng(seed), n)


def true_quantiles(ordered: Floats, quantiles: Sequence[float]) -> list[float]:
    """Return the quantiles of the sorted values ``ordered``, which are the values at the ranks ``floor(q·(n − 1))``.

    >>> true_quantiles(np.array([1.0, 2.0, 3.0, 4.0]), [0.5, 1.0])
    [2.0, 4.0]
    """
    return [float(ordered[math.floor(q * (len(ordered) - 1))]) for q in quantiles]


def relative_errors(estimates: Sequence[float], true: Sequence[float]) -> list[float]:
    """Return the relative error of each estimate: the distance from the true value divided by the true value's
    magnitude.
    """
    return [abs(estimate - value) / abs(value) for estimate, value in zip(estimates, true, strict=True)]


def rank_errors(estimates: Sequence[float], ordered: Floats, quantiles: Sequence[float]) -> list[float]:
    """Return the error of the rank of each estimate, as a fraction of all ranks. The ranks of an estimate are its
    positions among the sorted values ``ordered``; an estimate that occurs several times has several ranks. The error is
    the distance from the requested rank to the nearest of them.
    """
    low = np.searchsorted(ordered, estimates, side="left") / len(ordered)
    high = np.searchsorted(ordered, estimates, side="right") / len(ordered)
    quantile_array = np.asarray(quantiles)
    errors: list[float] = np.maximum(np.maximum(low - quantile_array, quantile_array - high), 0.0).tolist()
    return errors
