"""weighted_avg: the weighted mean, from exact Σwx and Σw, rounded once when the result is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from aggr.extend import SUMMABLE, ExactSums, InputTypes, SumsState
from aggr.extend.exact import NAN, NEGATIVE, POSITIVE


@dataclass(frozen=True)
class WeightedAvg(ExactSums):
    """Compute the mean of a column in which each row has a weight, rounded once from exact Σwx and Σw.

    Rows in which the column or the weight is null are skipped. A weight that is NaN or infinite gives NaN.

    Examples
    --------
    >>> from aggr import weighted_avg
    >>> weighted_avg("price", weight="quantity")
    weighted_avg('price', weight='quantity')
    """

    name = "weighted_avg"
    takes: ClassVar[InputTypes | Mapping[str, InputTypes]] = {
        "value": SUMMABLE,
        "weight": SUMMABLE.described("Weights of either sign. They may have the same types as the column."),
    }
    keeps = "exact Σwx, exact Σw, count"
    returns = "float64; null if there are no values, or if the sum of the weights is 0"
    inputs: ClassVar[tuple[str, ...]] = ("value", "weight")
    own_state: ClassVar[SumsState] = SumsState(
        "weighted_avg",
        {"products": "value·weight", "weights": "weight"},
        units={"value": "unit", "weight": "weight_unit"},
        special={"special": "value·weight", "weight_special": "weight"},
    )

    def finish_states(self, states: pa.StructArray) -> pa.Array:
        sums = self.sums(states)
        special, weight_special = (states.field(name).to_numpy() for name in ("special", "weight_special"))
        means = sums["products"].over(sums["weights"])
        signs = sums["weights"].signs()
        infinities = np.where(special & POSITIVE, np.inf, -np.inf) * np.where(signs == 0, np.nan, signs)
        has_both_infinities = (special & (POSITIVE | NEGATIVE)) == (POSITIVE | NEGATIVE)
        is_nan = (special & NAN != 0) | has_both_infinities | (weight_special != 0)
        results = np.where(is_nan, np.nan, np.where(special != 0, infinities, means))
        has_zero_weight = (signs == 0) & ~is_nan
        return pa.array(results, mask=has_zero_weight | (sums.counts == 0))
