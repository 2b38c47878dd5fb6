"""Output of results, as a table on the screen, or as CSV, JSON lines or Parquet, and display of the progress of a
command.
"""

from __future__ import annotations

import datetime as dt
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, TextIO

import click
import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from aggr.arguments import shown
from aggr.arrow import compute as pc
from aggr.arrow.normalize import is_number
from aggr.tables.flat_results import flattened, leaves
from tiltframe.files.formats import COMPRESSED, kind_of
from tiltframe.names import END, LEVEL, PARTIAL, START
from tiltframe.store import Report
from tiltframe.text.cells import cell_text, cells_of
from tiltframe.text.results import csv_cells, json_lines
from windows import read_window

_GAPS_SHOWN = 5
FORMATS = ("table", "csv", "json", "parquet")
_SPREADSHEETS = ("xlsx", "xls", "excel")


def format_of(out: Path | None) -> str:
    """Return the output format for the name of a file, by its ending. Return "table" for ``.txt``, for a name without
    an ending, and for None, which stands for the screen.

    Raise ``ValueError`` for other endings, such as those of spreadsheets, of compressed files and of formats that are
    only read.

    >>> format_of(Path("hours.csv")), format_of(Path("hours.txt")), format_of(None)
    ('csv', 'table', 'table')
    """
    if out is None:
        return "table"
    ending = out.suffix.lower()
    kind = kind_of(out)
    if ending.removeprefix(".") in _SPREADSHEETS:
        raise ValueError(
            f"cannot write {out}: spreadsheets are not supported; write CSV, which Excel can open: "
            f"--out {shown(str(out.with_suffix('.csv')))}"
        )
    if ending in COMPRESSED or kind not in (None, *FORMATS):
        raise ValueError(
            f"cannot write {out}: files whose names end in {ending} can only be read; write --out "
            f"{shown(str(out.with_suffix('.csv')))}, or choose the format by --format ({', '.join(FORMATS)})"
        )
    if kind is None and ending not in ("", ".txt"):
        raise ValueError(
            f"cannot write {out}: {shown(ending)} is not the ending of a format; use .csv, .json, .parquet or, for a "
            f"table, .txt; or choose the format by --format ({', '.join(FORMATS)})"
        )
    return kind or "table"


class FormatChoice(click.Choice[str]):
    """The type of the option for the output format. If a user passes a spreadsheet format, the error message advises
    to write CSV.
    """

    def __init__(self) -> None:
        """Accept all output formats."""
        super().__init__(FORMATS)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value in _SPREADSHEETS:
            self.fail(
                f"cannot write {value}: spreadsheets are not supported; use --format csv, which Excel can open",
                param,
                ctx,
            )
        return super().convert(value, param, ctx)


def write_results(slices: Iterable[pa.Table], form: str, has_several_levels: bool, out: BinaryIO) -> None:
    """Write tables of results to ``out``, one after the other, in the format ``form``.

    ``has_several_levels`` says whether the results have windows of several levels. If it is false, the column of levels
    is left out of all formats except JSON.

    In CSV, a record is written as plain columns, such as ``latency_p99``, and a list as JSON. JSON is written by
    `tiltframe.text.results.json_lines`.
    """
    with ExitStack() as opened:
        writer = None
        for results in slices:
            if form == "json":
                out.write(json_lines(results).encode())
                continue
            results = results if has_several_levels else results.drop_columns([LEVEL])
            results = csv_cells(flattened(results)) if form == "csv" else results
            writer = writer or opened.enter_context(_writer(out, form, results.schema))
            writer.write_table(results)


def _writer(out: BinaryIO, form: str, schema: pa.Schema) -> Any:
    if form == "csv":
        return pacsv.CSVWriter(out, schema, write_options=pacsv.WriteOptions(quoting_style="needed"))
    import pyarrow.parquet as pq  # imported here, because the import takes a quarter of a second

    return pq.ParquetWriter(out, schema)


