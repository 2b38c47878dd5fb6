"""Columns of exact sums: the Arrow type of such a column, merging and checks, units of numbers, and special values.

The names in this module are for states that contain other fields in addition to exact sums. A state that consists only
of exact sums is declared by `aggr.extend.SumsState`, and does not need these names.

`kept_type` returns the Arrow type of the field `UNIT`, in which a state stores the unit of a column. `binary_logarithm`
rounds logarithms to `PLACES` binary digits after the point. The field ``exponent`` of a sum of decimals is increased by
`SPAN` for each decimal place of the sum. `NAN`, `POSITIVE` and `NEGATIVE` are flags of the special values of a group:
NaN, inf and -inf.
"""

from aggr.exact.number_columns import (
    NAN,
    NEGATIVE,
    POSITIVE,
    check_unit,
    exact_float_parts,
    float_results,
    kept_type,
    scale_of,
    unit_of,
    with_special,
)
from aggr.exact.powers_of_two import PLACES, binary_logarithm, exp2, power_of_two
from aggr.exact.scaled_sums import SPAN, read_scaled
from aggr.exact.superaccumulator import EXACT_TYPE, check_exact, merge_exactly
from aggr.exact.weights import float_parts
from aggr.fields import UNIT

__all__ = [
    "EXACT_TYPE",
    "NAN",
    "NEGATIVE",
    "PLACES",
    "POSITIVE",
    "SPAN",
    "UNIT",
    "binary_logarithm",
    "check_exact",
    "check_unit",
    "exact_float_parts",
    "exp2",
    "float_parts",
    "float_results",
    "kept_type",
    "merge_exactly",
    "power_of_two",
    "read_scaled",
    "scale_of",
    "unit_of",
    "with_special",
]
