"""Sessions: set options for a fast transfer between the JVM and Python, read settings such as the number of tasks, and
start local sessions.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from aggr.compiling.interrupts import defer_interrupts
from spark_udaf.plan.class_archive import java_options
from spark_udaf.plan.engine import engine_of
from spark_udaf.versions.java_objects import python_context_of
from tiltframe.java import NoJava, find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_JAVA_OPTIONS_SETTING = "spark.driver.extraJavaOptions"
_BATCH_BYTES_SETTING = "spark.sql.execution.arrow.maxBytesPerBatch"
PARTITIONS_SETTING = "spark.sql.shuffle.partitions"
# Matches local, local[4], local[*], local[4, 2] (four threads) and local-cluster[2, 3, 1024] (two workers of three
# cores).
_LOCAL = re.compile(r"local(-cluster)?(?:\[\s*(\d+|\*)\s*(?:,\s*(\d+))?.*\])?")


def check_session(spark: SparkSession) -> None:
    """Raise ``TypeError`` unless the argument is a session."""
    if isinstance(spark, type) or not hasattr(spark, "createDataFrame"):
        raise TypeError(f"expected a SparkSession; got {spark!r}")


def use_large_batches(spark: SparkSession) -> None:
    """Set ``spark.sql.execution.arrow.maxBytesPerBatch`` to its maximum, unless the session has set it. The default is
    slow, because Spark then determines the size of every row before it sends rows to Python.
    """
    if spark.conf.get(_BATCH_BYTES_SETTING, None) is None:
        spark.conf.set(_BATCH_BYTES_SETTING, str(2**31 - 1))


def shuffle_partitions(spark: SparkSession) -> int:
    """Return the number of shuffle partitions of the session, or the default of its engine."""
    setting = spark.conf.get(PARTITIONS_SETTING, None)
    if setting:
        return int(setting)
    return engine_of(spark).default_partitions()


def parallelism(spark: SparkSession) -> int | None:
    """Return the number of tasks that run at once according to the session's settings. If the settings do not contain
    this number, return the number that the engine reports. None means that the number is unknown.

    The scheduler, which knows the number of executors, is not asked, because Spark Connect does not provide it.
    """
    setting = spark.conf.get("spark.default.parallelism", None)
    if setting:
        return int(setting)
    local = _LOCAL.fullmatch(spark.conf.get("spark.master", None) or "")
    if local:
        kind, first, second = local.groups()
        threads = (os.cpu_count() or 1) if first == "*" else int(first or 1)
        return threads * int(second) if kind else threads
    executors = spark.conf.get("spark.executor.instances", None)
    if not executors:
        return engine_of(spark).cores()
    return int(executors) * int(spark.conf.get("spark.executor.cores", None) or 1)


def is_client_only() -> bool:
    """Return whether the installed PySpark is only a client, which cannot start Spark."""
    import pyspark

    return not Path(pyspark.__file__).with_name("jars").is_dir() and "SPARK_HOME" not in os.environ


def has_java() -> bool:
    """Return whether Spark can start Java in a version that it supports."""
    try:
        find_java()
    except NoJava:
        return False
    return True


@contextmanager
def interruptible(spark: SparkSession) -> Iterator[None]:
    """Within the block, Ctrl-C raises ``KeyboardInterrupt``, also while PySpark waits for a job. The messages that
    Spark and Py4J would log are suppressed.
    """
    logging.getLogger().addHandler(logging.NullHandler())  # This suppresses the traceback that Py4J logs.
    previous_handler = signal.getsignal(signal.SIGINT)

    def interrupt(number: int, frame: FrameType | None) -> None:
        context = python_context_of(spark)
        if context is not None:  # On Spark Connect, there is no context, and the server has its own log.
            silence_log = threading.Thread(target=context.setLogLevel, args=("OFF",))
            # The JVM is called in another thread, because the main thread may be waiting for an answer of the JVM.
            silence_log.start()
            silence_log.join()
        if callable(previous_handler):  # Spark's own handler cancels the running jobs.
            previous_handler(number, frame)

    # Python allows signal handlers only in the main thread.
    is_main_thread = threading.current_thread() is threading.main_thread()
    if is_main_thread:
        signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    except Exception as error:
        # After Ctrl-C, PySpark raises the error of the cancelled job instead of KeyboardInterrupt.
        if _follows_interrupt(error):
            raise KeyboardInterrupt from None
        raise
    finally:
        if is_main_thread:
            signal.signal(signal.SIGINT, previous_handler)


def _follows_interrupt(error: BaseException | None) -> bool:
    return error is not None and (isinstance(error, KeyboardInterrupt) or _follows_interrupt(error.__context__))


def local_session(name: str, settings: Mapping[str, str]) -> SparkSession:
    """Start a local session of Spark with two cores, and with only errors in its log. ``settings`` are further options
    of Spark. Java must be installed. If there is an archive of Spark's classes, the JVM reads it.
    """
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    default_settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        # Over TCP, a Python worker waits 40 ms for its first row, because the operating system delays acknowledgements.
        # Python has no Unix sockets on Windows.
        "spark.python.unix.domain.socket.enabled": str(hasattr(socket, "AF_UNIX")).lower(),
    }
    settings = {
        **settings,
        _JAVA_OPTIONS_SETTING: f"{settings.get(_JAVA_OPTIONS_SETTING, '')} {java_options()}".strip(),
    }
    builder = SparkSession.builder.master("local[2]").appName(name)
    for setting, value in {**default_settings, **settings}.items():
        builder = builder.config(setting, value)
    return start_session(builder)


def start_session(builder: SparkSession.Builder) -> SparkSession:
    """Start a session. Ctrl-C is deferred, because an interrupted start would leave the JVM running.

    Workers on this machine run the same Python as this process, unless ``PYSPARK_PYTHON`` names another one. PySpark's
    default, ``python3``, may be another Python, without this library.
    """
    with defer_interrupts():
        spark = builder.getOrCreate()
    context = python_context_of(spark)
    if context is not None and context.master.startswith("local") and "PYSPARK_PYTHON" not in os.environ:
        context.pythonExec = sys.executable
    return spark
