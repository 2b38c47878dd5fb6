"""Refused values: a function rejects values that it cannot take, or skips them and counts them in its state.

    hdr("ms")                       5  -1  7     an error that names the value, the window and the keys
    hdr("ms", bad_values="skip")    5  -1  7     the state of 5 and 7, and the field ``refused`` is 1

The count is a field of the state: it is merged and subtracted like the other counts, so that it is correct after any
merge, retry and retraction. States of functions that reject values do not have this field.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from aggr.arguments import shown
from aggr.arrays import Flags
from aggr.fields import COUNT, Field
from aggr.functions.limits import ERROR
from aggr.values import Values

SKIP = "skip"
ACTIONS = (ERROR, SKIP)

# the field of states with the sum of the weights of refused values
REFUSED = "refused"

# the type of the parameter ``bad_values`` in states; a state has the parameter only if it counts refused values
BAD_VALUES_PARAMETER: Mapping[str, pa.DataType] = {"bad_values": pa.string()}


def check_bad_values(bad_values: object) -> None:
    """Raise ``ValueError`` unless ``bad_values`` is "error" or "skip"."""
    if not isinstance(bad_values, str) or bad_values not in ACTIONS:
        raise ValueError(f"bad_values must be 'error' or 'skip'; got {shown(bad_values)}")


def bad_values_parameter(bad_values: str) -> Mapping[str, pa.DataType]:
    """Return the name and the type of the parameter ``bad_values``, or {} for "error", which states do not store."""
    return BAD_VALUES_PARAMETER if bad_values == SKIP else {}


def refused_count_fields(bad_values: str) -> Mapping[str, Field]:
    """Return the fields that ``bad_values`` adds to a state, as name → field.

    "skip" adds the count of refused values, and "error" adds none.
    """
    return {REFUSED: COUNT} if bad_values == SKIP else {}


def without_refused(values: Values, is_refused: Flags) -> tuple[Values, pa.Array]:
    """Return the values that ``is_refused`` does not mark, and the count of refused values of each group.

    A marked value is counted as often as its weight. The count also includes ``values.refused``, the number of values
    of each group that were refused earlier because their weights are invalid. Each of them counts once.
    """
    by_weight = np.zeros(values.groups.n, np.int64) if values.refused is None else values.refused
    if not is_refused.any():
        return values, pa.array(by_weight)
    return values.filter(~is_refused), pa.array(by_weight + values.filter(is_refused).counts)
