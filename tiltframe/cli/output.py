"""Showing results: as a table to look at, or as CSV, JSON lines and Parquet."""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from decimal import Decimal
from functools import lru_cache
from typing import Any, BinaryIO, TextIO
from zoneinfo import ZoneInfo

import click
import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from aggr.kernels import compute as pc
from aggr.states.flat_results import flattened
from tiltframe.frame import END, LEVEL, START
from tiltframe.store.query.results import PARTIAL
from tiltframe.store.report import Report
from windows import read_window

_GAPS_SHOWN = 5
FORMATS = ("table", "csv", "json", "parquet")


class Form(click.Choice[str]):
    """One of the forms; who asks for a spreadsheet is told how to get one."""

    def __init__(self) -> None:
        """Offer all of them."""
        super().__init__(FORMATS)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Take a form by its name."""
        if value in ("xlsx", "xls", "excel"):
            self.fail("results are not written as spreadsheets; give --format csv, which Excel opens", param, ctx)
        return super().convert(value, param, ctx)


def write_results(slices: Iterable[pa.Table], form: str, several: bool, out: BinaryIO) -> None:
    """Write tables of results in a form, one after the other; their level only where there are several, and in JSON.

    - ``csv``: records as plain columns, ``latency_p99``; lists as JSON
    - ``json``: one object a line, times as ISO 8601 UTC, decimals as text, NaN and infinities as text
    - ``parquet``: as they are
    """
    with ExitStack() as opened:
        writer = None
        for results in slices:
            if form == "json":
                out.write(json_lines(results).encode())
                continue
            results = results if several else results.drop_columns([LEVEL])
            results = _cells(flattened(results)) if form == "csv" else results
            writer = writer or opened.enter_context(_writer(out, form, results.schema))
            writer.write_table(results)


def _writer(out: BinaryIO, form: str, schema: pa.Schema) -> Any:
    if form == "csv":
        return pacsv.CSVWriter(out, schema, write_options=pacsv.WriteOptions(quoting_style="needed"))
    import pyarrow.parquet as pq  # a quarter of a second, which other forms need not wait for

    return pq.ParquetWriter(out, schema)


def iso_moments(moments: pa.ChunkedArray) -> pa.ChunkedArray:
    """Write moments in microseconds as ISO 8601 UTC.

    >>> iso_moments(pa.chunked_array([pa.array([0, 500_000], pa.timestamp("us", "UTC"))])).to_pylist()
    ['1970-01-01T00:00:00Z', '1970-01-01T00:00:00.500000Z']
    """
    texts = pc.replace_substring(moments.cast(pa.timestamp("us")).cast(pa.string()), " ", "T")
    return pc.binary_join_element_wise(pc.replace_substring_regex(texts, r"\.0+$", ""), "Z", "")


def _cells(flat: pa.Table) -> pa.Table:
    """Write what is no cell of CSV as text: times of windows as ISO 8601, lists as JSON, bytes as hex digits."""
    for i, field in enumerate(flat.schema):
        if field.name in (START, END):
            texts = iso_moments(flat.column(i))
        elif pa.types.is_nested(field.type):
            texts = pa.array([None if v is None else _json(v) for v in flat.column(i).to_pylist()], pa.string())
        elif any(test(field.type) for test in (pa.types.is_binary, pa.types.is_fixed_size_binary)):
            texts = pa.array([_plain(v) for v in flat.column(i).to_pylist()], pa.string())
        else:
            continue
        flat = flat.set_column(i, field.name, texts)
    return flat


def _json(value: Any) -> str:
    return json.dumps(_plain(value), ensure_ascii=False, allow_nan=False)


def json_lines(table: pa.Table) -> str:
    """Write every column of a table as JSON lines: times as ISO 8601 UTC, NaN and infinities as text."""
    lines = (_json(row) for row in table.to_pylist())
    return "".join(line + "\n" for line in lines)


def print_table(results: pa.Table, timezone: str, out: TextIO | None = None, title: str | None = None) -> None:
    """Print results as a table to look at: windows by their local start, of sketches the quantiles and the maximum."""
    table = Table(title=title, title_justify="left", header_style="bold", box=SIMPLE_HEAD)
    columns: list[list[str]] = []
    several = len(pc.unique(results.column(LEVEL))) > 1
    for name, column in _columns_to_look_at(results, several):
        number = (
            pa.types.is_integer(column.type) or pa.types.is_floating(column.type) or pa.types.is_decimal(column.type)
        )
        table.add_column(Text(name), justify="right" if number else "left", no_wrap=True)
        columns.append(_starts(results, timezone) if name == START else [_cell(v) for v in column.to_pylist()])
    table.columns[int(several)].header = Text(f"window\n{timezone}")
    for row in zip(*columns, strict=True):
        table.add_row(*(Text(cell) for cell in row))
    console = Console(file=out)
    if not console.is_terminal:
        console.width = 10_000  # nobody's screen to fit in
    console.print(table)


def _columns_to_look_at(results: pa.Table, several: bool) -> Iterator[tuple[str, pa.ChunkedArray]]:
    for field in results.schema:
        column = results.column(field.name)
        if field.name in (END, PARTIAL) or (field.name == LEVEL and not several):
            continue
        if not pa.types.is_struct(field.type) or field.type.get_field_index("quantiles") < 0:
            yield field.name, column
            continue
        quantiles = field.type.field("quantiles").type
        for i in range(quantiles.num_fields):
            percentile = f"{float(quantiles.field(i).name) * 100:.10g}"
            yield (
                f"{field.name}\np{percentile}",
                pc.struct_field(column, ["quantiles", quantiles.field(i).name]),
            )
        yield f"{field.name}\nmax", pc.struct_field(column, "max")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(v) for name, v in value.items()}
    if isinstance(value, list):
        return [_plain(v) for v in value]
    if isinstance(value, dt.date):
        return _iso(value)
    if isinstance(value, float) and not math.isfinite(value):
        return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dt.timedelta):
        return _iso_length(value)
    return str(value) if isinstance(value, Decimal | dt.time) else value


def _iso_length(value: dt.timedelta) -> str:
    """Write a length of time in seconds, as ISO 8601 has it.

    >>> _iso_length(dt.timedelta(minutes=1, milliseconds=500)), _iso_length(dt.timedelta(seconds=-2))
    ('PT60.5S', '-PT2S')
    """
    seconds = Decimal(abs(value) // dt.timedelta(microseconds=1)).scaleb(-6)
    return f"{'-' * (value < dt.timedelta())}PT{f'{seconds:f}'.rstrip('0').rstrip('.') or '0'}S"


def _iso(value: dt.date | None) -> str | None:
    if value is None:
        return None
    if not isinstance(value, dt.datetime) or value.tzinfo is None:
        return value.isoformat()
    return value.astimezone(dt.UTC).replace(tzinfo=None).isoformat() + "Z"


_STARTS = dict.fromkeys("smhdw", "%Y-%m-%d %H:%M") | {"s": "%Y-%m-%d %H:%M:%S", "d": "%Y-%m-%d", "w": "%Y-%m-%d"}
_STARTS |= {"mo": "%Y-%m", "q": "%Y-%m", "y": "%Y"}


def _starts(results: pa.Table, timezone: str) -> list[str]:
    """Write the starts of windows in a zone, as finely as their level needs; partial ones with dots."""
    zone, levels = ZoneInfo(timezone), results.column(LEVEL).to_pylist()
    starts = results.column(START).to_pylist()
    partial = results.column(PARTIAL).to_pylist() if PARTIAL in results.column_names else [False] * len(starts)
    rows = zip(starts, levels, partial, strict=True)
    return [_start(start.astimezone(zone), _STARTS[_unit(level)]) + " …" * dots for start, level, dots in rows]


def _start(start: dt.datetime, form: str) -> str:
    """Write a start as finely as its level needs, and as it needs itself: days of another zone begin within days."""
    text = start.strftime(form)
    return (
        text
        if "%H" in form or dt.datetime.strptime(text, form) == start.replace(tzinfo=None)
        else f"{start:%Y-%m-%d %H:%M}"
    )


@lru_cache
def _unit(level: str) -> str:
    """Name the unit in which windows of a level begin."""
    return read_window(level).resolution


def _cell(value: Any) -> str:
    if value is None:
        return "·"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.2f}" if abs(value) < 1e15 and (abs(value) >= 0.01 or value == 0) else f"{value:.3g}"
    return str(value)


def print_report(report: Report) -> None:
    """Print what a store holds, level by level, and the gaps of the finest level that has any."""
    frame = report.manifest.frame
    title = f"{report.manifest.name}: {frame!r}"
    table = Table(title=title, title_justify="left", header_style="bold", box=SIMPLE_HEAD)
    for name in ("level", "from", "to", "kept for", "windows", "gaps", "rows", "bytes", "parts", "waiting"):
        table.add_column(name, justify="left" if name in ("level", "from", "to", "kept for") else "right", no_wrap=True)
    for level in report.levels:
        numbers = (level.windows, len(level.gaps), level.rows, level.bytes, level.parts, level.waiting)
        span = (as_moment(level.first), as_moment(level.end))
        table.add_row(level.level, *span, level.retention or "ever", *(f"{number:,}" for number in numbers))
    console = Console()
    if not console.is_terminal:
        console.width = 10_000
    console.print(table)
    gaps = next((level for level in report.levels if level.gaps), None)
    for low, high in gaps.gaps[:_GAPS_SHOWN] if gaps else ():
        console.print(f"{gaps.level if gaps else ''}: no windows from {as_moment(low)} to {as_moment(high)}")
    if gaps and len(gaps.gaps) > _GAPS_SHOWN:
        console.print(f"{gaps.level}: and {len(gaps.gaps) - _GAPS_SHOWN:,} more gaps; --format json lists all")
    for level in report.levels:
        if level.expired is not None:
            console.print(f"{level.level}: expired before {as_moment(level.expired)}")


def as_moment(micros: int | None) -> str:
    """Write a time in microseconds UTC as ISO 8601."""
    return "·" if micros is None else str(np.datetime_as_string(np.datetime64(micros, "us"), unit="s")) + "Z"
