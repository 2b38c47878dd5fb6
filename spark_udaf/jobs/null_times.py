"""Rows without a time: they fail a job, for they belong to no window, or are left out where that is asked for."""

from __future__ import annotations

from typing import Any

from aggr.arguments import shown

ON_NULL_TIME = ("fail", "skip")


def with_times(given: Any, time: str, on_null_time: str) -> Any:
    """Leave out the rows of a DataFrame that have no time, if that is asked for; raises ``ValueError`` otherwise."""
    if on_null_time not in ON_NULL_TIME:
        raise ValueError(f"on_null_time must be one of {', '.join(ON_NULL_TIME)}; got {shown(on_null_time)}")
    if on_null_time == "fail" or isinstance(given, type) or not hasattr(given, "mapInArrow"):
        if on_null_time == "skip" and hasattr(given, "schema"):
            raise ValueError("on_null_time='skip' is of DataFrames; files that tasks read must have a time in each row")
        return given  # what is no DataFrame is refused later, and so is one without the column
    if time not in given.columns:
        return given
    return given.where(given[f"`{time.replace('`', '``')}`"].isNotNull())
