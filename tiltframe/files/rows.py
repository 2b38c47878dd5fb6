"""Rows of a file: compute or convert their event times, and apply the condition that selects rows."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from aggr import sql
from aggr.arguments import nearest, shown
from aggr.arrow import compute as pc
from aggr.arrow import versions
from aggr.arrow.normalize import filterable, is_number
from aggr.sql.inputs import columns_in, values_in
from aggr.sql.number_columns import text_column
from tiltframe.event_time import INSTANT, event_times
from tiltframe.files.read_options import ReadOptions
from tiltframe.files.time_format import has_offset, has_time_of_day, read_format, timestamps_with_fractions


def with_time_column(schema: pa.Schema, time: str, reading: ReadOptions) -> pa.Schema:
    """Return the schema of rows after their event times are computed. If ``reading`` has no expression for event times,
    return ``schema`` unchanged. Otherwise, a column of instants with the name ``time`` is added to ``schema``, or
    replaces the column with this name.
    """
    if reading.time is None:
        return schema
    computed = pa.field(time, INSTANT)
    at = schema.get_field_index(time)
    return schema.append(computed) if at < 0 else schema.set(at, computed)


def columns_to_prepare(
    columns: Sequence[str], schema: pa.Schema, schema_before_time: pa.Schema | None, time: str, reading: ReadOptions
) -> pa.Schema:
    """Return the schema of the columns that `prepare_rows` needs to compute ``columns``.

    ``schema_before_time`` is the schema of the rows before an expression computes their event times. The result of the
    expression is then added as a column, or replaces a column. Without such an expression, ``schema_before_time`` is
    None.
    """
    before = schema if schema_before_time is None else schema_before_time
    read = [text_column(name) for name in columns if name != time or reading.time is None]
    if reading.time is not None:
        read += columns_in(reading.time, before.names)
    columns_of_condition = () if reading.where is None else sql.columns_of(reading.where)
    for name in columns_of_condition:
        column = sql.column_in(name, schema.names)
        if column is None:
            raise ValueError(
                f"the data has no column {shown(name)}, which the option where uses; {nearest(name, schema.names)}"
            )
        read += [column] if column != time or reading.time is None else []
    return pa.schema([(before if name == time else schema).field(name) for name in dict.fromkeys(read)])


def prepare_rows(
    rows: pa.RecordBatch, columns: Sequence[str], time: str, reading: ReadOptions, timezone: str
) -> pa.RecordBatch:
    """Return the columns ``columns`` of the rows that meet the condition of ``reading``. If ``reading`` has an
    expression for the event times, they are computed first.
    """
    if reading.time is not None:
        times = convert_times(values_in(reading.time, rows, timezone), time, reading, timezone).cast(INSTANT)
        at = rows.schema.get_field_index(time)
        rows = versions.append_column(rows, time, times) if at < 0 else versions.set_column(rows, at, time, times)
    if reading.where is not None:
        chosen = sql.rows_where(reading.where, rows, timezone)
        rows = filterable(rows).filter(pa.array(chosen))
    return rows.select(list(columns))


def convert_times(column: pa.Array, time: str, reading: ReadOptions, timezone: str) -> pa.Array:
    """Convert a column of times to an array: integers in microseconds UTC, or timestamps in UTC.

    The column has numbers in the unit or texts in the time format that ``reading`` declares, or times that
    `tiltframe.event_time.event_times` accepts. Times without a zone are in the zone ``reading.clock``. A date is the
    first instant of its day in ``timezone``, the zone of the windows.

    Raise ``ValueError`` if a value is not a time.
    """
    unit = reading.unit(time)
    kind = column.type
    if pa.types.is_integer(kind) and (reading.time_format is not None or reading.declared.get(time) == pa.string()):
        column = column.cast(pa.string())
        kind = pa.string()
    is_date = False
    if unit is not None and (is_number(kind) or pa.types.is_string(kind)):
        try:
            column = _since_1970(column, unit)
        except pa.ArrowException as error:
            raise ValueError(
                f"cannot read the time column {time!r} as numbers: {str(error).splitlines()[0]}; correct the value, or "
                f"leave out {reading.type_option_text(time, reading.types[time])}"
            ) from None
    elif reading.time_format is not None and pa.types.is_string(kind):
        read = read_format(column, reading.time_format)
        wrong = column.filter(pc.and_(pc.is_null(read), pc.is_valid(column)))
        if len(wrong):
            raise ValueError(
                f"cannot read the time column {time!r}: {shown(wrong[0].as_py())} does not have "
                f"the format {shown(reading.time_format)}; correct it, or declare another format"
            )
        if has_offset(reading.time_format):
            return read
        column = read.cast(pa.timestamp("us"))
        is_date = not has_time_of_day(reading.time_format)
    return pa.array(event_times(column, time, timezone, timezone if is_date else reading.clock))


def _since_1970(numbers: pa.Array, unit: str) -> pa.Array:
    try:
        return numbers.cast(pa.int64()).cast(pa.timestamp(unit, "UTC"))
    except pa.ArrowInvalid:  # At least one number has a fraction.
        return timestamps_with_fractions(numbers, unit)
