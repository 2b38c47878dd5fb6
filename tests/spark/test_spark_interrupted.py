"""Ctrl-C during a Spark job: exit status 130, one message, no tracebacks of Java or Python, and no remaining
process.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tiltframe.cli.interrupts import STEPS_REMAIN

pytestmark = [pytest.mark.spark, pytest.mark.slow]

RATE = ["stream", "--spark", "--format", "rate", "--time", "timestamp", "--levels", "10s", "--measure", "n=count()"]
COMMANDS = {
    "demo": (["demo"], STEPS_REMAIN),
    "stream": (RATE, "stopped; open windows were not emitted; use --state FOLDER to keep them"),
}


def processes(session):
    """List what a session runs."""
    return subprocess.run(["ps", "-o", "args=", "-s", str(session)], capture_output=True, text=True).stdout


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.long
def test_ctrl_c_while_workers_work_is_one_sentence(command, tmp_path):
    arguments, sentence = COMMANDS[command]
    output_file = tmp_path / "said"
    with output_file.open("w") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "tiltframe.cli", *arguments],
            stdout=out,
            stderr=out,
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
    while "pyspark.daemon" not in processes(process.pid):
        assert process.poll() is None, output_file.read_text()
        time.sleep(0.05)
    before = len(output_file.read_text())
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    assert process.wait() == 130, output_file.read_text()
    until = time.monotonic() + 120
    while left := processes(process.pid):
        assert time.monotonic() < until, left
        time.sleep(0.1)
    output_lines = output_file.read_text()[before:].splitlines()
    assert f"tiltframe: {sentence}" in output_lines
    assert not [line for line in output_lines if re.match(r"\s+at |\s+File |Traceback|.*(Error|Exception)\b", line)], (
        output_lines
    )
