"""A description of a function for SQL that does not depend on the version of PySpark.

`spark_udaf.versions.sql_udfs` converts the description to a function that the installed PySpark can register.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa


@dataclass(frozen=True)
class SqlFunction:
    """A function of Arrow arrays that can be registered for SQL.

    Parameters
    ----------
    name : str
        The name under which the function is registered. Error messages contain it.
    function : callable
        Takes arrays by position and by name, and returns an array, or a scalar if it aggregates.
    dtype : Arrow type
        The type of the result.
    is_aggregate : bool
        Whether the function is called once per group, with the columns of the group's rows.
    returns_states : bool
        Whether the result is a state.
    input_count : int
        The number of leading arguments that are values of rows. The further arguments are parameters.
    """

    name: str
    function: Callable[..., Any]
    dtype: pa.DataType
    is_aggregate: bool
    returns_states: bool = False
    input_count: int = 1
