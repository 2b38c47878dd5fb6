"""The command runs Spark's workers with its own Python, also if its environment is not activated."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.long]


def test_a_stream_does_not_need_an_activated_environment(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"ts": "2024-05-01T10:00:00Z", "host": "a"}\n')
    environment = {name: text for name, text in os.environ.items() if not name.startswith("PYSPARK")}
    environment |= {"PATH": os.defpath + ":/usr/bin:/bin", "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [sys.executable, "-c", "from tiltframe_command import main; main()", "stream", str(tmp_path / "in")]
    command += ["--spark", "--format", "json", "--option", "inferTimestamp=true", "--once", "--time", "ts"]
    command += ["--measure", "n=count()", "--key", "host", "--levels", "1m", "--emit", "on_update"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    (row,) = map(json.loads, done.stdout.splitlines())
    assert (row["host"], row["n"]) == ("a", 1)
