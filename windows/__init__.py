"""windows: assign rows to windows by their time.

>>> import numpy as np
>>> hour = window("1h", "America/New_York")
>>> time = np.datetime64("2013-07-04T12:34", "us").astype(np.int64)
>>> hour.starts(np.array([time])).astype("datetime64[us]")
array(['2013-07-04T12:00:00.000000'], dtype='datetime64[us]')
"""

from windows.contract import MAX_INSTANT, MIN_INSTANT, Intervals, Merged, Numbered, TimeWindow
from windows.kinds.all_time import AllTime
from windows.kinds.hopping import Hopping, hopping
from windows.kinds.session import Session, session
from windows.kinds.tumbling import Tumbling, window
from windows.read import as_window, read_window, read_windows, text_of
from windows.registry import register, unregister
from windows.timezone import Instants, check_timezone

__all__ = [
    "MAX_INSTANT", "MIN_INSTANT", "AllTime", "Hopping", "Instants", "Intervals", "Merged", "Numbered", "Session",
    "TimeWindow", "Tumbling", "as_window", "check_timezone", "hopping", "read_window", "read_windows", "register",
    "session", "text_of", "unregister", "window",
]  # fmt: skip
