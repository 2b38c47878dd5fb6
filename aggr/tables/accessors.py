"""Accessors: functions that return one value per state, for states of every function that provides the accessor.

    quantile   rank   mean   stdev   count   min   max   bounds

A function can declare further accessors (`aggr.extend.accessor`), which `read_accessor` calls by name. Accessors do not
change states, so that other results can be computed from the same states later.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache, wraps
from numbers import Real
from typing import Any

import pyarrow as pa

from aggr.accessor import accessor_methods, call_declared_accessor
from aggr.arguments import nearest, shown
from aggr.arrow import compute as pc
from aggr.arrow.normalize import with_nulls
from aggr.distinct.least_hashes import BOUNDS_TYPE, Sketches
from aggr.function import Function
from aggr.functions.approx_count_distinct import HashesState
from aggr.functions.count import Count
from aggr.functions.moments import Avg, Stdev
from aggr.histograms.bucket_state import BucketState
from aggr.quantile_parameters import check_quantiles
from aggr.registry import get, names
from aggr.state_checks import checked
from aggr.tables.identify import function_of

Accessor = Callable[..., pa.Array]


def read_accessor(states: pa.Array, accessor: str, *arguments: Any) -> pa.Array:
    """Call an accessor by name, for example one that a user-defined function declares.

    Parameters
    ----------
    states : column of states, shape (n,)
    accessor : str
        The name of a built-in accessor, such as ``"quantile"``, or of a method of the function with the decorator
        `aggr.extend.accessor`.
    *arguments
        The argument of the accessor, if it takes one.

    Returns
    -------
    array, shape (n,)
        One value per state, null if the state is null.

    Raises
    ------
    TypeError
        If the function of the states does not have this accessor, or the accessor takes other arguments.

    Examples
    --------
    >>> from aggr import Dds, Groups
    >>> read_accessor(Dds().reduce(pa.array([1.0, 2.0]), Groups.single(2)), "count").to_pylist()
    [2]
    """
    function = function_of(states)
    declared = accessor_methods(type(function))
    if accessor in declared:
        return call_declared_accessor(function, declared[accessor], states, arguments)
    if accessor not in accessors_of(type(function)):
        raise _missing_accessor_error(accessor, function)
    return ACCESSORS[accessor](states, *arguments)


def _replaceable(accessor: Accessor) -> Accessor:
    """Wrap an accessor so that a function can replace it.

    If the function of the states declares an accessor of the same name, the wrapped accessor calls the method that the
    function declares. Otherwise, it calls ``accessor``.
    """
    name = accessor.__name__

    @wraps(accessor)
    def read(states: pa.Array, *arguments: Any, **named: Any) -> pa.Array:
        function = function_of(states)
        method = accessor_methods(type(function)).get(name)
        if method is None:
            return accessor(states, *arguments, **named)
        return call_declared_accessor(function, method, states, (*arguments, *named.values()))

    return read


@_replaceable
def quantile(states: pa.Array, q: float) -> pa.Array:
    """Return one quantile of each state of dds, hdr or another sketch as float64, null if a state is null or empty.

    Raises ``TypeError`` for states of a function that has no quantiles, and ``ValueError`` for a q outside [0, 1].

    >>> from aggr import Dds, Groups
    >>> quantile(Dds().reduce(pa.array([1.0, 2.0, 4.0]), Groups.single(3)), 1.0).to_pylist()
    [4.0]
    """
    quantiles = check_quantiles([q])
    function = function_of(states)
    if not isinstance(function.own_state, BucketState):
        raise _missing_accessor_error("quantile", function)
    results = replace(function, **{"quantiles": quantiles}).finish(states)
    return pc.struct_field(results, ["quantiles", 0]).cast(pa.float64(), safe=False)


@_replaceable
def rank(states: pa.Array, value: float) -> pa.Array:
    """Return the share of values that are at most ``value``, in [0, 1]: the cumulative distribution.

    A sketch returns the exact share of the values up to a limit that is close to ``value``. The relative difference
    between this limit and ``value`` is at most the relative accuracy for dds, and less than ``10**-digits`` for hdr.
    NaN is never counted.
    """
    value = checked_rank_value(value)
    function = function_of(states)
    state = function.own_state
    if not isinstance(state, BucketState):
        raise _missing_accessor_error("rank", function)
    column = checked(function, states).states
    return with_nulls(state.share_up_to(column.drop_null(), value), column.is_valid())


def checked_rank_value(value: float) -> float:
    """Return the argument of `rank` as a float. Raise ``ValueError`` unless it is a number and not NaN."""
    if isinstance(value, bool) or not isinstance(value, Real) or math.isnan(value):
        raise ValueError(f"rank needs a number; got {shown(value)}")
    return float(value)


@_replaceable
def mean(states: pa.Array) -> pa.Array:
    """Return the mean of each state as float64, null if there are no values."""
    function = function_of(states)
    if _is_read_by(Avg, function):
        if pa.types.is_timestamp(states.type.field("unit").type):
            raise TypeError(
                "mean returns numbers, but these are states of timestamps; use finish, which returns a timestamp"
            )
        return Avg().finish(states)
    return _field(states, function, "mean")


@_replaceable
def stdev(states: pa.Array, ddof: int = 1) -> pa.Array:
    """Return the standard deviation of each state, for a sample (ddof=1) or a population (ddof=0).

    The result is null if a state has at most ``ddof`` values. For hdr, the result is computed from the middles of the
    buckets.
    """
    reader = Stdev(ddof)  # `Stdev` raises an error for an invalid ddof
    function = function_of(states)
    if _is_read_by(Stdev, function):
        return reader.finish(states)
    population = _field(states, function, "stdev")
    counts = count(states)
    degrees_of_freedom = pc.if_else(pc.greater(counts, ddof), pc.subtract(counts, ddof), None)
    return pc.multiply(population, pc.sqrt(pc.divide(counts.cast(pa.float64()), degrees_of_freedom.cast(pa.float64()))))


@_replaceable
def count(states: pa.Array) -> pa.Array:
    """Return the number of values of each state as int64.

    Functions such as avg return NaN if a value is NaN, and their states count NaN as a value. States of sketches count
    NaN separately.
    """
    function = function_of(states)
    if _is_read_by(Count, function):
        return Count().finish(states)
    counts = _field(states, function, "count")
    return pc.if_else(pc.is_valid(states), pc.fill_null(counts, 0), None)


@_replaceable
def min(states: pa.Array) -> pa.Array:
    """Return the smallest value of each state as float64, null if there are no values."""
    return _field(states, function_of(states), "min").cast(pa.float64(), safe=False)


@_replaceable
def max(states: pa.Array) -> pa.Array:
    """Return the greatest value of each state as float64, null if there are no values.

    >>> from aggr import Dds, Groups
    >>> max(Dds().reduce(pa.array([1.5, 7.25]), Groups.single(2))).to_pylist()
    [7.25]
    """
    return _field(states, function_of(states), "max").cast(pa.float64(), safe=False)


@_replaceable
def bounds(states: pa.Array, sigmas: float = 2.0) -> pa.Array:
    """Return the estimate of each state of approx_count_distinct, with bounds of the true number of distinct
    values.

    Parameters
    ----------
    states : column of states, shape (n,)
    sigmas : float above 0
        The number of standard errors between the estimate and each bound. With 2, the bounds contain the true number of
        distinct values for 95 % of all sets of values.

    Returns
    -------
    array of struct, shape (n,)
        Each struct has the fields ``estimate``, ``lower``, ``upper``, ``theta`` and ``retained``. ``retained`` is the
        number of hashes in the state. ``theta`` is the sampling rate: the probability that the hash of a value is in
        the state. As long as the count is exact, ``theta`` is 1. The result is null for a null state.

    Raises
    ------
    TypeError
        If the column does not contain states, or if the function of the states does not provide `bounds`.
    ValueError
        If ``sigmas`` is not a number above 0.

    Examples
    --------
    >>> from aggr import ApproxCountDistinct, Groups
    >>> bounds(ApproxCountDistinct().reduce(pa.array(["a", "b", "a"]), Groups.single(3)))[0].as_py()
    {'estimate': 2.0, 'lower': 2.0, 'upper': 2.0, 'theta': 1.0, 'retained': 2}
    """
    sigmas = checked_sigmas(sigmas)
    function = function_of(states)
    if not isinstance(function.own_state, HashesState):
        raise _missing_accessor_error("bounds", function)
    column = checked(function, states).states
    return with_nulls(Sketches.from_arrow(column.drop_null().field("sketch")).bounds(sigmas), column.is_valid())


def checked_sigmas(sigmas: float) -> float:
    """Return the argument of `bounds` as a float. Raise ``ValueError`` unless it is a finite number above 0."""
    if isinstance(sigmas, bool) or not isinstance(sigmas, Real) or not 0 < sigmas < math.inf:
        raise ValueError(
            f"sigmas, the distance of the bounds in standard errors, must be finite and above 0; got {shown(sigmas)}"
        )
    return float(sigmas)


ACCESSORS: dict[str, Callable[..., pa.Array]] = {
    accessor.__name__: accessor for accessor in (quantile, rank, mean, stdev, count, min, max, bounds)
}


def parameters_of(accessor: str, function: type[Function]) -> dict[str, bool]:
    """Return the parameters of an accessor, other than the states.

    The result maps the name of each parameter to whether the parameter is optional.

    >>> parameters_of("quantile", get("dds")), parameters_of("bounds", get("approx_count_distinct"))
    ({'q': False}, {'sigmas': True})
    """
    method = accessor_methods(function).get(accessor)
    if method is not None:
        return {} if method.parameter is None else {method.parameter: method.is_optional}
    parameters = list(inspect.signature(ACCESSORS[accessor]).parameters.values())[1:]
    return {p.name: p.default is not p.empty for p in parameters}


def functions_with(accessor: str) -> list[str]:
    """Return the names of the registered functions whose states an accessor can read.

    Raises
    ------
    ValueError
        If there is no function with this accessor.
    """
    function_names = [name for name in names() if accessor in accessors_of(get(name))]
    if not function_names:
        all_accessors = sorted({word for name in names() for word in accessors_of(get(name))})
        raise ValueError(
            f"no registered function has the accessor {shown(accessor)}; {nearest(accessor, all_accessors)}"
        )
    return function_names


def result_type(accessor: str, function: type[Function] | None = None) -> pa.DataType:
    """Return the type of an accessor's results. If a function declares the accessor, pass the class of the function as
    ``function``.

    >>> result_type("count")
    DataType(int64)
    """
    method = accessor_methods(function).get(accessor) if function is not None else None
    if method is not None:
        return method.result_type
    return {"count": pa.int64(), "bounds": BOUNDS_TYPE}.get(accessor, pa.float64())


def accessors_of(function: type[Function]) -> list[str]:
    """Return the names of the accessors that can read the states of a function."""
    result_fields = _result_fields(function)
    instance = function()
    has_buckets = isinstance(instance.own_state, BucketState)
    is_available = {
        "quantile": has_buckets,
        "rank": has_buckets,
        "mean": _is_read_by(Avg, instance) or "mean" in result_fields,
        "stdev": _is_read_by(Stdev, instance) or {"stdev", "count"} <= result_fields,
        "count": _is_read_by(Count, instance) or "count" in result_fields,
        "min": "min" in result_fields,
        "max": "max" in result_fields,
        "bounds": isinstance(instance.own_state, HashesState),
    }
    declared = accessor_methods(function)
    return [*(name for name, is_readable in is_available.items() if is_readable and name not in declared), *declared]


@cache
def _result_fields(function: type[Function]) -> frozenset[str]:
    """Return the names of the fields in the results that a function computes from float64 values.

    The set is empty if the results are not records, or if the function does not accept float64.
    """
    try:
        result = function().result_type(function().state_type(pa.float64()))
    except (TypeError, AttributeError):
        return frozenset()
    return frozenset(f.name for f in result) if pa.types.is_struct(result) else frozenset()


def _is_read_by(reader: type[Count | Avg | Stdev], function: Function) -> bool:
    """Return whether ``reader`` can compute its results from the states of ``function``."""
    reading_function = reader()
    state = function.own_state
    return state == reading_function.own_state or state in reading_function.reads


def _field(states: pa.Array, function: Function, name: str) -> pa.Array:
    if name not in _result_fields(type(function)):
        raise _missing_accessor_error(name, function)
    return pc.struct_field(function.finish(states), name)


def _missing_accessor_error(what: str, function: Function) -> TypeError:
    accessor_names = ", ".join(accessors_of(type(function))) or "only their result, which finish returns"
    return TypeError(f"states of {function.name} have no {what}; they have {accessor_names}")
