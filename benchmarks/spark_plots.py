"""Plots of the Spark benchmarks: the time of jobs, the growth of time and memory, and the rates of streams."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from benchmarks.data_sets import TEXTS
from benchmarks.plots import OUR_COLOUR, bar_chart

OWN_JOB_PREFIXES = ("rollup", "su.", "A.dds")


def draw_jobs(figures: Any) -> Figure:
    """Draw a bar with the seconds of each job that reads all rows, the fastest first."""
    seconds = figures["seconds"][TEXTS.name]
    jobs = sorted((name for name in seconds if "a tenth" not in name), key=lambda name: seconds[name])
    return bar_chart(
        {job: [seconds[job]] for job in jobs}, ["seconds"], is_ours=_is_ours, xlabel="seconds", form="{:.1f}"
    )


def draw_answers(figures: Any) -> Figure:
    """Draw bars with the seconds from rows to results of each job, the fastest first. The files are in the order of
    time.
    """
    data_sets = {name: seconds for name, seconds in figures["seconds"].items() if "percentile_approx" in seconds}
    first = next(iter(data_sets.values()))
    jobs = sorted(first, key=lambda job: first[job])
    rows = {job: [seconds[job] for seconds in data_sets.values()] for job in jobs}
    return bar_chart(rows, list(data_sets), is_ours=_is_ours, xlabel="seconds", form="{:.1f}")


def draw_growth(figures: Any) -> Figure:
    """Draw the seconds of a job and the memory of its largest worker, by the number of rows and by the number of
    groups.
    """
    growth_records = figures["growth"]
    group_counts = [record["groups"] for record in growth_records]
    groups = max(set(group_counts), key=group_counts.count)
    by_rows = sorted(
        (record for record in growth_records if record["groups"] == groups), key=lambda record: record["rows"]
    )
    rows = max((record["rows"] for record in growth_records if record["groups"] != groups), default=0)
    by_groups = sorted(
        (record for record in growth_records if record["rows"] == rows), key=lambda record: record["groups"]
    )
    figure = Figure(figsize=(9, 6), layout="constrained")
    grid = figure.subplots(2, 2, sharey="row", squeeze=False)
    sides = [(by_rows, "rows", f"{groups:,} groups"), (by_groups, "groups", f"{rows:,} rows")]
    for column, (records, axis, constant_size) in enumerate(sides):
        sizes = [record[axis] for record in records]
        grid[0][column].loglog(sizes, [record["seconds"] for record in records], "o-", color=OUR_COLOUR)
        grid[1][column].loglog(sizes, [record["worker_bytes"] / 2**20 for record in records], "o-", color=OUR_COLOUR)
        grid[0][column].set_title(f"by {axis} ({constant_size})")
        grid[1][column].set_xlabel(axis)
    grid[0][0].set_ylabel("seconds")
    grid[1][0].set_ylabel("MiB, largest worker")
    return figure


def draw_streams(figures: Any) -> Figure:
    """Draw bars with the rows per second of each query, divided by those of Spark's own aggregates. Each number of keys
    has its own bars.
    """
    rows = {
        f"{run['keys']:,} keys, {query}": [figures_of_query["ratio"]]
        for run in figures["runs"]
        for query, figures_of_query in run["queries"].items()
    }
    xlabel = "rows a second, × of Spark's count, min, max, avg"
    return bar_chart(rows, ["ratio"], is_ours=lambda label: ", ours: " in label, xlabel=xlabel, form="{:.2f}")


def _is_ours(job: str) -> bool:
    return job.startswith(OWN_JOB_PREFIXES)
