"""Follow pages in this environment, in which everything that a page installs is already installed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FOLLOW = ROOT / "tests" / "docs" / "pages.py"

# Settings of Spark for sessions of pages: two hundred partitions and imports in each worker are most of their time.
FASTER = "spark.sql.shuffle.partitions 4\nspark.python.daemon.module spark_udaf.daemon\n"


def follow(*pages: str) -> None:
    """Follow pages of `docs` in one process. Raise ``AssertionError`` if a block fails or prints something else."""
    with tempfile.TemporaryDirectory() as settings:
        Path(settings, "spark-defaults.conf").write_text(FASTER)
        environment = os.environ | {"PIP_NO_INDEX": "1", "PYTHONPATH": str(ROOT), "PATH": paths()}
        environment["SPARK_CONF_DIR"] = settings
        command = [sys.executable, FOLLOW, *(DOCS / page for page in pages)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert [line.split()[-1] for line in done.stdout.splitlines() if line.startswith("followed")] == [
        Path(page).name for page in pages
    ]


def paths() -> str:
    """Return a PATH that begins with the folder of this Python."""
    return f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
