"""weighted_avg: the mean in which each row counts by its weight; exact Σwx and Σw, rounded once, when read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.fields import COUNT, EXACT, OR, Field
from aggr.function import Function, refuse
from aggr.kernels import compute as pc
from aggr.kernels.damage import DamagedState
from aggr.kernels.exact_sums import sum_exactly, sum_products
from aggr.kernels.groups import Groups
from aggr.kernels.numbers import NAN, NEGATIVE, POSITIVE, UNIT, check_unit, kept_type, parts_of, scale_of, unit_of
from aggr.kernels.rounding import ratios
from aggr.kernels.superaccumulator import Limbs

Flags = NDArray[np.int8]


@dataclass(frozen=True)
class WeightedAvg(Function):
    """The weighted mean Σwx / Σw, rounded once from exact sums."""

    name = "weighted_avg"
    keeps = "exact Σwx, exact Σw, count"
    returns = "float64; null where there is nothing, or the weights add up to 0"
    guarantee = "correctly rounded"
    inputs = ("value", "weight")

    @property
    def state_fields(self) -> Mapping[str, Field]:
        """Everything adds up; the units are those of the inputs."""
        sums: dict[str, Field] = {"products": EXACT, "weights": EXACT}
        return {"count": COUNT, "unit": UNIT, "weight_unit": UNIT, "special": OR, "weight_special": OR, **sums}

    def check_input(self, dtype: pa.DataType) -> None:
        """Take whole numbers, floats and decimals of up to 38 digits."""
        for field in dtype:
            if kept_type(field.type) is None or pa.types.is_timestamp(field.type):
                raise refuse(self, field.type, "integers, floats and decimals of up to 38 digits")

    def check_whole(self, states: pa.StructArray) -> None:
        """Refuse states that were cast to another unit, and sums without rows."""
        for name in ("unit", "weight_unit"):
            dtype = states.field(name).type
            if kept_type(dtype) is None or pa.types.is_timestamp(dtype):
                raise DamagedState(f"its field {name!r} has type {dtype}")
            check_unit(states.field(name))
        held = [pc.list_value_length(states.field(name).field("limbs")).to_numpy() for name in ("products", "weights")]
        counts = states.field("count").to_numpy()
        if ((counts == 0) & ((held[0] > 0) | (held[1] > 0))).any():
            raise DamagedState("it sums without rows")

    def _reduce(self, values: pa.Array, groups: Groups) -> Mapping[str, pa.Array]:
        x, w = (values.field(name) for name in self.inputs)
        (x_parts, x_special), (w_parts, w_special) = parts_of(x, groups), parts_of(w, groups)
        none = np.zeros(len(x), np.int8)
        finite = x_special is None and w_special is None
        special = none if finite else _special_products(values, self.inputs)
        return {
            "count": pa.array(groups.counts()),
            "unit": unit_of(kept_type(x.type), groups.n),
            "weight_unit": unit_of(kept_type(w.type), groups.n),
            "special": OR.merge(pa.array(special), groups),
            "weight_special": OR.merge(pa.array(none if w_special is None else w_special), groups),
            "products": sum_products(x_parts, w_parts, groups),
            "weights": sum_exactly(w_parts, groups),
        }

    def _finish(self, states: pa.StructArray) -> pa.Array:
        weights = Limbs.of_arrow(states.field("weights"))
        special, weight_special = (states.field(name).to_numpy() for name in ("special", "weight_special"))
        means = ratios(Limbs.of_arrow(states.field("products")), weights, scale_of(states.field("unit").type))
        signs = weights.signs()
        infinite = np.where(special & POSITIVE, np.inf, -np.inf) * np.where(signs == 0, np.nan, signs)
        both = (special & (POSITIVE | NEGATIVE)) == (POSITIVE | NEGATIVE)
        poisoned = (special & NAN != 0) | both | (weight_special != 0)
        results = np.where(poisoned, np.nan, np.where(special != 0, infinite, means))
        nothing = (signs == 0) & ~poisoned
        return pa.array(results, mask=nothing | (states.field("count").to_numpy() == 0))


def _special_products(values: pa.StructArray, names: tuple[str, ...]) -> Flags:
    """Tell which products are NaN or infinite."""
    x, w = (values.field(name).cast(pa.float64(), safe=False).to_numpy() for name in names)
    signs, infinite = np.sign(x) * np.sign(w), np.isinf(x) | np.isinf(w)
    nan = np.isnan(signs) | (infinite & (signs == 0))
    flags = nan * NAN + (infinite & (signs > 0)) * POSITIVE + (infinite & (signs < 0)) * NEGATIVE
    special: Flags = flags.astype(np.int8)
    return special
