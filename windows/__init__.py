"""windows: which window a row belongs to, as a function of its time.

>>> import numpy as np
>>> hour = window("1h", "America/New_York")
>>> noon = np.datetime64("2013-07-04T12:34", "us").astype(np.int64)
>>> hour.starts(np.array([noon])).astype("datetime64[us]")
array(['2013-07-04T12:00:00.000000'], dtype='datetime64[us]')
"""

from windows.aligned import Window, window
from windows.hopping import Hopping, hopping, read_hopping
from windows.zone import zone

__all__ = ["Hopping", "Window", "hopping", "read_hopping", "window", "zone"]
