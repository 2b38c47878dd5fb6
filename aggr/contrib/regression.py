"""covar, corr, slope, intercept, r2: computed from the exact sums of two columns, y and x, and rounded once when they
are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from aggr.extend import SUMMABLE, ExactSums, InputTypes, Sums, SumsState
from aggr.extend.arguments import check_ddof
from aggr.extend.columns import Floats

TWO_COLUMNS = SumsState(
    "covar",
    {"y": "y", "x": "x", "yx": "y·x", "yy": "y·y", "xx": "x·x"},
    units={"y": "y_unit", "x": "x_unit"},
    special={"special": "y·x"},
)


@dataclass(frozen=True)
class _TwoColumns(ExactSums):
    """The base class of functions of two columns, y and x. Rows in which y or x is null are skipped."""

    keeps = "exact Σy, Σx, Σyx, Σy², Σx², count"
    inputs = ("y", "x")
    takes: ClassVar[InputTypes | Mapping[str, InputTypes]] = {
        "y": SUMMABLE,
        "x": SUMMABLE.described("The other column. It may have the same types as the first."),
    }
    own_state = TWO_COLUMNS


@dataclass(frozen=True)
class Covar(_TwoColumns):
    """Compute the covariance of two columns, rounded once from exact sums.

    Rows in which either column is null are skipped. NaN and infinities give NaN.

    Parameters
    ----------
    ddof : int
        The number that is subtracted from the count in the divisor: 1 for a sample, 0 for the population. This
        parameter affects only results, not states.

    Raises
    ------
    ValueError
        If ``ddof`` is not a whole number of at least 0.

    Examples
    --------
    >>> from aggr import covar
    >>> covar("price", x="area")
    covar('price', x='area')
    """

    ddof: int = 1

    name = "covar"
    returns = "float64; null if the count is not above ddof"

    def __post_init__(self) -> None:
        check_ddof(self.ddof)

    def least_count(self) -> int:
        return self.ddof + 1

    def result(self, sums: Sums) -> Floats:
        return sums.cross("yx", "y", "x").over_integers(sums.counts, sums.counts - self.ddof)


@dataclass(frozen=True)
class Corr(_TwoColumns):
    """Compute Pearson's correlation of two columns, rounded once from exact sums.

    Rows in which either column is null are skipped. NaN and infinities give NaN.

    Examples
    --------
    >>> from aggr import corr
    >>> corr("price", x="area")
    corr('price', x='area')
    """

    name = "corr"
    returns = "float64 from -1 to 1; null if a column does not vary"

    def result(self, sums: Sums) -> Floats:
        product_sums = sums.cross("yx", "y", "x")
        return product_sums.signs() * (product_sums * product_sums).over(
            sums.cross("yy", "y", "y") * sums.cross("xx", "x", "x"), root=True
        )


@dataclass(frozen=True)
class Slope(_TwoColumns):
    """Compute the slope of the least-squares line of y over x, rounded once from exact sums.

    Rows in which either column is null are skipped. NaN and infinities give NaN.

    Examples
    --------
    >>> from aggr import slope
    >>> slope("price", x="area")
    slope('price', x='area')
    """

    name = "slope"
    returns = "float64; null if x does not vary"

    def result(self, sums: Sums) -> Floats:
        return sums.cross("yx", "y", "x").over(sums.cross("xx", "x", "x"))


@dataclass(frozen=True)
class Intercept(_TwoColumns):
    """Compute the value at x = 0 of the least-squares line of y over x, rounded once from exact sums.

    Rows in which either column is null are skipped. NaN and infinities give NaN.

    Examples
    --------
    >>> from aggr import intercept
    >>> intercept("price", x="area")
    intercept('price', x='area')
    """

    name = "intercept"
    returns = "float64; null if x does not vary"

    def result(self, sums: Sums) -> Floats:
        return (sums["y"] * sums["xx"] - sums["x"] * sums["yx"]).over(sums.cross("xx", "x", "x"))


@dataclass(frozen=True)
class R2(_TwoColumns):
    """Compute the share of y's variance that the least-squares line over x explains, like SQL's regr_r2.

    The share is rounded once.

    Rows in which either column is null are skipped. NaN and infinities give NaN.

    Examples
    --------
    >>> from aggr import r2
    >>> r2("price", x="area")
    r2('price', x='area')
    """

    name = "r2"
    returns = "float64 from 0 to 1; null if x does not vary, and 1 if x varies and y does not"

    def result(self, sums: Sums) -> Floats:
        product_sums = sums.cross("yx", "y", "x")
        yy = sums.cross("yy", "y", "y")
        xx = sums.cross("xx", "x", "x")
        is_constant = (yy.signs() == 0) & (xx.signs() != 0)
        return np.where(is_constant, 1.0, (product_sums * product_sums).over(yy * xx))
