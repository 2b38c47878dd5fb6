"""Timing: calls in turn within one process, on one core, and the circumstances without which figures say nothing."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from aggr.compiling.jit import compile_at_once

Call = Callable[[], object]


def alternate(calls: Sequence[Call], rounds: int) -> list[float]:
    """Run all calls once a round, in an order drawn anew for each; return the median seconds of each.

    Each is timed under what the others leave behind (caches, freed memory, clock speed, a busy neighbour), and not
    always behind the same one: so ratios of medians can be compared where the medians themselves cannot.
    """
    taken: list[list[float]] = [[] for _ in calls]
    order = list(range(len(calls)))
    rng = random.Random(1)
    with compile_at_once():  # what the first seconds of a process cost is for benchmarks.cold
        for _ in range(rounds):
            rng.shuffle(order)
            for i in order:
                begin = time.perf_counter()
                calls[i]()
                taken[i].append(time.perf_counter() - begin)
    return [statistics.median(times) for times in taken]


def one_round(calls: Mapping[str, Call], seed: int) -> dict[str, float]:
    """Run all calls once, in an order of their own; return the seconds of each."""
    taken = {}
    for name in random.Random(seed).sample(list(calls), len(calls)):
        begin = time.perf_counter()
        calls[name]()
        taken[name] = time.perf_counter() - begin
    return taken


def one_core() -> None:
    """Keep this process on one core: call it before the first import of an engine, whose threads inherit it."""
    os.environ["POLARS_MAX_THREADS"] = "1"  # read by Polars when it is imported
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    if hasattr(os, "sched_setaffinity"):  # Linux
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def circumstances(packages: Iterable[str] = ("numpy", "pyarrow")) -> dict[str, object]:
    """Name commit, machine and versions; a package that is not installed has none."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parent,
    )
    return {
        "commit": commit.stdout.strip(),
        "machine": _processor(),
        "python": sys.version.split()[0],
        **{package: _version(package) for package in packages},
    }


def _processor() -> str:
    cpu = Path("/proc/cpuinfo")
    lines = cpu.read_text().splitlines() if cpu.exists() else []
    return next((line.split(":")[1].strip() for line in lines if "model name" in line), platform.processor())


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
