"""Costs in nanoseconds per row or state, and tables that compare them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from aggr.bench.report import OURS, Report


def reduce_label(library: str) -> str:
    """Return the name of a cost: that of reducing rows to states or sketches with a library, without the computation of
    results.
    """
    return f"{library}, reduce"


OURS_REDUCE = reduce_label(OURS)


@dataclass(frozen=True)
class Cost:
    """The cost of the operation ``what`` of the library ``who`` in a case, in nanoseconds per row or state."""

    what: str
    who: str
    case: str
    ns: float


def cost_of(costs: Sequence[Cost], what: str, who: str, case: str) -> float | None:
    """Return the cost of the operation ``what`` of the library ``who`` in a case, in nanoseconds per row or state, or
    None if it was not measured.
    """
    return next((c.ns for c in costs if (c.what, c.who, c.case) == (what, who, case)), None)


def function_name(call: str) -> str:
    """Return the name of the function in a call, such as ``dds`` for ``dds('x', quantiles=[0.5])``."""
    return call.partition("(")[0]


def label(measure: str, by: str) -> tuple[str, str]:
    """Return the operation and the library of a figure in a report of `aggr.bench`.

    >>> label("avg('x')", "tiltframe"), label("avg('x')", "duckdb:mean(x)")
    (('avg', 'tiltframe'), ('mean', 'duckdb'))
    """
    if by == OURS:
        return function_name(measure), OURS
    package, _, expression = by.partition(":")
    return function_name(expression), package


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
        Cost(*label(timing.measure, timing.by), cases[timing.groups], timing.ns)
        for timing in report.timings
        if timing.stage == stage
    ]


def show_costs(title: str, costs: Sequence[Cost], base: Cost) -> None:
    """Print one line per operation and library. Each line has two columns per case: the cost, and the cost divided by
    that of the operation and library of ``base``.
    """
    cases = list(dict.fromkeys(cost.case for cost in costs))
    table = create_table(title, ["", "by", *(column for case in cases for column in (case, "×"))])
    for what, who in dict.fromkeys((cost.what, cost.who) for cost in costs):
        cells = []
        for case in cases:
            ns = cost_of(costs, what, who, case)
            unit = cost_of(costs, base.what, base.who, case)
            cells.append("" if ns is None else f"{ns:,.1f}")
            cells.append(f"{ns / unit:,.2f}" if ns is not None and unit else "")
        is_base = (what, who) == (base.what, base.who)
        table.add_row(what, who, *cells, style="bold" if is_base else "")
    print_table(table)


def show_grid(title: str, costs: Sequence[Cost], base: str) -> None:
    """Print one line per operation and one column per library. Each cost is followed by its ratio to the cost of the
    library ``base``.
    """
    whos = list(dict.fromkeys(cost.who for cost in costs))
    table = create_table(title, ["", *whos])
    for what, case in dict.fromkeys((cost.what, cost.case) for cost in costs):
        unit = cost_of(costs, what, base, case)
        cells = []
        for who in whos:
            ns = cost_of(costs, what, who, case)
            ratio = "" if who == base or ns is None or not unit else f"  {ns / unit:4.2f} ×"
            cells.append("" if ns is None else f"{ns:,.1f}{ratio}")
        table.add_row(what, *cells)
    print_table(table)


def create_table(title: str, columns: Sequence[str]) -> Table:
    """Return an empty table with a title and columns. The columns that are unnamed or named ``by`` are aligned left,
    for text, and all others right, for numbers.
    """
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, header_style="bold")
    for name in columns:
        table.add_column(name, justify="left" if name in ("", "by") else "right")
    return table


def print_table(table: Table) -> None:
    """Print a table. If the output is not a terminal, the table is 150 characters wide."""
    console = Console()
    (console if console.is_terminal else Console(width=150)).print(table)
