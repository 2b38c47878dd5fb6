"""Seconds from the start of a process to its first results, without compiled code on disk (cold) and with it (warm).

python -m benchmarks.cold [ROUNDS]
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
ALL_NINE = "count min max sum avg var stdev dds hdr"
CASES = {"import aggr": None, "sum": "sum", "dds": "dds", "all nine": ALL_NINE}
_FOLDER = tempfile.TemporaryDirectory(prefix="bytecode")
BYTECODE = _FOLDER.name
# The limits of cold runs in seconds, on two idle cores.
COLD_LIMITS = {"sum": 2.0, "dds": 5.0, "all nine": 8.0}
WARM_LIMITS = {"import aggr": 0.25, "rollup": 0.3}
SCRIPT = """
import time
start = time.perf_counter()
import aggr
import_end = time.perf_counter()
names = {names!r}
if names:
    import numpy as np, pyarrow as pa
    from tiltframe import TiltFrame, finish, rollup
    more = {{"hdr": {{"unit": 0.001}}}}
    calls = {{n: aggr.count() if n == "count" else getattr(aggr, n)("x", **more.get(n, {{}})) for n in names.split()}}
    frame = TiltFrame(["10s", "1m"], time="ts", measures={{f"of_{{name}}": call for name, call in calls.items()}})
    rows = pa.table({{"ts": np.arange(1000) * 100, "x": np.random.default_rng(1).lognormal(3, 1, 1000)}})
    all_imports_end = time.perf_counter()
    finish(rollup(rows, frame), frame)
    print(import_end - start, time.perf_counter() - all_imports_end)
else:
    print(import_end - start, 0.0)
"""


def run_process(names: str | None, cache: str) -> tuple[float, float, float]:
    """Run a new process that imports aggr. If ``names`` is not None, the process also rolls up 1,000 rows with the
    functions in ``names``. Compiled code is stored in the folder ``cache``. Return three numbers of seconds: for the
    import, for the rollup with its results, and for the complete process.
    """
    start = os.times().elapsed
    script = SCRIPT.format(names=names)
    environment = os.environ | {"NUMBA_CACHE_DIR": cache, "PYTHONPATH": str(ROOT), "PYTHONPYCACHEPREFIX": BYTECODE}
    # Without PYTHONDONTWRITEBYTECODE, Python stores bytecode, as for an installed package.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-c", script]
    output = subprocess.run(command, env=environment, check=True, capture_output=True, text=True, cwd=ROOT).stdout
    import_seconds, rollup_seconds = map(float, output.split())
    return import_seconds, rollup_seconds, os.times().elapsed - start


def main(rounds: int) -> None:
    """Run each case once, so that Python's bytecode is stored, and then measure all cases."""
    for names in CASES.values():
        with tempfile.TemporaryDirectory() as cache:
            run_process(names, cache)
    measure(rounds)


def measure(rounds: int) -> None:
    """Print the median seconds of ``rounds`` cold runs and ``rounds`` warm runs of each case, and the ratio of the two
    medians. Each cold run has a new, empty cache folder, which the next warm run uses.
    """
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    print(f"load before: {load:.1f}; medians of {rounds}")
    for case, names in CASES.items():
        cold = []
        warm = []
        imports = []
        rollups = []
        for _ in range(rounds):
            with tempfile.TemporaryDirectory() as cache:
                cold.append(run_process(names, cache)[2])
                import_seconds, rollup_seconds, total = run_process(names, cache)
            warm.append(total)
            imports.append(import_seconds)
            rollups.append(rollup_seconds)
        cold_median = statistics.median(cold)
        warm_median = statistics.median(warm)
        limit = f", at most {COLD_LIMITS[case]}" if case in COLD_LIMITS else ""
        print(
            f"{case:12} cold {cold_median:5.2f} s{limit}; "
            f"warm {warm_median:5.2f} s ({cold_median / warm_median:.1f} ×): "
            f"import {statistics.median(imports):.2f} (at most {WARM_LIMITS['import aggr']}) and rollup with results "
            f"{statistics.median(rollups):.2f} (at most {WARM_LIMITS['rollup']})"
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 3)
