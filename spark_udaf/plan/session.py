"""Sessions: what the hand-over between the JVM and Python needs, and a quiet local one."""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from aggr.compiling.interrupts import hold_interrupts
from aggr.extras import MissingExtra

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BATCH_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
PARTITIONS = "spark.sql.shuffle.partitions"
# local, local[4], local[*], local[4, 2] of four threads, local-cluster[2, 3, 1024] of two workers of three cores each
_LOCAL = re.compile(r"local(-cluster)?(?:\[\s*(\d+|\*)\s*(?:,\s*(\d+))?.*\])?")


def check_session(spark: SparkSession) -> None:
    """Raise ``TypeError`` for what is no session."""
    if isinstance(spark, type) or not hasattr(spark, "createDataFrame"):
        raise TypeError(f"give a SparkSession; got {spark!r}")


def prepare(spark: SparkSession) -> None:
    """Set what makes the hand-over to Python fast, unless the session already has it set.

    That is ``spark.sql.execution.arrow.maxBytesPerBatch``, without which Spark measures every row on its own.
    """
    if spark.conf.get(_BATCH_BYTES, None) is None:
        spark.conf.set(_BATCH_BYTES, str(2**31 - 1))


def is_sail(spark: SparkSession) -> bool:
    """Say whether the engine behind a session is Sail: only Spark gives a session the id of an application."""
    return spark.conf.get("spark.app.id", None) is None


def check_is_spark(spark: SparkSession, what: str, instead: str) -> None:
    """Raise ``ValueError`` for what Sail cannot run, before it starts."""
    if is_sail(spark):
        raise ValueError(f"{what} cannot run on Sail, which {instead}")


def shuffle_partitions(spark: SparkSession) -> int:
    """Tell into how many partitions the engine shuffles unless it is told."""
    setting = spark.conf.get(PARTITIONS, None)
    return int(setting) if setting else os.cpu_count() or 1 if is_sail(spark) else 200


def parallelism(spark: SparkSession) -> int | None:
    """Tell how many tasks run at once, as the session's settings say; None if they do not, as executors come and go.

    Settings alone are read, for a session of Spark Connect has no scheduler to ask. Sail runs on this machine's cores.
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
    if not executors and is_sail(spark):
        return os.cpu_count()
    return int(executors) * int(spark.conf.get("spark.executor.cores", None) or 1) if executors else None


def is_client_only() -> bool:
    """Say whether PySpark is its client alone, which starts no Spark."""
    import pyspark

    return not Path(pyspark.__file__).with_name("jars").is_dir() and "SPARK_HOME" not in os.environ


def has_java() -> bool:
    """Say whether there is a Java that Spark would start."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else "java"
    try:
        return subprocess.run([java, "-version"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


@contextmanager
def interruptible(spark: SparkSession) -> Iterator[None]:
    """Within, have Ctrl-C raise ``KeyboardInterrupt``, whatever PySpark is waiting for; nobody logs what it ends."""
    logging.getLogger().addHandler(logging.NullHandler())  # where Py4J logs a traceback
    before = signal.getsignal(signal.SIGINT)

    def interrupt(number: int, frame: FrameType | None) -> None:
        if hasattr(spark, "sparkContext"):  # Spark Connect has none, and logs elsewhere
            quieten = threading.Thread(target=spark.sparkContext.setLogLevel, args=("OFF",))
            quieten.start()  # in a thread of its own: that of Ctrl-C may be waiting for an answer from the JVM
            quieten.join()
        if callable(before):  # of Spark, which cancels its jobs
            before(number, frame)

    is_main = threading.current_thread() is threading.main_thread()  # only there handlers can be set, and run
    if is_main:
        signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    except Exception as error:
        if _is_of_interrupt(error):  # PySpark waits for the job that Ctrl-C has cancelled, and raises how it ended
            raise KeyboardInterrupt from None
        raise
    finally:
        if is_main:
            signal.signal(signal.SIGINT, before)


def _is_of_interrupt(error: BaseException | None) -> bool:
    return error is not None and (isinstance(error, KeyboardInterrupt) or _is_of_interrupt(error.__context__))


def local_session(name: str, settings: Mapping[str, str]) -> SparkSession:
    """Start Spark in this process, on two cores, quietly; Java must be there."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    quiet = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
    }
    builder = SparkSession.builder.master("local[2]").appName(name)
    for setting, value in {**quiet, **settings}.items():
        builder = builder.config(setting, value)
    return started(builder)


def started(builder: SparkSession.Builder) -> SparkSession:
    """Start a session; Ctrl-C waits, for PySpark that is interrupted while it waits for its JVM leaves that running."""
    with hold_interrupts():
        return builder.getOrCreate()


@contextmanager
def sail_session() -> Iterator[SparkSession]:
    """Start Sail in this process, which needs no Java, and stop it; raises `MissingExtra` if it is not installed."""
    os.environ.setdefault("RUST_LOG", "error")  # how much it logs
    try:
        from pysail.spark import SparkConnectServer
    except ImportError as error:
        raise MissingExtra("Spark without Java", "sail", error) from None
    from pyspark.sql import SparkSession

    server = SparkConnectServer()
    server.start(background=True)
    _, port = server.listening_address
    spark = SparkSession.builder.remote(f"sc://localhost:{port}").getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()
        server.stop()
