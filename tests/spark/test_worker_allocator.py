"""Tests that Arrow keeps freed memory in Python workers of Spark, and only there."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from spark_udaf.versions.same_version import TaskFunction

ROOT = Path(__file__).parents[2]
DELAY = "MIMALLOC_PURGE_DELAY"

# A process that loads a function as a worker does, after PySpark's own modules. It then prints the allocator's setting,
# and how often it got memory from the system although it had freed as much memory 1.2 seconds before.
LOAD_AND_MEASURE = f"""
import os, pickle, resource, sys, time
import pyspark.daemon, pyspark.worker
pickle.loads(bytes.fromhex(sys.argv[1]))
import numpy as np
import pyarrow as pa

def use_memory():
    buffers = [pa.allocate_buffer(5_000_000) for _ in range(20)]
    for buffer in buffers:
        np.frombuffer(buffer, np.uint8)[::4096] = 1

use_memory()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(2):
    time.sleep(1.2)
    use_memory()
print(os.environ.get("{DELAY}"), resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def load_and_measure(**variables):
    """Run the process with additional environment variables. Return the setting, and the number of page faults."""
    function = pickle.dumps(TaskFunction(len)).hex()
    environment = {name: value for name, value in os.environ.items() if name != DELAY} | variables
    ran = subprocess.run(
        [sys.executable, "-c", LOAD_AND_MEASURE, function],
        env=environment, capture_output=True, text=True, check=True, cwd=ROOT,
    )  # fmt: skip
    setting, faults = ran.stdout.split()
    return setting, int(faults)


@pytest.mark.slow
@pytest.mark.skipif(pa.default_memory_pool().backend_name != "mimalloc", reason="Arrow uses another allocator")
def test_a_worker_keeps_the_memory_that_arrow_frees():
    setting, faults = load_and_measure(PYTHON_WORKER_FACTORY_SECRET="a")
    assert setting == "10000"
    assert faults < 100  # about 2000 with the default setting


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variables", "setting"),
    [
        ({}, "None"),
        ({"PYTHON_WORKER_FACTORY_SECRET": "a", DELAY: "5"}, "5"),
        ({"PYTHON_WORKER_FACTORY_SECRET": "a", "TILTFRAME_TUNE_WORKERS": "0"}, "None"),
    ],
    ids=["not a worker", "set by the user", "tuning is off"],
)
def test_the_setting_is_not_changed(variables, setting):
    assert load_and_measure(**variables)[0] == setting
