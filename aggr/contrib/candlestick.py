"""candlestick: open, high, low and close of a price, each with its time; the volume and the volume-weighted price."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from aggr.contrib.m4 import point_columns
from aggr.contrib.weighted_avg import WeightedAvg
from aggr.extend import EVENT_TIME, ORDERED, SUMMABLE, DamagedState, Field, InputTypes, SumsState, Values
from aggr.extend.exact import float_results
from aggr.extend.states import EXTREME_POINTS, check_extreme_points


@dataclass(frozen=True, eq=False)
class Prices(SumsState):
    """The state of `Candlestick`: exact Σ volume and Σ price·volume, and the first, lowest, highest and last price.

    Each of the four prices is stored with its time.
    """

    @property
    def fields(self) -> Mapping[str, Field]:
        return {**EXTREME_POINTS, **super().fields}

    def reduce_values(self, values: Values) -> Mapping[str, pa.Array]:
        points = {name: field.reduce(values) for name, field in EXTREME_POINTS.items()}
        return {**points, **super().reduce_values(values)}

    def check_consistency(self, states: pa.StructArray) -> None:
        super().check_consistency(states)
        check_extreme_points(states)
        if not np.array_equal(states.field("count").to_numpy() > 0, states.field("earliest").is_valid()):
            raise DamagedState("its count and its prices contradict each other")


PRICES = Prices(
    "candlestick",
    {"products": "value·volume", "weights": "volume"},
    units={"value": "unit", "volume": "weight_unit"},
    special={"special": "value·volume", "weight_special": "volume"},
    # States cannot be subtracted: after the removal of rows, the lowest and the highest price would be unknown.
    counted_by=(),
)


@dataclass(frozen=True)
class Candlestick(WeightedAvg):
    """Return the open, high, low and close of a price, each with its time, the volume, and the volume-weighted price.

    Rows in which the price, the volume or the time is null are skipped. If several rows have the earliest time, the
    smallest price among them is the open. If several rows have the latest time, the greatest price among them is the
    close. High and low have the earliest time at which they occur. NaN is greater than all numbers, as in Spark.

    Examples
    --------
    >>> from aggr import candlestick
    >>> candlestick("price", volume="quantity", by="traded_at")
    candlestick('price', volume='quantity', by='traded_at')
    """

    name = "candlestick"
    keeps = "the first, last, lowest and highest price, each with its time; exact Σ price·volume, exact Σ volume, count"
    returns = (
        "record of open, open_time, high, high_time, low, low_time, close, close_time, volume and vwap, where "
        "volume and vwap are float64; null if there are no values"
    )
    guarantee = "exact, ordered by event time, never by arrival; volume and vwap are correctly rounded"
    inputs: ClassVar = ("value", "volume", EVENT_TIME)
    takes: ClassVar[Mapping[str, InputTypes]] = {
        "value": SUMMABLE,
        "volume": SUMMABLE.described(
            "The volume that was traded at the price. It may have the same types as the price."
        ),
        EVENT_TIME: ORDERED,
    }
    own_state = PRICES

    def finish_states(self, states: pa.StructArray) -> pa.Array:
        has_rows = states.field("count").to_numpy() > 0
        volumes = self.sums(states)["weights"]
        special = states.field("weight_special").to_numpy()
        columns = point_columns(states, open="earliest", high="highest", low="lowest", close="latest")
        columns["volume"] = float_results(volumes.limbs, special, has_rows, volumes.scale)
        columns["vwap"] = super().finish_states(states)
        return pa.StructArray.from_arrays(list(columns.values()), names=list(columns), mask=pa.array(~has_rows))
