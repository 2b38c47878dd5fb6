"""Plots of the benchmarks of stores: writing, queries of a year, response times over HTTP, and ratios of measured to
predicted costs.
"""

from __future__ import annotations

import statistics
from typing import Any

from matplotlib.figure import Figure

from benchmarks.plots import OUR_COLOUR, OUR_PALE_COLOUR, PALE_COLOUR, PEER_COLOUR, bar_chart

SHADES_OF_SYSTEMS = ((OUR_COLOUR, OUR_COLOUR), (PEER_COLOUR, PEER_COLOUR), (PALE_COLOUR, PALE_COLOUR))
TIMES_OF_A_PANEL = {"cold": "first time, alone", "p50": "p50 of 32 clients", "p99": "p99 of 32 clients"}


def draw_year(figures: Any) -> Figure:
    """Draw bars with the seconds of each query of a year of states, in the store, in DuckDB and in PostgreSQL."""
    columns = [figures["seconds"], figures["duckdb_seconds"], figures["postgres"]["seconds"]]
    rows = {query: [seconds[query] for seconds in columns] for query in figures["duckdb_seconds"]}
    days = figures["days"]
    cases = [f"store, {days} days", f"DuckDB, {days} days", f"PostgreSQL, {figures['postgres']['days']} days"]
    return bar_chart(
        rows,
        cases,
        is_ours=_is_never_ours,
        xlabel="seconds, log scale",
        form="{:.2f}",
        scale="log",
        shades=SHADES_OF_SYSTEMS,
    )


def draw_storing(figures: Any) -> Figure:
    """Draw bars with the elapsed seconds and the CPU seconds of each system that writes states or results."""
    rows = {
        system: [statistics.median(run[name] for run in runs) for name in ("seconds", "core_seconds")]
        for system, runs in figures["runs"].items()
    }
    shades = ((OUR_COLOUR, OUR_COLOUR), (OUR_PALE_COLOUR, OUR_PALE_COLOUR))
    return bar_chart(
        rows, ["seconds", "core seconds"], is_ours=_is_never_ours, xlabel="seconds", form="{:.1f}", shades=shades
    )


def draw_querying(figures: Any) -> Figure:
    """Draw bars with the milliseconds of each query in the store, in ClickHouse and in DuckDB."""
    systems = list(next(iter(figures["seconds"].values())))
    rows = {
        query: [1000 * seconds[system] if system in seconds else None for system in systems]
        for query, seconds in figures["seconds"].items()
    }
    xlabel = "milliseconds, log scale"
    return bar_chart(
        rows, systems, is_ours=_is_never_ours, xlabel=xlabel, form="{:,.0f}", scale="log", shades=SHADES_OF_SYSTEMS
    )


def draw_serving(figures: Any) -> Figure:
    """Draw bars with the milliseconds of each panel: the first request, and the median and the 99th percentile of the
    requests of 32 clients.
    """
    rows = {panel: [1000 * times[name] for name in TIMES_OF_A_PANEL] for panel, times in figures["panels"].items()}
    shades = ((PALE_COLOUR, PALE_COLOUR), (OUR_COLOUR, OUR_COLOUR), (OUR_PALE_COLOUR, OUR_PALE_COLOUR))
    cases = list(TIMES_OF_A_PANEL.values())
    xlabel = "milliseconds, log scale"
    return bar_chart(rows, cases, is_ours=_is_never_ours, xlabel=xlabel, form="{:,.0f}", scale="log", shades=shades)


def draw_scale(figures: Any) -> Figure:
    """Draw bars with the measured costs of a day, divided by the predicted costs, for each number of days."""
    predicted = figures["predicted a day"]
    levels = predicted["levels"]
    expected = {
        "states": sum(level["states_per_day"] for level in levels),
        "bytes": sum(level["states_per_day"] * sum(level["bytes_per_state"].values()) for level in levels),
        "core-seconds": predicted["core_seconds_per_day"],
        "shuffled bytes": predicted["shuffle_bytes_per_day"],
        "files": predicted["files_per_day"],
    }
    measured = [_costs_per_day(int(days), run) for days, run in figures["days"].items()]
    rows = {what: [costs[what] / amount for costs in measured] for what, amount in expected.items()}
    cases = [f"{days} day{'s' if int(days) > 1 else ''}" for days in figures["days"]]
    shades = ((OUR_PALE_COLOUR, OUR_PALE_COLOUR), (OUR_COLOUR, OUR_COLOUR), (PEER_COLOUR, PEER_COLOUR))
    figure = bar_chart(
        rows, cases, is_ours=_is_never_ours, xlabel="measured, × of predicted", form="{:.2f}", shades=shades
    )
    figure.axes[0].axvline(1.0, color=PEER_COLOUR, ls=":", lw=1.4)
    return figure


def _is_never_ours(_label: str) -> bool:
    """Return False for every row. This is the argument ``is_ours`` of `bar_chart` for plots whose colours distinguish
    the cases, and not tiltframe from other libraries.
    """
    return False


def _costs_per_day(days: int, run: Any) -> dict[str, float]:
    """Return the costs of a run over ``days`` days, divided by ``days``. Only the shuffled bytes are not divided,
    because they were measured for the last day alone.
    """
    return {
        "states": sum(run["states"].values()) / days,
        "bytes": sum(run["bytes"].values()) / days,
        "core-seconds": run["core_seconds"] / days,
        "shuffled bytes": run["shuffle_bytes"],
        "files": run["files"] / days,
    }
