"""Running results: merge the state of each window with the states of all earlier windows of its key in the range.

counts of three windows     7    13     4
running counts              7    20    24
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.arrow.normalize import one_array
from aggr.groups.groups import group_by
from aggr.tables.keys import key_column
from aggr.tables.ranges import scan
from tiltframe.instants import instants_of

if TYPE_CHECKING:
    from tiltframe.store.query.plan import QueryPlan


def running_states(states: pa.Table, plan: QueryPlan) -> pa.Table:
    """Return the rows of ``states`` with running states. A running state is the merge of the states of its window and
    of all earlier windows of its key.

    A state is null if its measure did not exist when the rows of the window were written. The running states of this
    and all later windows of the key then cannot be computed, and are null too.
    """
    keys, _ = group_by([key_column(states.column(name)) for name in plan.keys], states.num_rows)
    order = np.lexsort((instants_of(states), keys.ids))
    segments = keys.ids[order].astype(np.int64)
    sorted_positions = np.empty(len(order), np.int64)
    sorted_positions[order] = np.arange(len(order))
    for name in plan.states:
        in_order = one_array(states.column(name)).take(pa.array(order))
        merged = scan(plan.frame.state_functions[name], in_order, segments)
        is_unknown = _any_so_far(in_order.is_null().to_numpy(zero_copy_only=False), segments)
        rows = pa.array(sorted_positions, mask=is_unknown[sorted_positions])
        states = states.set_column(states.column_names.index(name), states.schema.field(name), merged.take(rows))
    return states


def _any_so_far(flags: NDArray[np.bool_], segments: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return a mask of the rows whose flag is true, or for which an earlier row of the same segment has a true flag.
    ``flags`` has the flag of each row. Rows of a segment are consecutive and have the same number in ``segments``.
    """
    counts = np.cumsum(flags)
    is_first = np.append(True, segments[1:] != segments[:-1])[: len(segments)]
    count_before_segment = np.where(is_first, counts - flags, 0)
    return np.asarray(counts > np.maximum.accumulate(count_before_segment))
