"""Features of the installed PySpark.

A feature is detected by testing for it, not by the version number, because distributions backport features. The version
number is only used in messages, and to decide whether PySpark is supported at all. The docstring of a function that
detects a feature has the first version with this feature in parentheses, such as (4.0).
"""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from typing import NoReturn

import pyspark

OLDEST = (3, 5)


def is_supported(version: str) -> bool:
    """Return whether a version of PySpark, such as ``"3.5.9"``, can be used at all."""
    major, minor = version.split(".")[:2]
    return (int(major), int(minor)) >= OLDEST


# This module is imported before the other modules of the package. With older versions of PySpark, their imports would
# fail with an error that does not name the version.
if not is_supported(pyspark.__version__):
    raise ImportError(f"spark_udaf needs PySpark 3.5 or newer; this is {pyspark.__version__}: upgrade pyspark")


@cache
def has_arrow_udf() -> bool:
    """Return whether PySpark has ``arrow_udf``, whose functions may also aggregate and return structs (4.1)."""
    from pyspark.sql.pandas import functions

    return hasattr(functions, "arrow_udf")


@cache
def has_iterating_aggregate() -> bool:
    """Return whether ``arrow_udf`` can aggregate a group from an iterator over its rows (4.2)."""
    from pyspark import util

    eval_types = getattr(util, "PythonEvalType", None)  # In Spark 3.5, the class is in another module.
    return hasattr(eval_types, "SQL_GROUPED_AGG_ARROW_ITER_UDF")


@cache
def has_session_sources() -> bool:
    """Return whether a data source can be added to a session without a search for all data sources (4.2).

    This cannot be tested directly, so the function tests for iterating aggregates, which appeared in the same release.
    """
    return has_iterating_aggregate()


@cache
def has_data_source() -> bool:
    """Return whether PySpark has data sources that are written in Python (4.0)."""
    return importlib.util.find_spec("pyspark.sql.datasource") is not None


@cache
def has_collations() -> bool:
    """Return whether strings may have collations (4.0)."""
    from pyspark.sql import functions

    return hasattr(functions, "collation")


@cache
def has_row_state() -> bool:
    """Return whether ``groupBy(…).transformWithState`` calls a processor with rows (4.1)."""
    from pyspark.sql import GroupedData

    return hasattr(GroupedData, "transformWithState")


@cache
def has_pandas_state() -> bool:
    """Return whether ``groupBy(…).transformWithStateInPandas`` calls a processor with pandas DataFrames (4.0)."""
    from pyspark.sql import GroupedData

    return hasattr(GroupedData, "transformWithStateInPandas")


def has_state() -> bool:
    """Return whether a stream can keep its state in Python, with rows or with pandas DataFrames (4.0)."""
    return has_row_state() or has_pandas_state()


@cache
def has_connect_server() -> bool:
    """Return whether the package from PyPI contains the server of Spark Connect (4.0)."""
    return any(Path(pyspark.__file__).with_name("jars").glob("spark-connect_*.jar"))


@cache
def has_to_arrow() -> bool:
    """Return whether ``DataFrame.toArrow`` exists (4.0)."""
    from pyspark.sql import DataFrame

    return hasattr(DataFrame, "toArrow")


def refuse(feature: str, since: str, alternative: str) -> NoReturn:
    """Raise ``ValueError`` for a feature that the installed PySpark lacks.

    The message names the feature, the first version of PySpark that has it, the installed version and an alternative.

    Parameters
    ----------
    feature : str
        The subject of the message, such as ``"su.stream"``.
    since : str
        The first version of PySpark that has the feature, such as ``"4.0"``.
    alternative : str
        An instruction that works with the installed version, such as ``"use su.rollup"``.
    """
    raise ValueError(refusal(feature, since, alternative))


def refusal(feature: str, since: str, alternative: str) -> str:
    """Return the message of the error that `refuse` raises."""
    return f"{feature} needs PySpark {since} or newer, and this is {pyspark.__version__}; {alternative}"
