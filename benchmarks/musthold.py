"""Figures of benchmarks with their limits. A limit is the largest value that is allowed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from benchmarks.costs import create_table, print_table

Figure = float | None


@dataclass(frozen=True)
class LimitedFigure:
    """A figure with a limit, which is the largest value that is allowed. JSON files of figures contain the field names.

    The limits apply to full runs. Figures of quick runs are printed without a verdict, because fixed costs dominate in
    runs with few rows.
    """

    # The name of the figure.
    what: str
    # The limit: the greatest allowed value.
    most: float
    # The measured value, or None if the measurement needs a library that is not installed.
    got: Figure
    # Whether the figure has a verdict.
    is_judged: bool = True

    @property
    def verdict(self) -> str:
        """The verdict: ``pass``, ``FAIL``, ``not judged`` or ``not installed``."""
        if self.got is None:
            return "not installed"
        if not self.is_judged:
            return "not judged"
        return "pass" if self.got <= self.most else "FAIL"


def without_verdicts(figures: Sequence[LimitedFigure]) -> list[LimitedFigure]:
    """Return the same figures without a verdict, for quick runs."""
    return [replace(figure, is_judged=False) for figure in figures]


def show_limits(figures: Sequence[LimitedFigure]) -> None:
    """Print a table with one line per figure: its name, its limit, the measured value and the verdict."""
    table = create_table("Must hold", ["", "at most", "measured", ""])
    colours = {"pass": "green", "FAIL": "bold red", "not installed": "yellow", "not judged": "dim"}
    for figure in figures:
        measured = "" if figure.got is None else f"{figure.got:,.3f}"
        verdict = f"[{colours[figure.verdict]}]{figure.verdict}[/]"
        table.add_row(figure.what, f"{figure.most:,.3f}", measured, verdict)
    print_table(table)