def print_table(results: pa.Table, out: TextIO | None = None, title: str | None = None) -> None:
    """Print results as a readable table to ``out``, by default standard output. Windows are shown by their start,
    sketches by their quantiles and maximum, other records by their fields, and lists of records as small tables.
    """
    # rich is imported where it is used, because the import takes about 30 ms
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", header_style="bold", box=SIMPLE_HEAD)
    columns: list[list[str]] = []
    has_several_levels = len(pc.unique(results.column(LEVEL))) > 1
    for name, column in _screen_columns(results, has_several_levels):
        table.add_column(Text(name), justify="right" if is_number(column.type) else "left", no_wrap=True)
        columns.append(_start_texts(results) if name == START else [cell_text(v) for v in cells_of(column)])
    table.columns[int(has_several_levels)].header = Text(f"window\n{results.schema.field(START).type.tz}")
    for row in zip(*columns, strict=True):
        table.add_row(*(Text(cell) for cell in row))
    console = Console(file=out)
    if not console.is_terminal:
        console.width = 10_000  # The output is not a terminal, so lines may have any length.
    console.print(table)


def _screen_columns(results: pa.Table, has_several_levels: bool) -> Iterator[tuple[str, pa.ChunkedArray]]:
    """Yield the name and the values of each column of a table on the screen. A sketch becomes one column per quantile
    and a column of its maximum. Another record becomes one column per field.
    """
    for field in results.schema:
        column = results.column(field.name)
        if field.name in (END, PARTIAL) or (field.name == LEVEL and not has_several_levels):
            continue
        if not pa.types.is_struct(field.type):
            yield field.name, column
            continue
        if field.type.get_field_index("quantiles") < 0:
            for path, _, _ in leaves(field.name, field.type):
                yield "\n".join([field.name, ".".join(path)]), pc.struct_field(column, path)
            continue
        quantiles = field.type.field("quantiles").type
        for i in range(quantiles.num_fields):
            percentile = f"{float(quantiles.field(i).name) * 100:.10g}"
            yield (f"{field.name}\np{percentile}", pc.struct_field(column, ["quantiles", quantiles.field(i).name]))
        yield f"{field.name}\nmax", pc.struct_field(column, "max")


# unit of a level → the format of the starts of its windows
_START_FORMATS = dict.fromkeys("smhdw", "%Y-%m-%d %H:%M") | {"s": "%Y-%m-%d %H:%M:%S", "d": "%Y-%m-%d", "w": "%Y-%m-%d"}
_START_FORMATS |= dict.fromkeys(("us", "ms"), "%Y-%m-%d %H:%M:%S.%f") | {"mo": "%Y-%m", "q": "%Y-%m", "y": "%Y"}


def _start_texts(results: pa.Table) -> list[str]:
    """Return the starts of windows as texts, with the precision of their level. For example, a day is shown without
    hours. If the column ``partial`` is true for a window, ``…`` follows its start.
    """
    levels = results.column(LEVEL).to_pylist()
    starts = results.column(START).to_pylist()
    partial = results.column(PARTIAL).to_pylist() if PARTIAL in results.column_names else [False] * len(starts)
    rows = zip(starts, levels, partial, strict=True)
    return [
        _start_text(start, _START_FORMATS[_resolution(level)]) + (" …" if dots else "") for start, level, dots in rows
    ]


def _start_text(start: dt.datetime, form: str) -> str:
    """Return the start of a window as text in ``form``, the time format of its level. Hours and minutes that are not 0
    are added if the format would leave them out.

    For example, the start of a day is shown with its hour if the day does not begin at midnight in the time zone of the
    output.
    """
    text = start.strftime(form)
    if form.endswith("%f"):
        return text.removesuffix("000")
    is_whole = "%H" in form or dt.datetime.strptime(text, form) == start.replace(tzinfo=None)
    return text if is_whole else f"{start:%Y-%m-%d %H:%M}"


