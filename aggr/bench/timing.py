"""Timing of several calls within one process, and the description of the machine and the versions."""

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

from aggr.compiling.jit import compile_at_first_call

Call = Callable[[], object]


def alternate(
    calls: Sequence[Call],
    rounds: int,
    after_round: Callable[[], None] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> list[float]:
    """Run all calls once without timing them, and then once per round. Each round has a new random order. Return the
    median time of each call. The untimed run compiles loops and fills caches.

    A call affects the time of the next call by the content of caches, freed memory and the clock speed of the
    processor. Because the order is random, all calls are affected in the same way. The ratio of the medians of two
    calls is therefore meaningful even on a noisy machine.

    Parameters
    ----------
    calls : sequence of callables without parameters
    rounds : int
        The number of timed runs of each call.
    after_round : callable without parameters, optional
        A function that is called after each round, for example to advance a progress bar.
    clock : callable without parameters, optional
        A function that returns a time in seconds. The default measures elapsed time. ``time.process_time`` measures the
        CPU time of this process, which other processes on the machine affect less.

    Returns
    -------
    list of float, shape (len(calls),)
        Seconds.

    Examples
    --------
    >>> fast, slow = alternate([lambda: None, lambda: sum(range(100_000))], rounds=3)
    >>> fast < slow
    True
    """
    seconds: list[list[float]] = [[] for _ in calls]
    order = list(range(len(calls)))
    rng = random.Random(1)
    with compile_at_first_call():  # compile each loop in the first run, so that no timed run interprets or compiles it
        for call in calls:
            call()
        for _ in range(rounds):
            rng.shuffle(order)
            for i in order:
                begin = clock()
                calls[i]()
                seconds[i].append(clock() - begin)
            if after_round is not None:
                after_round()
    return [statistics.median(times) for times in seconds]


def one_round(calls: Mapping[str, Call], seed: int) -> dict[str, float]:
    """Run all calls once in a random order, and return the seconds of each."""
    seconds = {}
    for name in random.Random(seed).sample(list(calls), len(calls)):
        begin = time.perf_counter()
        calls[name]()
        seconds[name] = time.perf_counter() - begin
    return seconds


def one_core() -> None:
    """Restrict this process to one processor core.

    Call it before an engine such as Polars is first imported, because the threads of the engine inherit the
    restriction.
    """
    os.environ["POLARS_MAX_THREADS"] = "1"  # Polars reads this variable when it is imported
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    if hasattr(os, "sched_setaffinity"):  # only Linux has this function
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def circumstances(packages: Iterable[str] = ("numpy", "pyarrow")) -> dict[str, object]:
    """Describe the commit, the machine and the versions of Python and of packages.

    Parameters
    ----------
    packages : iterable of str
        Names of the distributions whose versions are included.

    Returns
    -------
    dict
        A mapping. ``commit`` is empty outside a repository. A package that is not installed has the version None.
    """
    return {
        "commit": _commit(),
        "machine": _processor(),
        "cores": os.cpu_count(),
        "python": sys.version.split()[0],
        **{package: _version(package) for package in packages},
    }


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    try:
        process = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parent)
    except OSError:  # git is not installed
        return ""
    return process.stdout.strip()


def _processor() -> str:
    cpu = Path("/proc/cpuinfo")
    lines = cpu.read_text().splitlines() if cpu.exists() else []
    return next((line.split(":")[1].strip() for line in lines if "model name" in line), platform.processor())


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
