"""Cells of tables on the command line and in notebooks: numbers as text, and lists of records as small tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from aggr.arrow.normalize import one_array
from aggr.python_objects import python_objects
from aggr.tables.flat_results import flattened
from tiltframe.text.html_table import html_table

_ENTRIES_SHOWN = 10  # the maximum number of records that a small table shows


def cell_text(value: object) -> str:
    """Return the text of a value. Numbers have separators of thousands. Floating-point numbers have two decimal places,
    or three significant digits if they are very large or very small. None becomes a dot.

    >>> [cell_text(value) for value in (1234567, 1234.5678, 0.00012345, None, True)]
    ['1,234,567', '1,234.57', '0.000123', '·', 'True']
    """
    if value is None:
        return "·"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.2f}" if abs(value) < 1e15 and (abs(value) >= 0.01 or value == 0) else f"{value:.3g}"
    return str(value)


@dataclass(frozen=True)
class SmallTable:
    """A list of records as a table in a cell: the names of its columns, its first rows, and the number of all records.

    >>> print(SmallTable(["host", "n"], [["a", 1200], ["b", 7]], 3))
    host      n
    a     1,200
    b         7
    and 1 more
    """

    names: Sequence[str]
    rows: Sequence[Sequence[object]]
    row_count: int

    def __str__(self) -> str:
        texts = [list(self.names), *([cell_text(value) for value in row] for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
        is_left = [any(isinstance(value, str) for value in column) for column in zip(*self.rows, strict=True)]
        lines = []
        shown_rows = texts if self.rows else []
        for row in shown_rows:
            cells = zip(row, widths, is_left, strict=True)
            lines.append("  ".join(f"{text:{'<' if left else '>'}{width}}" for text, width, left in cells).rstrip())
        return "\n".join([*lines, *self._more()])

    def _repr_html_(self) -> str:
        return html_table(self.names, self.rows, text=cell_text) + "".join(f"<p>{text}</p>" for text in self._more())

    def _more(self) -> list[str]:
        omitted_count = self.row_count - len(self.rows)
        return [f"and {omitted_count:,} more"] if omitted_count else []


def cells_of(column: pa.ChunkedArray, convert: Callable[[Any], Any] = lambda value: value) -> list[Any]:
    """Return the cells of a column of results. A list of records becomes a `SmallTable`. Every other value is replaced
    by the result of ``convert``.

    >>> [str(cell) for cell in cells_of(pa.chunked_array([[[{"host": "a", "n": 1}], None]]))]
    ['host  n\\na     1', 'None']
    """
    if not (pa.types.is_list(column.type) and pa.types.is_struct(column.type.value_type)):
        return [convert(value) for value in python_objects(column)]
    lists = one_array(column)
    # `Table.from_struct_array` is not used, because pyarrow 14 does not have it
    batch = pa.RecordBatch.from_struct_array(lists.flatten())
    records = pa.Table.from_batches([batch])
    entries = flattened(records) if records.num_columns else records
    cells: list[SmallTable | None] = []
    begin = 0
    for length in lists.value_lengths().to_pylist():
        if length is None:
            cells.append(None)
            continue
        rows = entries.slice(begin, min(length, _ENTRIES_SHOWN))
        columns = [cells_of(part, convert) for part in rows.columns]
        cells.append(SmallTable(rows.column_names, list(zip(*columns, strict=True)), length))
        begin += length
    return cells
