"""A thread in the background that cannot start leaves nothing for the exit of the process to wait for."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import threading
from aggr.workers import start_background_thread

first_start = threading.Thread.start
stopped = threading.Event()
start_background_thread(stopped.wait, stopped.set, "first")

def start(thread):
    raise RuntimeError("can't start new thread")

threading.Thread.start = start
try:
    start_background_thread(print, lambda: None, "second")
except RuntimeError as error:
    print(error)
threading.Thread.start = first_start
"""


def test_a_thread_that_cannot_start():
    result = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stdout, result.stderr) == (0, "can't start new thread\n", "")
