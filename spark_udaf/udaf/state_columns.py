"""state_columns: functions of columns of states. For any other column, Spark raises an error when it analyzes a query.

Spark passes a column of any type to a function in Python, which would raise an error only in a task. The argument is
therefore put into an expression that selects the field with which every state begins. Spark can analyze this expression
only if the argument is a struct with this field. The optimizer removes the expression, because its value has no effect.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from aggr.state_checks import FUNCTION
from spark_udaf.udaf.aggregate_function import column, error_label
from spark_udaf.udaf.job_errors import explain_errors, explain_task_errors
from spark_udaf.versions.column_functions import scalar_function
from spark_udaf.versions.column_text import text_of

_CALL_PREFIX = "su.states."
_OTHER_COLUMN = re.compile(
    rf'"CASE WHEN \({re.escape(_CALL_PREFIX)}(\w+) IS NOT NULL\) THEN (.*?) END(?:\[{FUNCTION}\])?"'
)
_OTHER_STRUCT = re.compile(rf"No such struct field `{FUNCTION}` in (.*?)\. ")
_USE = "states come from su.aggregate and su.rollup; to aggregate values, use spark_udaf.functions, such as A.dds('x')"


def read_states(function: Callable[..., pa.Array], dtype: DataType | str, *columns: Column | str) -> Column:
    """Return a Column that ``function`` computes from columns of states. The name of the Column is the text of the
    call, such as ``mean(latency)``.

    Parameters
    ----------
    function : arrays of states, one per column -> array of the same length
    dtype : Spark type or its name
        The type of the result.
    *columns : Column or str
        Columns of states. If one of them does not contain states, the query fails when Spark analyzes it.
    """
    name = function.__name__

    def call_with_label(*states: pa.Array) -> pa.Array:
        with error_label(name):
            return function(*states)

    call_with_label.__name__ = name
    explain_task_errors()
    explain_errors(_explain_other_column)
    states = list(map(column, columns))
    result = scalar_function(call_with_label, dtype)(*(_requiring_states(argument, name) for argument in states))
    # Names of results have no backticks, as in Spark.
    names = ", ".join(map(text_of, states)).replace("`", "")
    return result.alias(f"{name}({names})")


def _requiring_states(states: Column, name: str) -> Column:
    """Return a Column with the same values as ``states``. If the values are not states, Spark cannot analyze the
    expression of this Column, and raises an error.
    """
    first_field = F.when(F.lit(f"{_CALL_PREFIX}{name}").isNotNull(), states)[FUNCTION]
    return F.when(first_field.isNotNull() | F.lit(True), states)


def _explain_other_column(text: str) -> str | None:
    """Return the explanation that is put before Spark's error ``text`` if a column does not contain states, and None
    for other errors.
    """
    values = _OTHER_COLUMN.search(text)
    struct = _OTHER_STRUCT.search(text)
    if values is not None:
        return f"{_CALL_PREFIX}{values[1]}: the column {values[2]} does not contain states; {_USE}"
    if struct is not None:
        return f"su.states: a struct with the fields {struct[1]} is not a state; {_USE}"
    return None
