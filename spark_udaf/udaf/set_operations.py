"""Set operations: of two columns of states of approx_count_distinct, as Columns, and for SQL."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.pandas.types import from_arrow_type

from aggr import ApproxCountDistinct
from aggr.tables import set_operations
from spark_udaf.udaf.aggregate_function import error_label
from spark_udaf.udaf.typed_udf import Udf, arrow_udf, column

OPERATIONS = {
    "union": set_operations.union,
    "intersection": set_operations.intersection,
    "difference": set_operations.difference,
    "jaccard": set_operations.jaccard,
}
_STATES = from_arrow_type(ApproxCountDistinct().state_type(pa.int64()))


def union(left: Column | str, right: Column | str) -> Column:
    """Unite the values of two columns of states, row by row, as `aggr.tables.set_operations.union` does.

    Parameters
    ----------
    left, right : Column or str
        States of approx_count_distinct, of one k.

    Returns
    -------
    Column of states
        Null where either is null. Other states, and those of another k, fail the job, by name.
    """
    return _operate("union", left, right)


def intersection(left: Column | str, right: Column | str) -> Column:
    """Keep the values that both columns of states have, as `aggr.tables.set_operations.intersection` does.

    Parameters
    ----------
    left, right : Column or str
        States of approx_count_distinct, of one k.

    Returns
    -------
    Column of states
        Null where either is null. `bounds` tells the error, which grows as less is in common.
    """
    return _operate("intersection", left, right)


def difference(left: Column | str, right: Column | str) -> Column:
    """Keep the values of one column of states that another has not, as `aggr.tables.set_operations.difference` does.

    Parameters
    ----------
    left, right : Column or str
        States of approx_count_distinct, of one k.

    Returns
    -------
    Column of states
        Null where either is null.
    """
    return _operate("difference", left, right)


def jaccard(left: Column | str, right: Column | str) -> Column:
    """Read how much two columns of states have in common, as `aggr.tables.set_operations.jaccard` does.

    Parameters
    ----------
    left, right : Column or str
        States of approx_count_distinct, of one k.

    Returns
    -------
    Column of double
        The share of their union that is in both; null where either is null, or both are empty.
    """
    return _operate("jaccard", left, right)


def set_operation(name: str) -> Udf:
    """Make the function of two columns that Spark registers for SQL."""

    def operation(left: pa.Array, right: pa.Array) -> pa.Array:
        with error_label(name):
            return OPERATIONS[name](left, right)

    operation.__name__ = name  # what Spark names the column after
    return arrow_udf(operation, "double" if name == "jaccard" else _STATES)


def _operate(name: str, left: Column | str, right: Column | str) -> Column:
    result: Column = set_operation(name)(column(left), column(right))
    return result
