"""Accessors and set operations: functions that compute a Column from columns of states, without a shuffle. The SQL
functions for states use the same operations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.types import DataType

from aggr import ApproxCountDistinct
from aggr.distinct.least_hashes import BOUNDS_TYPE
from aggr.functions.moments import Stdev
from aggr.quantile_parameters import check_quantiles
from aggr.registry import get
from aggr.tables import accessors, set_operations
from spark_udaf.udaf.aggregate_function import error_label
from spark_udaf.udaf.state_columns import read_states
from spark_udaf.versions.arrow_types import from_arrow_type

SET_OPERATIONS: dict[str, Callable[[pa.Array, pa.Array], pa.Array]] = {
    name: getattr(set_operations, name) for name in ("union", "intersection", "difference", "jaccard")
}
_DISTINCT_STATE_TYPE = ApproxCountDistinct().state_type(pa.int64())


def quantile(states: Column | str, q: float) -> Column:
    """Return one quantile of each state, without a shuffle.

    Parameters
    ----------
    states : Column or str
        States of dds, hdr or another sketch.
    q : float in [0, 1]

    Returns
    -------
    Column of double
        Null if a state is null or empty.

    Raises
    ------
    ValueError
        If q is outside [0, 1]. States of a function without quantiles fail the job with an error that names the
        function.

    Examples
    --------
    The documentation has a tested example::

        states.select(su.states.quantile("latency_ms", 0.99))
    """
    (checked_q,) = check_quantiles([q])
    return _read("double", states, accessors.quantile, checked_q)


def rank(states: Column | str, value: float) -> Column:
    """Return the share of values that are at most ``value``: the cumulative distribution function at ``value``.

    Parameters
    ----------
    states : Column or str
        States of dds or hdr.
    value : float
        Any number except NaN.

    Returns
    -------
    Column of double
        From 0 to 1; null if a state is null or empty. NaN is not counted. For dds, the result is the exact rank of a
        number whose relative distance from ``value`` is at most the relative accuracy. For hdr, ``value`` is rounded to
        the significant digits of the histogram.

    Raises
    ------
    ValueError
        If ``value`` is not a number. States of a function without ranks fail the job with an error that names the
        function.
    """
    return _read("double", states, accessors.rank, accessors.checked_rank_value(value))


def mean(states: Column | str) -> Column:
    """Return the mean of each state.

    Parameters
    ----------
    states : Column or str
        States of avg, var, stdev, dds or hdr.

    Returns
    -------
    Column of double
        Null if there are no values. States of a function without a mean fail the job with an error that names the
        function.
    """
    return _read("double", states, accessors.mean)


def stdev(states: Column | str, ddof: int = 1) -> Column:
    """Return the standard deviation of each state.

    Parameters
    ----------
    states : Column or str
        States of var, stdev or hdr.
    ddof : int
        The number that is subtracted from the count in the divisor: 1 for a sample, 0 for a population.

    Returns
    -------
    Column of double
        Null if the count is not above ``ddof``.

    Raises
    ------
    ValueError
        If ``ddof`` is not an integer of at least 0. States of a function without a standard deviation fail the job
        with an error that names the function.
    """
    return _read("double", states, accessors.stdev, Stdev(ddof).ddof)


def count(states: Column | str) -> Column:
    """Return the number of values of each state.

    Parameters
    ----------
    states : Column or str
        States of a function that counts.

    Returns
    -------
    Column of bigint
        Null if a state is null. For a function whose result becomes NaN if a value is NaN, such as avg, NaN values are
        counted as well. States of a function without a count fail the job with an error that names the function.
    """
    return _read("bigint", states, accessors.count)


def min(states: Column | str) -> Column:
    """Return the minimum of each state.

    Parameters
    ----------
    states : Column or str
        States of dds or hdr.

    Returns
    -------
    Column of double
        Null if there are no values. States of a function without a minimum fail the job with an error that names the
        function.
    """
    return _read("double", states, accessors.min)


def max(states: Column | str) -> Column:
    """Return the maximum of each state.

    Parameters
    ----------
    states : Column or str
        States of dds or hdr.

    Returns
    -------
    Column of double
        Null if there are no values. States of a function without a maximum fail the job with an error that names the
        function.
    """
    return _read("double", states, accessors.max)


def bounds(states: Column | str, sigmas: float = 2.0) -> Column:
    """Return the estimated number of distinct values of each state, and bounds of the true number.

    Parameters
    ----------
    states : Column or str
        States of approx_count_distinct.
    sigmas : float above 0
        The number of standard errors in each direction.

    Returns
    -------
    Column of struct
        As `aggr.tables.accessors.bounds` returns it; null if a state is null.

    Raises
    ------
    ValueError
        If ``sigmas`` is not a number above 0. States of a function without estimates fail the job with an error that
        names the function.
    """
    return _read(from_arrow_type(BOUNDS_TYPE), states, accessors.bounds, accessors.checked_sigmas(sigmas))


def read_accessor(states: Column | str, accessor: str, *arguments: Any, function: str | None = None) -> Column:
    """Return the value of an accessor for each state. An accessor is a method that reads one value from a state; a
    user-defined function may declare further accessors.

    Parameters
    ----------
    states : Column or str
    accessor : str
        The name of an accessor: a built-in one, such as ``"quantile"``, or one declared by `aggr.extend.accessor`.
    *arguments
        The argument of the accessor, if the accessor takes one. All states are read with the same argument.
    function : str, optional
        The name of the function whose states the column contains. It is required only if several functions have an
        accessor with this name, and the accessors return different types.

    Returns
    -------
    Column
        One value per state, of the type that the accessor declares. Null if a state is null.

    Raises
    ------
    ValueError
        If no registered function has the accessor, or if the type of the accessor depends on the function. States of a
        function without the accessor fail the job with an error that names the function.

    Examples
    --------
    The documentation has a tested example::

        states.select(su.states.read_accessor("spread", "covers", 5.0))
    """
    owners = accessors.functions_with(accessor)
    if function is not None and function not in owners:
        raise ValueError(
            f"states of {function} have no accessor {accessor}; pass another function, such as {', '.join(owners)}"
        )
    candidates = [function] if function else owners
    types = {accessors.result_type(accessor, get(name)): name for name in candidates}
    if len(types) > 1:
        choices = " or ".join(f"function={name!r}" for name in types.values())
        raise ValueError(
            f"the type of {accessor} depends on the function: {', '.join(map(str, types))}; pass {choices}"
        )
    (dtype,) = types

    def read(values: pa.Array) -> pa.Array:
        return accessors.read_accessor(values, accessor, *arguments)

    read.__name__ = accessor  # The name of the function becomes a part of the name of the result column.
    return read_states(read, from_arrow_type(dtype), states)


def _read(dtype: DataType | str, states: Column | str, accessor: Callable[..., pa.Array], *arguments: Any) -> Column:
    def read(values: pa.Array) -> pa.Array:
        return accessor(values, *arguments)

    read.__name__ = accessor.__name__  # The name of the function becomes a part of the name of the result column.
    return read_states(read, dtype, states)


def union(left: Column | str, right: Column | str) -> Column:
    """Return the union of two columns of states, row by row, as `aggr.tables.set_operations.union` does.

    Parameters
    ----------
    left, right : Column or str
        States of approx_count_distinct with the same ``k``.

    Returns
    -------
    Column of states
        Null if either is null. States of another function or with another k fail the job with an error that names the
        function.
    """
    return _operate("union", left, right)


def intersection(left: Column | str, right: Column | str) -> Column:
    """Return the intersection of two columns of states, row by row, as `aggr.tables.set_operations.intersection` does.

    Parameters
    ----------
    left, right : Column or str
        States of approx_count_distinct with the same ``k``.

    Returns
    -------
    Column of states
        Null if either is null. `bounds` returns bounds of the number of common values. The bounds are wider if the two
        sets have few values in common.
    """
    return _operate("intersection", left, right)


def difference(left: Column | str, right: Column | str) -> Column:
    """Return the difference of two columns of states, row by row, as `aggr.tables.set_operations.difference` does.

    Parameters
    ----------
    left, right : Column or str
        States of approx_count_distinct with the same ``k``.

    Returns
    -------
    Column of states
        Null if either is null.
    """
    return _operate("difference", left, right)


def jaccard(left: Column | str, right: Column | str) -> Column:
    """Return the Jaccard similarity of two columns of states, row by row, as `aggr.tables.set_operations.jaccard` does.

    Parameters
    ----------
    left, right : Column or str
        States of approx_count_distinct with the same ``k``.

    Returns
    -------
    Column of double
        The number of values in both sets divided by the number in their union; null if either state is null or both are
        empty.
    """
    return _operate("jaccard", left, right)


def set_operation(name: str) -> Callable[[pa.Array, pa.Array], pa.Array]:
    """Return the set operation with the name ``name`` as a function of two arrays of states. The messages of its errors
    contain the name.
    """

    def operation(left: pa.Array, right: pa.Array) -> pa.Array:
        with error_label(name):
            return SET_OPERATIONS[name](left, right)

    return operation


def set_operation_result_type(name: str) -> pa.DataType:
    """Return the Arrow type of the results of the set operation with the name ``name``."""
    return pa.float64() if name == "jaccard" else _DISTINCT_STATE_TYPE


def _operate(name: str, left: Column | str, right: Column | str) -> Column:
    return read_states(SET_OPERATIONS[name], from_arrow_type(set_operation_result_type(name)), left, right)
