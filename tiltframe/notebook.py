"""Notebooks: show tables of results and states as HTML, or convert them to pandas DataFrames."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from aggr.extras import MissingExtra
from aggr.tables.flat_results import flattened
from tiltframe.tabular import table_of
from tiltframe.text.cells import cell_text, cells_of
from tiltframe.text.html_table import html_table

_ROWS = 20  # the maximum number of rows that are shown


@dataclass(frozen=True)
class Shown:
    """A table that notebooks show as HTML. They show its first 20 rows, a column for each field of records, and the
    size of a state in place of the state.

    Numbers are written as in the tables of the command line. A click on the name of a column sorts the rows that are
    shown.

    >>> Shown(pa.table({"n": [1, 1234]}))._repr_html_().partition("<tbody>")[2]
    '<tr><td>1</td></tr><tr><td data-value="1234">1,234</td></tr></tbody></table>'
    """

    table: pa.Table

    def _repr_html_(self) -> str:
        head = _with_plain_columns(self.table.slice(0, _ROWS))
        rows = zip(*(cells_of(column, _with_iso_time) for column in head.columns), strict=True)
        left = self.table.num_rows - head.num_rows
        more = f"<p>and {left:,} more rows</p>" if left else ""
        return html_table(head.column_names, rows, text=cell_text, is_sortable=True) + more

    def to_pandas(self, flat: bool = True) -> Any:
        """Return the table as a pandas DataFrame. Raise `MissingExtra` if pandas is not installed."""
        return to_pandas(self.table, flat)


def show(table: Any) -> Shown:
    """Return a table of results or of states in a form that a notebook shows.

    Parameters
    ----------
    table : table, DataFrame, stream or dataset
        A table from `tiltframe.finish`, `tiltframe.rollup` or `tiltframe.FrameStore.query`.

    Returns
    -------
    Shown
        An object that a notebook shows as HTML.
    """
    return Shown(table_of(table, "table"))


def load_ipython_extension(shell: Any) -> None:
    """Show every table in a notebook, such as the results of a query, in the form of `show`.

    IPython calls this function for ``%load_ext tiltframe``.

    Parameters
    ----------
    shell : IPython's InteractiveShell
    """
    shell.display_formatter.formatters["text/html"].for_type(pa.Table, lambda table: Shown(table)._repr_html_())


def to_pandas(results: Any, flat: bool = True) -> Any:
    """Return results as a pandas DataFrame.

    Parameters
    ----------
    results : table
        A table from `tiltframe.finish` or `tiltframe.FrameStore.query`.
    flat : bool
        Whether the fields of records become plain columns, such as ``latency_p99``; otherwise records become dicts.

    Returns
    -------
    pandas DataFrame

    Raises
    ------
    MissingExtra
        If pandas is not installed; it is part of the extra spark.

    Examples
    --------
    >>> to_pandas(pa.table({"ms": [{"count": 2, "quantiles": {"0.5": 1.5}}]})).to_dict("list")
    {'ms_count': [2], 'ms_p50': [1.5]}
    """
    table = table_of(results, "results")
    try:
        return (flattened(table) if flat else table).to_pandas()
    except ModuleNotFoundError as error:
        raise MissingExtra("a pandas DataFrame", "spark", error) from None


def _with_plain_columns(table: pa.Table) -> pa.Table:
    """Return a table with a column for each field of records. A column of states is replaced by a text with the mean
    size of its states in bytes. States are recognized by their field ``version``.
    """
    columns = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pa.types.is_struct(column.type) and column.type.get_field_index("version") >= 0:
            text = f"state, some {column.nbytes // max(len(column), 1):,} bytes"
            column = pa.chunked_array([pa.repeat(pa.scalar(text), len(column))])
        columns[name] = column
    return flattened(pa.table(columns))


def _with_iso_time(value: Any) -> Any:
    return value.isoformat() if hasattr(value, "isoformat") else value
