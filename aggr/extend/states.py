"""Built-in states that other functions can share or extend, and built-in functions that read such states.

Functions that share a state are computed from the same column of states of a frame.

`MIN`, `MAX` and `LEAST_AND_GREATEST` are states that contain the smallest value, the greatest value, or both. `MOMENTS`
is the state that contains the exact sums of x, x², x³ and x⁴. `FOUR_POINTS` is the state of `M4`, and `EXTREME_POINTS`
are the fields of this state. `Squared` is the base class of functions whose states contain exact Σx and Σx², such as
`Var`. `Squared` itself does not compute a result.

>>> from aggr.extend.states import LEAST_AND_GREATEST, Min
>>> LEAST_AND_GREATEST in Min.reads
True
"""

from aggr.functions.count import Count
from aggr.functions.event_points import EXTREME_POINTS, FOUR_POINTS, check_extreme_points
from aggr.functions.first_last import First
from aggr.functions.min_max import LEAST_AND_GREATEST, MAX, MIN, Max, Min
from aggr.functions.moments import MOMENTS, Squared

__all__ = [
    "EXTREME_POINTS",
    "FOUR_POINTS",
    "LEAST_AND_GREATEST",
    "MAX",
    "MIN",
    "MOMENTS",
    "Count",
    "First",
    "Max",
    "Min",
    "Squared",
    "check_extreme_points",
]
