"""Freed memory is used for the next table, and is not requested from the operating system again."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource
import numpy as np
import pyarrow as pa
from tiltframe import TiltFrame, rollup
import aggr

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        tables = [np.ones(500_000) for _ in range(5)]
        del tables
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

before = faults()
rollup(pa.table({"ts": [0]}), TiltFrame(["1s"], "ts", {"n": aggr.count()}))
faults()
print(before, faults())
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_pages_are_touched_once():
    done = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True)
    before, after = map(int, done.stdout.split())
    assert 10 * after < before
