"""Checks of the types of columns for the function hdr, which accepts only whole numbers if it has no parameter
``unit``. For a column of a type with fractions, such as double, an error is raised on the driver, before a task reads
the column.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from aggr import Function, Hdr
from aggr.functions.refused_values import SKIP
from aggr.tables.keys import Keys, schema_with_keys
from aggr.tables.state_plan import StateColumn
from spark_udaf.versions.arrow_types import from_arrow_type
from tiltframe import TiltFrame
from tiltframe.event_time import INSTANT
from tiltframe.ordered.query import POSITION, OrderedQuery


def check_no_fractions(function: Function, dtype: pa.DataType, label: str) -> None:
    """Raise ``TypeError`` if a function accepts only whole numbers, and the type of its column has fractions.

    This restriction applies only to hdr without a unit. With ``bad_values="skip"``, hdr skips fractions, and no error
    is raised.

    Parameters
    ----------
    function : Function
    dtype : pa.DataType
        The type of the column.
    label : str
        The measure or call, for the message.
    """
    if not isinstance(function, Hdr) or function.unit is not None or function.bad_values == SKIP:
        return
    if pa.types.is_floating(dtype) or (pa.types.is_decimal(dtype) and dtype.scale > 0):
        type_text = from_arrow_type(dtype).simpleString()
        raise TypeError(
            f"{label}: hdr counts whole numbers, and its column is {type_text}; pass unit, such as "
            "unit=0.001, or cast the column to bigint if its values are whole; pass bad_values='skip' to skip "
            "fractions"
        )


def check_no_fractions_in_query(query: TiltFrame | OrderedQuery, schema: pa.Schema) -> None:
    """Raise ``TypeError`` if a measure of a frame or of an ordered query accepts only whole numbers, and the type of
    its column in ``schema`` has fractions. See `check_no_fractions`.
    """
    if isinstance(query, OrderedQuery):
        check_no_fractions_in_columns(query.columns, query.keyed_by, schema, POSITION)
    else:
        check_no_fractions_in_columns(query.states, query.keyed_by, schema, INSTANT)


def check_no_fractions_in_columns(
    states: Sequence[StateColumn], keys: Keys, schema: pa.Schema, time: pa.DataType
) -> None:
    """Raise ``TypeError`` if a measure of ``states`` accepts only whole numbers, and the type of its column in
    ``schema`` has fractions. See `check_no_fractions`. ``keys`` are the keys by which rows are grouped, and ``time`` is
    the type of event times.
    """
    columns_and_keys = schema_with_keys(keys, schema) if keys else schema
    for column in states:
        if isinstance(column.measure.function, Hdr):
            dtype = column.measure.input_type(columns_and_keys, time)
            check_no_fractions(column.measure.function, dtype, ", ".join(column.serves))
