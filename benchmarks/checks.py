"""Checks that run before anything is timed. They compare the results of each library with exact results."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pyarrow as pa

from benchmarks import engines, samples
from benchmarks.engines import SEVEN
from benchmarks.samples import QUANTILES, Floats
from benchmarks.sketches import Promise

CHECKED_GROUPS = 20
SCALE = 60  # `exact` accepts only multiples of 2^-60


def simple(answers: Sequence[tuple[str, pa.Table]], arrays: Sequence[Floats]) -> None:
    """Raise ``AssertionError`` if the seven simple aggregates of a library are wrong in one of the first
    `CHECKED_GROUPS` groups. ``answers`` has the name and the results of each library, and ``arrays`` has the values of
    each group.

    count, min, max and all results of tiltframe must be the doubles nearest to the exact results. The other results may
    have a relative error of 1e-9.
    """
    expected = [exact(values) for values in arrays[:CHECKED_GROUPS]]
    for library, table in answers:
        got = engines.answers(table)
        if len(got) != len(arrays):
            raise AssertionError(f"{library} returned {len(got)} groups, and there are {len(arrays)}")
        for g, truths in enumerate(expected):
            for question, answer, true in zip(SEVEN, got[g], truths, strict=True):
                strictly = library == engines.Ours.name or question in ("count", "min", "max")
                if not (answer == true if strictly else math.isclose(answer, true, rel_tol=1e-9)):
                    raise AssertionError(f"{library}: {question} of group {g} is {answer!r}, and must be {true!r}")


def exact(x: Floats) -> list[float]:
    """Return count, min, max, sum, avg, var and stdev of the values, computed exactly with integers and fractions, and
    rounded once. Raise ``AssertionError`` if a value is not a multiple of 2^-`SCALE`.
    """
    scaled = np.ldexp(x, SCALE)
    if (scaled != np.rint(scaled)).any():
        raise AssertionError(
            f"the values must be multiples of 2^-{SCALE}, so that exact sums fit; got {x[scaled != np.rint(scaled)][0]}"
        )
    scaled_integers = [int(value) for value in scaled.tolist()]
    n, total = len(scaled_integers), Fraction(sum(scaled_integers), 2**SCALE)
    squares = Fraction(sum(value * value for value in scaled_integers), 4**SCALE)
    variance = (squares - total * total / n) / (n - 1)
    return [n, float(x.min()), float(x.max()), float(total), float(total / n), float(variance), root(variance)]


def root(square: Fraction) -> float:
    """Return the square root of a fraction, computed to 200 binary places and rounded to a double.

    >>> root(Fraction(9, 4))
    1.5
    """
    return float(Fraction(math.isqrt((square.numerator << 400) // square.denominator), 1 << 200))


def quantiles(library: str, promise: Promise, table: pa.Table, arrays: Sequence[Floats]) -> None:
    """Raise ``AssertionError`` if a quantile of a library has a larger error than ``promise`` allows, in one of the
    first `CHECKED_GROUPS` groups. ``table`` has the estimated quantiles of each group, and ``arrays`` has one array of
    values per group.
    """
    got = engines.answers(table)
    for g, values in enumerate(arrays[:CHECKED_GROUPS]):
        promised(f"{library}, group {g}", promise, got[g], np.sort(values))


def promised(
    library: str, promise: Promise, estimates: Sequence[float], ordered: Floats, quantiles: Sequence[float] = QUANTILES
) -> None:
    """Raise ``AssertionError`` if one of ``estimates``, the estimated ``quantiles`` of the sorted values ``ordered``,
    has a larger error than ``promise`` allows. If the promise limits the error of the rank, an additional error of two
    ranks is accepted.
    """
    if promise.relative is None:
        errors = samples.rank_errors(estimates, ordered, quantiles)
        allowed = (promise.rank or 0.0) + 2 / len(ordered)
    else:
        errors = value_errors(estimates, ordered, quantiles, promise.neighbours)
        allowed = promise.relative * (1 + 1e-9) + promise.absolute / float(ordered[len(ordered) // 2])
    if max(errors) > allowed:
        raise AssertionError(
            f"{library}: the quantiles {list(estimates)} have an error of {max(errors):.3g}, above the allowed "
            f"{allowed:.3g}"
        )


def value_errors(
    estimates: Sequence[float], ordered: Floats, quantiles: Sequence[float], neighbours: int
) -> list[float]:
    """Return one relative error per estimate. ``estimates`` are the estimated ``quantiles`` of the sorted values
    ``ordered``. An estimate is compared with the value at the rank of the quantile, and with the values up to
    ``neighbours`` ranks before and after it; the smallest of these relative errors is returned.
    """
    last = len(ordered) - 1
    errors = []
    for estimate, q in zip(estimates, quantiles, strict=True):
        rank = math.floor(q * last)
        near = ordered[max(0, rank - neighbours) : rank + neighbours + 1]
        errors.append(float((np.abs(estimate - near) / np.abs(near)).min()))
    return errors