@lru_cache
def _resolution(level: str) -> str:
    return read_window(level).resolution


def print_report(report: Report) -> None:
    """Print the report of a store: a table of its levels, the gaps of the finest level that has gaps, expired ranges,
    and watermarks.
    """
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    frame = report.manifest.frame
    title = f"{report.manifest.name}: {frame!r}"
    table = Table(title=title, title_justify="left", header_style="bold", box=SIMPLE_HEAD)
    for name in ("level", "from", "to", "kept for", "windows", "gaps", "rows", "bytes", "parts", "waiting"):
        table.add_column(name, justify="left" if name in ("level", "from", "to", "kept for") else "right", no_wrap=True)
    for level in report.levels:
        numbers = (level.windows, len(level.gaps), level.rows, level.bytes, level.parts, level.waiting)
        span = (time_or_dot(level.first), time_or_dot(level.end))
        table.add_row(level.level, *span, level.retention or "ever", *(f"{number:,}" for number in numbers))
    console = Console()
    if not console.is_terminal:
        console.width = 10_000
    console.print(table)
    gaps = next((level for level in report.levels if level.gaps), None)
    if gaps:
        for low, high in gaps.gaps[:_GAPS_SHOWN]:
            console.print(f"{gaps.level}: no windows from {time_or_dot(low)} to {time_or_dot(high)}")
        if len(gaps.gaps) > _GAPS_SHOWN:
            console.print(f"{gaps.level}: and {len(gaps.gaps) - _GAPS_SHOWN:,} more gaps; --format json lists all")
    for level in report.levels:
        if level.expired is not None:
            console.print(f"{level.level}: expired before {time_or_dot(level.expired)}")
    for name, known_from in report.known_from.items():
        console.print(f"{name}: null in windows before {time_or_dot(known_from)}, which do not have this measure")
    for stream, closed_before in report.watermarks.items():
        console.print(f"stream {stream}: windows closed before {time_or_dot(closed_before)}")


def time_or_dot(micros: int | None) -> str:
    """Return a time, which is in microseconds UTC, as ISO 8601 text. Return a dot for None."""
    if micros is None:
        return "·"
    moment = np.datetime64(micros, "us")
    if micros % 1_000_000:
        return str(np.datetime_as_string(moment, unit="us")) + "Z"
    return str(np.datetime_as_string(moment, unit="s")) + "Z"


def on_same_terminal() -> bool:
    """Return whether standard output and standard error are the same terminal.

    Only in this case can rich print the output above the progress bar.
    """
    try:
        streams = (sys.stdout.fileno(), sys.stderr.fileno())
        return all(map(os.isatty, streams)) and len({os.fstat(stream).st_rdev for stream in streams}) == 1
    except (AttributeError, OSError):  # Standard output or standard error is closed, or is not a file.
        return False


@contextmanager
def progress_bar(label: str, total: int) -> Iterator[Callable[[int, int], None]]:
    """Show a count and a progress bar within the block. They are written to standard error. Nothing is shown if
    standard error is not a terminal.

    Yield a function that updates the display. It takes two numbers, whose meaning depends on ``total``:

    - If ``total`` is not 0, it is the value at which the bar is complete, such as the bytes of all files. The first
      number is the number of rows since the last call. The second is the progress since then, in the unit of ``total``.
    - If ``total`` is 0, the numbers are the number of completed items and the number of all items.
    """
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda more, further: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    done = 0
    with Progress(*columns, console=console, transient=True, redirect_stdout=on_same_terminal()) as bar:
        task = bar.add_task(label, total=total or None)

        def advance(more: int, further: int) -> None:
            nonlocal done
            done += more
            bar.update(task, description=f"{label} {done:,} rows", advance=further)

        def advance_to(at: int, end: int) -> None:
            bar.update(task, description=f"{label} {at:,} of {end:,}", completed=at, total=end)

        yield advance if total else advance_to
