"""Costs in nanoseconds per row or state, and tables that compare them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from aggr.bench.report import OURS, Report


def reduce_only_library(library: str) -> str:
    """Return the library name used for costs that exclude the computation of results, such as ``ddsketch, reduce``.

    Such a cost is the time that the library needs to reduce rows to states or sketches.
    """
    return f"{library}, reduce"


OURS_REDUCE_ONLY = reduce_only_library(OURS)


@dataclass(frozen=True)
class Cost:
    """The cost of an operation of a library in a case, in nanoseconds per row or state. JSON files of figures contain
    the field names.
    """

    # The name of the operation.
    what: str
    # The name of the library.
    who: str
    case: str
    ns: float


def cost_of(costs: Sequence[Cost], operation: str, library: str, case: str) -> float | None:
    """Return the cost of an operation of a library in a case, in nanoseconds per row or state, or None if it was not
    measured.
    """
    return next((c.ns for c in costs if (c.what, c.who, c.case) == (operation, library, case)), None)


def function_name(call: str) -> str:
    """Return the name of the function in a call, such as ``dds`` for ``dds('x', quantiles=[0.5])``."""
    return call.partition("(")[0]


def operation_and_library(measure: str, source: str) -> tuple[str, str]:
    """Return the operation and the library of a figure in a report of `aggr.bench`. ``source`` is the field ``by`` of
    the figure: the name of the measured library, followed by the library's expression unless the library is tiltframe.

    >>> operation_and_library("avg('x')", "tiltframe"), operation_and_library("avg('x')", "duckdb:mean(x)")
    (('avg', 'tiltframe'), ('mean', 'duckdb'))
    """
    if source == OURS:
        return function_name(measure), OURS
    library, _, expression = source.partition(":")
    return function_name(expression), library


def costs_of(report: Report, stage: str, cases: Mapping[int, str]) -> list[Cost]:
    """Return the costs of one stage in a report of `aggr.bench`.

    Parameters
    ----------
    report : Report
    stage : str
        ``reduce``, ``merge``, ``finish`` or ``answers``.
    cases : mapping of int to str
        The name of the case for each number of groups.

    Returns
    -------
    list of Cost
        In nanoseconds per row or state.
    """
    return [
        Cost(*operation_and_library(timing.measure, timing.by), cases[timing.groups], timing.ns)
        for timing in report.timings
        if timing.stage == stage
    ]


def show_costs(title: str, costs: Sequence[Cost], base: Cost) -> None:
    """Print one line per operation and library. Each line has two columns per case: the cost, and the cost divided by
    the base cost. The base cost is the cost of the operation and the library that ``base`` names, in the same case.
    """
    cases = list(dict.fromkeys(cost.case for cost in costs))
    table = create_table(title, ["", "library", *(column for case in cases for column in (case, "×"))])
    for operation, library in dict.fromkeys((cost.what, cost.who) for cost in costs):
        cells = []
        for case in cases:
            ns = cost_of(costs, operation, library, case)
            base_ns = cost_of(costs, base.what, base.who, case)
            cells.append("" if ns is None else f"{ns:,.1f}")
            cells.append(f"{ns / base_ns:,.2f}" if ns is not None and base_ns else "")
        is_base = (operation, library) == (base.what, base.who)
        table.add_row(operation, library, *cells, style="bold" if is_base else "")
    print_table(table)


def show_grid(title: str, costs: Sequence[Cost], base_library: str) -> None:
    """Print one line per operation and one column per library. Each cost is followed by its ratio to the cost of the
    library ``base_library``.
    """
    libraries = list(dict.fromkeys(cost.who for cost in costs))
    table = create_table(title, ["", *libraries])
    for operation, case in dict.fromkeys((cost.what, cost.case) for cost in costs):
        base_ns = cost_of(costs, operation, base_library, case)
        cells = []
        for library in libraries:
            ns = cost_of(costs, operation, library, case)
            ratio = "" if library == base_library or ns is None or not base_ns else f"  {ns / base_ns:4.2f} ×"
            cells.append("" if ns is None else f"{ns:,.1f}{ratio}")
        table.add_row(operation, *cells)
    print_table(table)


def create_table(title: str, columns: Sequence[str]) -> Table:
    """Return an empty table with a title and columns. Columns of text, which are unnamed or named ``library``, are
    aligned left. All other columns contain numbers, and are aligned right.
    """
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, header_style="bold")
    for name in columns:
        table.add_column(name, justify="left" if name in ("", "library") else "right")
    return table


def print_table(table: Table) -> None:
    """Print a table. If the output is not a terminal, the table is 150 characters wide."""
    console = Console()
    (console if console.is_terminal else Console(width=150)).print(table)
