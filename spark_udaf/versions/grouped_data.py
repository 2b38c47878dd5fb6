"""grouped_data: ``groupBy(…).agg`` of PySpark, which asserts that its arguments are Columns.

A measure of `aggr` is not a Column. For a measure, PySpark raises an ``AssertionError`` that names neither the measure
nor an alternative. This module adds a check that runs before PySpark's and raises a clearer error.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

from aggr.measure import Measure

_MODULES = ("pyspark.sql.group", "pyspark.sql.connect.group")
_CHECK_MARK = "_tiltframe_checks"


def reject_measures_in_pyspark_agg() -> None:
    """Change the method ``agg`` of PySpark's classes: it raises ``TypeError`` if a measure is passed. The message names
    an alternative.
    """
    for name in _MODULES:
        # The modules are not imported here, because importing Spark Connect is slow and needs further packages.
        grouped_class = getattr(sys.modules.get(name), "GroupedData", None)
        if grouped_class is not None and not hasattr(grouped_class.agg, _CHECK_MARK):
            grouped_class.agg = _with_check(grouped_class.agg)


def _with_check(agg: Any) -> Any:
    @functools.wraps(agg)
    def agg_of_columns(self: Any, *columns: Any) -> Any:
        for column in columns:
            if isinstance(column, Measure):
                raise TypeError(
                    f"agg needs Columns, and {column} is a measure; use su.group_by(df, …).agg(…), which takes "
                    f"measures, or spark_udaf.functions, such as A.{column}"
                )
        return agg(self, *columns)

    setattr(agg_of_columns, _CHECK_MARK, True)
    return agg_of_columns
