"""Figures of benchmarks with their limits. A limit is the largest value that is allowed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from benchmarks.costs import create_table, print_table

Figure = float | None


@dataclass(frozen=True)
class LimitedFigure:
    """A figure ``got`` and its limit ``most``, the largest value that is allowed.

    ``got`` is missing (None) if it needs a library that is not installed. The limits apply to full runs. Fixed costs
    dominate in quick runs, which have few rows, so their figures are printed without a verdict.
    """

    what: str
    most: float
    got: Figure
    is_judged: bool = True

    @property
    def verdict(self) -> str:
        """Return ``pass``, ``FAIL``, ``not judged`` or ``not installed``."""
        if self.got is None:
            return "not installed"
        if not self.is_judged:
            return "not judged"
        return "pass" if self.got <= self.most else "FAIL"


def without_verdicts(lines: Sequence[LimitedFigure]) -> list[LimitedFigure]:
    """Return the same figures without a verdict, for quick runs."""
    return [replace(line, is_judged=False) for line in lines]


def show_limits(limits: Sequence[LimitedFigure]) -> None:
    """Print one line per limit."""
    table = create_table("Must hold", ["", "at most", "is", ""])
    colours = {"pass": "green", "FAIL": "bold red", "not installed": "yellow", "not judged": "dim"}
    for line in limits:
        got = "" if line.got is None else f"{line.got:,.3f}"
        verdict = f"[{colours[line.verdict]}]{line.verdict}[/]"
        table.add_row(line.what, f"{line.most:,.3f}", got, verdict)
    print_table(table)
