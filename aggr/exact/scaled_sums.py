"""Scaled sums: exact sums of numbers with decimal places, in the layout of other exact sums.

A sum of decimals is counted in units of ``10^-places``. Its field ``exponent`` is the level of the lowest digit plus
``SPAN · places``. A digit of level n counts multiples of 2^(32·n). For example, 0.30 is
``{exponent: SPAN · 2, limbs: [30]}``. Sums of floats and whole numbers have no places, and are stored as in
`aggr.exact.superaccumulator`. A sum has as many places as the row with the most places, so that its stored form does
not depend on the order of merges. For the same reason, a sum of 0 keeps its places.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.arrays import Flags, Whole
from aggr.arrow.damaged_state import DamagedState, field_of_type
from aggr.exact.expression import ExactNumbers, scale_up
from aggr.exact.superaccumulator import (
    EXACT_TYPE,
    Limbs,
    check_exact,
    limbs_to_arrow,
    merge_exactly,
    subtract_exactly,
)
from aggr.groups.groups import Groups

# The number that each decimal place adds to the field ``exponent``, which otherwise contains the level of the lowest
# digit. SPAN is larger than the range of levels, which are from -68 to 68 for sums and for sums of squares.
SPAN = 256
_HALF = SPAN // 2
_MAX_PLACES = 76


def with_places(sums: pa.StructArray, places: int, has_rows: Flags) -> pa.StructArray:
    """Return exact sums of unscaled integers as sums in units of ``10^-places``. Only their field ``exponent`` changes.

    ``has_rows`` is a mask of the groups with rows. The sums of the other groups remain 0 without decimal places.

    >>> from aggr.exact.superaccumulator import EXACT_TYPE
    >>> with_places(pa.array([{"exponent": 0, "limbs": [30]}], EXACT_TYPE), 2, np.array([True])).to_pylist()
    [{'exponent': 512, 'limbs': [30]}]
    """
    if places == 0:
        return sums
    exponents = sums.field("exponent").to_numpy() + np.where(has_rows, SPAN * places, 0).astype(np.int16)
    return _with_exponents(sums, exponents)


def read_scaled(sums: pa.StructArray) -> ExactNumbers:
    """Return sums as exact numbers, all with the same number of decimal places: the largest that occurs."""
    places = _places_of(sums)
    common_places = int(places.max(initial=0))
    if common_places == 0:
        return ExactNumbers(Limbs.of_arrow(sums))
    limbs = Limbs.of_arrow(_without_places(sums, places))
    return ExactNumbers(scale_up(limbs, common_places - places), common_places)


def merge_scaled(sums: pa.StructArray, groups: Groups) -> pa.StructArray:
    """Return the total of the sums of each group. Its number of decimal places is the maximum in the group."""
    places = _places_of(sums)
    if not places.any():
        return merge_exactly(sums, groups)
    group_places = np.zeros(groups.n, np.int64)
    np.maximum.at(group_places, groups.ids, places)
    return _add_places(merge_exactly(_with_common_places(sums, places, group_places[groups.ids]), groups), group_places)


def subtract_scaled(sums: pa.StructArray, subtracted: pa.StructArray) -> pa.StructArray:
    """Return ``sums - subtracted`` row by row. A difference has as many decimal places as the operand with more."""
    places = _places_of(sums)
    subtracted_places = _places_of(subtracted)
    if not places.any() and not subtracted_places.any():
        return subtract_exactly(sums, subtracted)
    common_places = np.maximum(places, subtracted_places)
    differences = subtract_exactly(
        _with_common_places(sums, places, common_places),
        _with_common_places(subtracted, subtracted_places, common_places),
    )
    return _add_places(differences, common_places)


def check_scaled(sums: pa.StructArray) -> None:
    """Raise `DamagedState` unless each row has the form that `with_places` and merges write."""
    places = _places_of(sums)
    if ((places < 0) | (places > _MAX_PLACES)).any():
        raise DamagedState("is not an exact sum: it has more decimal places than a decimal can have")
    check_exact(_without_places(sums, places) if places.any() else sums)


def _places_of(sums: pa.StructArray) -> Whole:
    exponents = field_of_type(sums, EXACT_TYPE).field("exponent").to_numpy()
    places: Whole = (exponents.astype(np.int64) + _HALF) >> 8
    return places


def _without_places(sums: pa.StructArray, places: Whole) -> pa.StructArray:
    exponents = sums.field("exponent").to_numpy() - SPAN * places
    return _with_exponents(sums, exponents.astype(np.int16))


def _add_places(sums: pa.StructArray, places: Whole) -> pa.StructArray:
    exponents = sums.field("exponent").to_numpy() + SPAN * places
    return _with_exponents(sums, exponents.astype(np.int16))


def _with_exponents(sums: pa.StructArray, exponents: NDArray[np.int16]) -> pa.StructArray:
    return pa.StructArray.from_arrays([pa.array(exponents), sums.field("limbs")], fields=list(EXACT_TYPE))


def _with_common_places(sums: pa.StructArray, places: Whole, common_places: Whole) -> pa.StructArray:
    plain = _without_places(sums, places)
    if (places == common_places).all():
        return plain
    return limbs_to_arrow(scale_up(Limbs.of_arrow(plain), common_places - places))
