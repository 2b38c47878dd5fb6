"""Interchange: columns of HdrHistograms, DDSketch messages and Theta sketches, for services in other languages."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from aggr import ApproxCountDistinct, Dds, Function, Hdr
from aggr.contrib import Hll
from aggr.extend.tables import function_of
from aggr.interchange import ddsketch_proto, hdr_v2, hll_sketch, theta_sketch
from aggr.interchange.ddsketch_proto import Keys, check_keys
from spark_udaf.extend import column, from_arrow_type, scalar_function


def to_hdr_v2(states: Column | str) -> Column:
    """Return states of hdr as HdrHistogram V2 in base64, as `aggr.interchange.hdr_v2.to_hdr_v2` does.

    Parameters
    ----------
    states : Column or str
        States of hdr.

    Returns
    -------
    Column of string
        Null for a null state. States of another function fail the job with an error that names the function.
    """
    return _messages_of(states, Hdr, hdr_v2.to_hdr_v2, "string")


def from_hdr_v2(texts: Column | str, digits: int = 3, unit: float | None = None) -> Column:
    """Return states of hdr from HdrHistogram V2 texts, as `aggr.interchange.hdr_v2.from_hdr_v2` does.

    Parameters
    ----------
    texts : Column or str
        A column of string or binary.
    digits : int, 1 to 5
        Significant decimal digits of the histograms.
    unit : float, optional
        The conversion ratio of the histograms, which is the value that one unit represents. None means 1.

    Returns
    -------
    Column of states
        Null if the text is null. A damaged text, or a histogram with other digits or another ratio, fails the job with
        an error that names the problem.

    Raises
    ------
    ValueError
        If ``digits`` or ``unit`` is out of its range.
    """
    function = Hdr(digits=digits, unit=unit)

    def read(text_column: pa.Array) -> pa.Array:
        return hdr_v2.from_hdr_v2(text_column, function)

    return scalar_function(read, from_arrow_type(function.state_type(pa.int64())))(column(texts))


def to_dds_proto(states: Column | str, keys: Keys = "upper") -> Column:
    """Return states of dds as DDSketch messages, as `aggr.interchange.ddsketch_proto.to_dds_proto` does.

    The message has no fields for sum, min and max. Use separate columns for them: ``states.min``, ``states.max`` and
    the sum from `finish`.

    Parameters
    ----------
    states : Column or str
        States of dds.
    keys : "upper" or "lower"
        The numbering of buckets, which differs between the libraries of DDSketch: "upper" for readers in Python and
        JavaScript, "lower" for readers in Go, Java and Rust.

    Returns
    -------
    Column of binary
        Null for a null state. States of another function fail the job with an error that names the function.

    Raises
    ------
    ValueError
        If ``keys`` has another value.
    """
    check_keys(keys)
    return _messages_of(states, Dds, partial(ddsketch_proto.to_dds_proto, keys=keys))


def from_dds_proto(
    messages: Column | str,
    relative_accuracy: float = 0.01,
    max_bins: int | None = None,
    *,
    sums: Column | str | None = None,
    mins: Column | str | None = None,
    maxs: Column | str | None = None,
    keys: Keys = "upper",
) -> Column:
    """Return states of dds from DDSketch messages, as `aggr.interchange.ddsketch_proto.from_dds_proto` does.

    Parameters
    ----------
    messages : Column or str
        A column of binary.
    relative_accuracy : float in (0, 1)
        The relative accuracy of the messages.
    max_bins : int, optional
        As in `aggr.dds`.
    sums, mins, maxs : Column or str, optional
        The sum, the minimum and the maximum of the values of each sketch, for which the messages do not have fields.
        By default, they are computed from the buckets.
    keys : "upper" or "lower"
        As in `to_dds_proto`.

    Returns
    -------
    Column of states
        Null if the message is null. A damaged message, or a message with another accuracy, fails the job with an error
        that names the function.

    Raises
    ------
    ValueError
        If ``keys`` has another value, or the accuracy or ``max_bins`` is out of its range.
    """
    check_keys(keys)
    function = Dds(relative_accuracy=relative_accuracy, max_bins=max_bins)
    extra_columns = [F.lit(None).cast("double") if values is None else column(values) for values in (sums, mins, maxs)]

    def read(message_column: pa.Array, sums: pa.Array, mins: pa.Array, maxs: pa.Array) -> pa.Array:
        return ddsketch_proto.from_dds_proto(message_column, function, sums=sums, mins=mins, maxs=maxs, keys=keys)

    return scalar_function(read, from_arrow_type(function.state_type(pa.float64())))(column(messages), *extra_columns)


def to_theta_sketch(states: Column | str) -> Column:
    """Return states of approx_count_distinct as Theta sketches, which Spark's own ``theta_…`` functions read.

    Parameters
    ----------
    states : Column or str
        States of approx_count_distinct.

    Returns
    -------
    Column of binary
        As `aggr.interchange.theta_sketch.to_theta_sketch` writes them; null for a null state. States of another
        function fail the job with an error that names the function.
    """
    return _messages_of(states, ApproxCountDistinct, theta_sketch.to_theta_sketch)


def to_hll_sketch(states: Column | str) -> Column:
    """Return states of hll as HLL sketches, which Spark's own ``hll_…`` functions read.

    Parameters
    ----------
    states : Column or str
        States of hll.

    Returns
    -------
    Column of binary
        As `aggr.interchange.hll_sketch.to_hll_sketch` writes them; null for a null state. States of another function
        fail the job with an error that names the function.
    """
    return _messages_of(states, Hll, hll_sketch.to_hll_sketch)


def from_theta_sketch(sketches: Column | str, k: int = 4096) -> Column:
    """Return states of approx_count_distinct from Theta sketches, such as those of Spark's ``theta_sketch_agg``.

    Parameters
    ----------
    sketches : Column or str
        A column of binary.
    k : int
        The number of hashes in the states.

    Returns
    -------
    Column of states
        As `aggr.interchange.theta_sketch.from_theta_sketch` reads them; null if the sketch is null. A damaged sketch
        fails the job with an error that describes the damage.

    Raises
    ------
    ValueError
        If k is out of its range.
    """
    function = ApproxCountDistinct(k)

    def read(sketch_column: pa.Array) -> pa.Array:
        return theta_sketch.from_theta_sketch(sketch_column, function)

    return scalar_function(read, from_arrow_type(function.state_type(pa.int64())))(column(sketches))


def _messages_of(
    states: Column | str, kind: type[Function], encode: Callable[..., pa.Array], dtype: str = "binary"
) -> Column:
    """Return a Column with the values that the function ``encode`` returns for the states. States of another function
    than ``kind`` fail the job with an error that names the function.
    """

    def write(state_column: pa.Array) -> pa.Array:
        function = function_of(state_column)
        if not isinstance(function, kind):
            raise TypeError(f"these are states of {function.name}, not of {kind.name}; pass states of {kind.name}")
        return encode(state_column, function)

    return scalar_function(write, dtype)(column(states))
