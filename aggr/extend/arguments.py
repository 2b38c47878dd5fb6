"""Helpers for parameters of functions: checks of values, conversion between durations and text, and parts of error
messages.

>>> from aggr.extend.arguments import checked_whole, nearest, read_length
>>> read_length("90s", "gap"), nearest("hots", ["host", "bytes"])
(90000000, "did you mean 'host'?")
>>> checked_whole(0, "k, the number of rows,", low=1)
Traceback (most recent call last):
ValueError: k, the number of rows, must be a whole number of at least 1; got 0
"""

from aggr.arguments import (
    because,
    checked_list,
    checked_mapping,
    checked_name,
    checked_truth,
    checked_type,
    checked_whole,
    is_name,
    listed,
    nearest,
    shown,
)
from aggr.duration import DAY, SECOND, duration_text, read_duration, read_length
from aggr.extras import MissingExtra
from aggr.functions.exact_family import check_ddof
from aggr.iso8601 import read_time
from aggr.quantile_parameters import quantile_label

__all__ = [
    "DAY",
    "SECOND",
    "MissingExtra",
    "because",
    "check_ddof",
    "checked_list",
    "checked_mapping",
    "checked_name",
    "checked_truth",
    "checked_type",
    "checked_whole",
    "duration_text",
    "is_name",
    "listed",
    "nearest",
    "quantile_label",
    "read_duration",
    "read_length",
    "read_time",
    "shown",
]
