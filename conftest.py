"""Spark's workers run the ``python3`` of the PATH unless told otherwise: let the tests use the one they run on."""

import os
import sys

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
os.environ.setdefault("TILTFRAME_COMPILE_FROM", "0")  # but for tests/aggr/test_compiled.py, machine code
