"""covar, corr, slope, intercept, r2: two columns, y and x, from their exact sums; rounded once, when read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from aggr.functions.exact_family import ExactSums, Floats, Sums, check_ddof

_ALL = frozenset({"covar", "corr", "slope", "intercept", "r2"})


@dataclass(frozen=True)
class _TwoColumns(ExactSums):
    """Rows in which y or x is null are skipped."""

    keeps = "exact Σy, Σx, Σyx, Σy², Σx², count"
    inputs = ("y", "x")
    units: ClassVar = {"y": "y_unit", "x": "x_unit"}
    special: ClassVar = {"special": "y·x"}
    sums: ClassVar = {"y": "y", "x": "x", "yx": "y·x", "yy": "y·y", "xx": "x·x"}
    answers_for = _ALL


@dataclass(frozen=True)
class Covar(_TwoColumns):
    """The covariance of two columns.

    Parameters
    ----------
    ddof : int
        Degrees of freedom taken off the count: 1 for the sample's covariance, 0 for the population's. It only reads.
    """

    ddof: int = 1

    name = "covar"
    returns = "float64; null where the count is not above ddof"

    def __post_init__(self) -> None:
        """Refuse a ddof that is no whole number from 0."""
        check_ddof(self.ddof)

    def least_count(self) -> int:
        """One more than is taken off."""
        return self.ddof + 1

    def _result(self, sums: Sums) -> Floats:
        return sums.cross("yx", "y", "x").over_integers(sums.counts, sums.counts - self.ddof)


@dataclass(frozen=True)
class Corr(_TwoColumns):
    """Pearson's correlation coefficient of two columns."""

    name, state_name = "corr", "covar"
    returns = "float64 from -1 to 1; null where a column does not vary"

    def _result(self, sums: Sums) -> Floats:
        both = sums.cross("yx", "y", "x")
        return both.signs() * (both * both).over(sums.cross("yy", "y", "y") * sums.cross("xx", "x", "x"), root=True)


@dataclass(frozen=True)
class Slope(_TwoColumns):
    """The slope of the least-squares line ``y = slope · x + intercept``."""

    name, state_name = "slope", "covar"
    returns = "float64; null where x does not vary"

    def _result(self, sums: Sums) -> Floats:
        return sums.cross("yx", "y", "x").over(sums.cross("xx", "x", "x"))


@dataclass(frozen=True)
class Intercept(_TwoColumns):
    """The least-squares line's value at 0."""

    name, state_name = "intercept", "covar"
    returns = "float64; null where x does not vary"

    def _result(self, sums: Sums) -> Floats:
        return (sums["y"] * sums["xx"] - sums["x"] * sums["yx"]).over(sums.cross("xx", "x", "x"))


@dataclass(frozen=True)
class R2(_TwoColumns):
    """The share of y's variance that the least-squares line explains, as SQL's ``regr_r2`` has it."""

    name, state_name = "r2", "covar"
    returns = "float64 from 0 to 1; 1 where y alone does not vary, null where x does not"

    def _result(self, sums: Sums) -> Floats:
        both, yy, xx = sums.cross("yx", "y", "x"), sums.cross("yy", "y", "y"), sums.cross("xx", "x", "x")
        constant = (yy.signs() == 0) & (xx.signs() != 0)
        return np.where(constant, 1.0, (both * both).over(yy * xx))
