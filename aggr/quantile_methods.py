"""Methods of quantiles: the rules that locate a quantile among n sorted values, with numpy's names.

    lower            the value at rank q·(n − 1), counted from 0 and rounded down
    inverted_cdf     the value at rank ⌈q·n⌉, counted from 1, as SQL's percentile_disc
    linear           interpolated between the two values next to rank q·(n − 1), as numpy and pandas by default

A method is chosen when a result is read. States never depend on the method.

Source: Hyndman and Fan, "Sample quantiles in statistical packages", The American Statistician 50 (1996).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from aggr.arguments import nearest, shown
from aggr.arrays import Floats, Whole
from aggr.quantile_parameters import cap_ranks, percentile

LOWER = "lower"
HDR_HISTOGRAM = "hdrhistogram"

# A function of a quantile and of the numbers of values, shape (n,). It returns positions, counted from 0, shape (n,).
_PositionFunction = Callable[[float, Floats], Floats]


def _multiply_decimal(q: float, counts: Floats) -> Floats:
    """Return ``counts`` multiplied by the decimal value of ``q``, shape (n,): 0.07 of 100 values is 7, not
    7.000000000000001.
    """
    return percentile(q) * counts / 100.0


def _linear_position(q: float, counts: Floats) -> Floats:
    return q * (counts - 1.0)


def _inverted_cdf_position(q: float, counts: Floats) -> Floats:
    """Return the position ``⌈q·n⌉ - 1``, counted from 0. The positions up to this one contain at least q·n values.

    The product q·n is computed as 100·q·n / 100. Instead of 100·q, the next smaller double is used, so that a rounding
    error cannot give the next position.
    """
    return np.ceil(max(math.nextafter(percentile(q), -math.inf), 0.0) * counts / 100.0) - 1.0


def _closest_position(q: float, counts: Floats) -> Floats:
    """Return the position, counted from 0, of the whole rank that is nearest to q·n.

    Halves are rounded to the even rank.
    """
    return np.rint(_multiply_decimal(q, counts)) - 1.0


def _plotting_position(alpha: float, beta: float) -> _PositionFunction:
    return lambda q, counts: _multiply_decimal(q, counts) + (alpha + q * (1.0 - alpha - beta)) - 1.0


_DISCRETE: dict[str, _PositionFunction] = {
    LOWER: lambda q, counts: np.floor(_linear_position(q, counts)),
    "higher": lambda q, counts: np.ceil(_linear_position(q, counts)),
    "nearest": lambda q, counts: np.rint(_linear_position(q, counts)),
    "inverted_cdf": _inverted_cdf_position,
    "closest_observation": _closest_position,
    HDR_HISTOGRAM: lambda q, counts: np.floor(_multiply_decimal(q, counts) + 0.5) - 1.0,
}
_CONTINUOUS: dict[str, _PositionFunction] = {
    "linear": _linear_position,
    "interpolated_inverted_cdf": _plotting_position(0.0, 1.0),
    "hazen": _plotting_position(0.5, 0.5),
    "weibull": _plotting_position(0.0, 0.0),
    "median_unbiased": _plotting_position(1 / 3, 1 / 3),
    "normal_unbiased": _plotting_position(3 / 8, 3 / 8),
}
# the methods that return the mean of the two values next to a position, if the position is not a whole number
_MEANS: dict[str, _PositionFunction] = {
    "midpoint": _linear_position,
    "averaged_inverted_cdf": lambda q, counts: _averaged_position(_multiply_decimal(q, counts)),
}
METHODS = (*_DISCRETE, *_CONTINUOUS, *_MEANS)


def _averaged_position(ranks: Floats) -> Floats:
    """Return a position, counted from 0, for each rank, counted from 1.

    For a whole rank, the position is halfway between the value at this rank and the next value. For another rank, it is
    the position of the value at the next whole rank.
    """
    is_whole_rank = ranks == np.floor(ranks)
    return np.where(is_whole_rank, ranks - 0.5, np.ceil(ranks) - 1.0)


def check_method(method: object) -> None:
    """Raise ``ValueError`` unless a value is the name of a method."""
    if not isinstance(method, str) or method not in METHODS:
        numpy_names = f"all but {HDR_HISTOGRAM} are names of numpy.quantile"
        hint = f"; {nearest(method, METHODS, numpy_names)}" if isinstance(method, str) else ""
        raise ValueError(f"method must be one of {', '.join(METHODS)}; got {shown(method)}{hint}")


def interpolates(method: str) -> bool:
    """Return whether the results of a method may lie between two values."""
    return method not in _DISCRETE


def ranks_of(q: float, counts: Whole, method: str) -> tuple[Whole, Whole, Floats]:
    """Return the ranks of the values from which a quantile is computed.

    Parameters
    ----------
    q : float in [0, 1]
    counts : array of int64, shape (n,)
        The number of values in each state.
    method : str
        A method in `METHODS`.

    Returns
    -------
    low, high : arrays of int64, shape (n,)
        Ranks, counted from 0. The two are equal for a method that does not interpolate.
    shares : array of float64, shape (n,)
        The weight of the value at ``high``, in [0, 1].

    Examples
    --------
    >>> [array.tolist() for array in ranks_of(0.5, np.array([4]), "linear")]
    [[1], [2], [0.5]]
    """
    numbers = counts.astype(np.float64)
    if method in _DISCRETE:
        ranks = cap_ranks(np.maximum(_DISCRETE[method](q, numbers), 0.0), counts)
        return ranks, ranks, np.zeros(len(counts))
    is_mean = method in _MEANS
    positions = np.maximum((_MEANS if is_mean else _CONTINUOUS)[method](q, numbers), 0.0)
    floors = np.floor(positions)
    shares = np.where(positions > floors, 0.5, 0.0) if is_mean else positions - floors
    low = cap_ranks(floors, counts)
    high = cap_ranks(np.ceil(positions), counts)
    return low, high, shares


def stacked_ranks(quantiles: Sequence[float], counts: Whole, method: str) -> tuple[Whole, Whole, Floats]:
    """Return the results of `ranks_of` for several quantiles, each of shape (quantiles, n)."""
    ranks = [ranks_of(q, counts, method) for q in quantiles]
    low, high, shares = zip(*ranks, strict=True)
    return np.stack(low), np.stack(high), np.stack(shares)


def interpolate(low: Floats, high: Floats, shares: Floats) -> Floats:
    """Return values between ``low`` and ``high``; ``shares`` are the weights of ``high``. Two equal values, including
    infinite ones, are returned unchanged.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        interpolated = low * (1.0 - shares) + high * shares
        # because of rounding, a result could be less than both values, or greater than both
        interpolated = np.clip(interpolated, np.minimum(low, high), np.maximum(low, high))
    return np.where((low == high) | (shares == 0.0), low, interpolated)
