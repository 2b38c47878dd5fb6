"""The peak memory while a measure is computed from rows, measured in a separate process.

    python -m aggr.bench.memory ROWS.arrow DESCRIPTION GROUPS

prints the growth of the process's resident memory at its peak, in bytes. Only Linux can reset the recorded peak.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow as pa

from aggr.bench.costs import MeasureCase
from aggr.measure import from_description

_STATUS = Path("/proc/self/status")
_RESET = Path("/proc/self/clear_refs")
_WARM_UP_ROWS = 1000


def peak_bytes(case: MeasureCase) -> int | None:
    """Return the growth of resident memory while the results of a measure are computed from rows.

    Parameters
    ----------
    case : MeasureCase

    Returns
    -------
    int or None
        The growth in bytes, without the memory of the loaded rows. None if the system is not Linux, or if the separate
        process cannot find the function because the function is registered only in this process.
    """
    if not _RESET.exists():
        return None
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.arrow"
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, case.rows.schema) as writer:
            writer.write_table(case.rows)
        description = json.dumps(case.measure.describe())
        command = [sys.executable, "-m", "aggr.bench.memory", str(file), description, str(case.group_count)]
        # The environment variable has the effect that every loop is compiled at its first call. The loops of reduce are
        # therefore compiled in the warm-up in `_main`, and not in the measured call.
        environment = {**os.environ, "TILTFRAME_COMPILE_FROM": "0"}
        process = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    return int(process.stdout) if process.returncode == 0 else None


def _kilobytes(field: str) -> int:
    lines = _STATUS.read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))


def _main(file: str, description: str, group_count: int) -> None:
    with pa.OSFile(file, "rb") as source:
        rows = pa.ipc.open_file(source).read_all().combine_chunks()
    measure = from_description(json.loads(description))
    MeasureCase(measure, rows.slice(0, _WARM_UP_ROWS), group_count).reduce_rows()
    before = _kilobytes("VmRSS")
    _RESET.write_text("5")  # reset the peak to the current size
    MeasureCase(measure, rows, group_count).compute_results()
    print(max(0, _kilobytes("VmHWM") - before) * 1024)


if __name__ == "__main__":
    _main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
