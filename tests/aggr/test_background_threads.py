"""Threads in the background and the exit of a process, which waits for them."""

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


DESTROYED_LATE = """
import time
from aggr.workers import start_background_thread

class Reader:
    def __del__(self):
        time.sleep(0.5)
        print("destroyed", flush=True)

def read(reader=Reader()):
    time.sleep(0.1)

start_background_thread(read, lambda: None, "reading")
del read  # so that the thread has the only reference to the reader
time.sleep(0.3)
"""


def test_the_exit_waits_for_a_reader_that_a_thread_destroys():
    """A reader whose destructor is still at work when Python ends its thread would abort the process."""
    result = subprocess.run([sys.executable, "-c", DESTROYED_LATE], capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stdout, result.stderr) == (0, "destroyed\n", "")
