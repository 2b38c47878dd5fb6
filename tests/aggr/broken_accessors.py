"""Functions whose results are right, and whose accessors or results with neighbours are broken on purpose. The
docstrings are as in `tests.aggr.broken_functions`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aggr.contrib import Delta, TimeWeightedAvg
from aggr.extend import COUNT, GREATEST, LEAST, accessor
from aggr.neighbours import Neighbours
from tests.aggr.broken_functions import FLOATS, Documented, writable


@dataclass(frozen=True)
class ShareOfStates(Documented):
    """The count of values. The accessor ``share`` returns the part of 100 values; the fault: it is the part of all
    states.
    """

    name = "share_of_states"
    takes = FLOATS
    fields: ClassVar = {"n": COUNT}

    @accessor(pa.float64())
    def share(self, states):
        counts = states.field("n").to_numpy().astype(float)
        return pa.array(counts / max(1.0, counts.sum()))


@dataclass(frozen=True)
class WritingAccessor(Documented):
    """The least value. The accessor ``size`` returns its absolute value; the fault: it writes it into the state."""

    name = "writing_accessor"
    takes = FLOATS
    fields: ClassVar = {"smallest": LEAST}

    @accessor(pa.float64())
    def size(self, states):
        values = states.field("smallest")
        if not values.null_count:
            shared = writable(values.to_numpy())
            np.abs(shared, out=shared)
        return pc.abs(values)


@dataclass(frozen=True)
class AccessorOfOtherType(Documented):
    """The greatest value. The accessor ``reaches`` returns whether it is above a limit; the fault: as numbers."""

    name = "accessor_of_other_type"
    takes = FLOATS
    fields: ClassVar = {"largest": GREATEST}

    @accessor(pa.bool_())
    def reaches(self, states, limit):
        return pc.greater_equal(states.field("largest"), pa.scalar(limit, pa.float64())).cast(pa.int8())


@dataclass(frozen=True)
class EdgesOfOtherKeys(TimeWeightedAvg):
    """The mean over time; the fault: points of other keys are neighbours too."""

    name = "edges_of_other_keys"

    def finish_with_neighbours(self, states, neighbours):
        keys = type(neighbours.keys).single(len(states))
        return super().finish_with_neighbours(
            states, Neighbours(keys, neighbours.starts, neighbours.ends, neighbours.longest)
        )


@dataclass(frozen=True)
class EdgesInOrder(Delta):
    """The growth; the fault: the first of the passed windows has no neighbours."""

    name = "edges_in_order"

    def finish_with_neighbours(self, states, neighbours):
        results = super().finish_with_neighbours(states, neighbours)
        return pa.concat_arrays([self.finish_states(states.slice(0, 1)), results.slice(1)])
