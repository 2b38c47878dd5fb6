"""Plots of the Spark benchmarks: the time of jobs as bars, and the growth of time and memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks.growth import GROUPS, Grown
from benchmarks.plots import OURS, PEERS, STYLE


def plot_jobs(folder: Path, seconds: Mapping[str, float], about: str) -> Path:
    """Draw the seconds of each job that reads all rows as bars, the fastest first."""
    jobs = sorted(
        (name for name in seconds if "a tenth" not in name),
        key=lambda name: -seconds[name],
    )
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9, 4.8), layout="constrained")
        axes = figure.subplots()
        ours = [name.startswith("rollup") for name in jobs]
        axes.barh(
            jobs, [seconds[name] for name in jobs], color=[OURS if is_own else PEERS for is_own in ours], height=0.7
        )
        for at, name in enumerate(jobs):
            axes.text(seconds[name], at, f" {seconds[name]:.1f}", va="center", fontsize=9)
        axes.set(xlabel="seconds", title="Nine functions, four levels (ours); the finest windows alone (Spark)")
        return _saved(figure, folder / "spark.png", about)


def plot_growth(folder: Path, grown: Sequence[Grown], about: str) -> Path:
    """Draw time and the memory of the largest worker over the number of rows and of groups."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9, 6), layout="constrained")
        by_rows = sorted((g for g in grown if g.groups == GROUPS), key=lambda g: g.rows)
        most_rows = max((g.rows for g in grown if g.groups != GROUPS), default=0)
        by_groups = sorted((g for g in grown if g.rows == most_rows), key=lambda g: g.groups)
        grid = figure.subplots(2, 2, sharey="row", squeeze=False)
        for column, (points, word) in enumerate(((by_rows, "rows"), (by_groups, "groups"))):
            at = [getattr(g, word) for g in points]
            fixed = f"{GROUPS:,} groups" if word == "rows" else f"{most_rows:,} rows"
            grid[0][column].loglog(at, [g.seconds for g in points], "o-", color=OURS)
            grid[1][column].loglog(at, [g.worker_bytes / 2**20 for g in points], "o-", color=OURS)
            grid[0][column].set_title(f"by {word} ({fixed})")
            grid[1][column].set_xlabel(word)
        grid[0][0].set_ylabel("seconds")
        grid[1][0].set_ylabel("MiB, largest worker")
        return _saved(figure, folder / "growth.png", about)


def _saved(figure: Figure, file: Path, about: str) -> Path:
    figure.supxlabel(about, fontsize=7.5, color="#64748b", x=0.01, ha="left")
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file)
    return file
