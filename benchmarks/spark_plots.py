"""Plots of the Spark benchmarks: the time of jobs, the growth of time and memory, and the rates of streams."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from benchmarks.plots import OURS, bar_chart
from benchmarks.shapes import TEXTS

OWN_JOBS = ("rollup", "su.", "A.dds")


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
    shapes = {name: seconds for name, seconds in figures["seconds"].items() if "percentile_approx" in seconds}
    first = next(iter(shapes.values()))
    jobs = sorted(first, key=lambda job: first[job])
    rows = {job: [seconds[job] for seconds in shapes.values()] for job in jobs}
    return bar_chart(rows, list(shapes), is_ours=_is_ours, xlabel="seconds", form="{:.1f}")


def draw_growth(figures: Any) -> Figure:
    """Draw the seconds of a job and the memory of its largest worker, by the number of rows and by the number of
    groups.
    """
    lines_of_growth = figures["growth"]
    group_counts = [line["groups"] for line in lines_of_growth]
    groups = max(set(group_counts), key=group_counts.count)
    by_rows = sorted((line for line in lines_of_growth if line["groups"] == groups), key=lambda line: line["rows"])
    rows = max((line["rows"] for line in lines_of_growth if line["groups"] != groups), default=0)
    by_groups = sorted((line for line in lines_of_growth if line["rows"] == rows), key=lambda line: line["groups"])
    figure = Figure(figsize=(9, 6), layout="constrained")
    grid = figure.subplots(2, 2, sharey="row", squeeze=False)
    sides = [(by_rows, "rows", f"{groups:,} groups"), (by_groups, "groups", f"{rows:,} rows")]
    for column, (lines, axis, constant_size) in enumerate(sides):
        sizes = [line[axis] for line in lines]
        grid[0][column].loglog(sizes, [line["seconds"] for line in lines], "o-", color=OURS)
        grid[1][column].loglog(sizes, [line["worker_bytes"] / 2**20 for line in lines], "o-", color=OURS)
        grid[0][column].set_title(f"by {axis} ({constant_size})")
        grid[1][column].set_xlabel(axis)
    grid[0][0].set_ylabel("seconds")
    grid[1][0].set_ylabel("MiB, largest worker")
    return figure


def draw_streams(figures: Any) -> Figure:
    """Draw bars with the rows per second of each query, as a ratio to Spark's own aggregates, by number of keys."""
    rows = {
        f"{run['keys']:,} keys, {query}": [figures_of_query["ratio"]]
        for run in figures["runs"]
        for query, figures_of_query in run["queries"].items()
    }
    xlabel = "rows a second, × of Spark's count, min, max, avg"
    return bar_chart(rows, ["ratio"], is_ours=lambda label: ", ours: " in label, xlabel=xlabel, form="{:.2f}")


def _is_ours(job: str) -> bool:
    return job.startswith(OWN_JOBS)
