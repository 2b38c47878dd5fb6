"""windows.ordered: windows that depend on the previous rows, in the order of key and time.

>>> from windows import ordered
>>> str(ordered.since("n > 5", ordered.daily("UTC")))
"since('n > 5', daily('UTC'))"
"""

from windows.ordered.contract import Carry, Condition, Input, OrderedWindow, Ranges, Rows, Weight
from windows.ordered.kinds.count import count, weighted_count
from windows.ordered.kinds.emit_when import emit_when
from windows.ordered.kinds.interval import interval
from windows.ordered.kinds.session import session
from windows.ordered.kinds.sliding import running, since, sliding
from windows.ordered.read import as_ordered, read_ordered, read_tick
from windows.ordered.ticks import Tick, daily, hourly, minutely, monthly, weekly, yearly

__all__ = [
    "Carry", "Condition", "Input", "OrderedWindow", "Ranges", "Rows", "Tick", "Weight", "as_ordered", "count", "daily",
    "emit_when", "hourly", "interval", "minutely", "monthly", "read_ordered", "read_tick", "running", "session",
    "since", "sliding", "weekly", "weighted_count", "yearly",
]  # fmt: skip
