"""tiltframe bench: measure the speed, the size of states and the errors of functions. The functions of other packages
are measured on the same rows. With --spark, the functions of Spark are measured instead of other packages.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pyarrow as pa
from click.core import ParameterSource

from aggr import Measure
from tiltframe.cli.interrupts import set_interrupt_message
from tiltframe.cli.output import progress_bar
from tiltframe.tabular import rows_of
from tiltframe.text.measures import measure_from

if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.metadata import EntryPoint

    from aggr.bench import Report

_GROUP = "tiltframe.benchmarks"  # the group of entry points for benchmarks outside of this process, such as on Spark
_ONLY_ON_SPARK = ("master", "settings", "table", "keys", "time", "levels", "skewed", "folder")
_ONLY_HERE = ("memory", "checked_states", "cpu_time", "all_cores")
_WRITTEN = "interrupted; the figures so far were written"
_INTERRUPTED = "interrupted; no figures were written"


@click.command(
    name="bench",
    epilog="\b\nExamples:\n  "
    "tiltframe bench 'dds(x, [0.5, 0.99])' 'hdr(x, [0.5, 0.99], unit=0.01)'\n  "
    "tiltframe bench 'dds(ms, [0.5, 0.99])' --data day.parquet --against 'duckdb:quantile_cont(ms, [0.5, 0.99])'\n  "
    "tiltframe bench 'avg(x)' --groups 1,1000,100000 --out new.json --compare old.json --plot speed.png\n  "
    "tiltframe bench --spark 'dds(x, [0.5, 0.99])' --rows 1e7 --groups 1000,1000000 --skewed --master 'local[*]'",
)
@click.argument("calls", nargs=-1, required=True, metavar="CALL…")
@click.option(
    "--against",
    multiple=True,
    metavar="PEER:EXPRESSION",
    help="Another package: duckdb:SQL, polars:SQL, clickhouse:SQL, datasketches:kll, ddsketch:ddsketch, "
    "hdrhistogram:hdrhistogram, numpy:sum(x), spark:SQL; repeatable. The default is every installed package that has a "
    "counterpart of the function; 'none' compares with no package.",
)
@click.option("--data", metavar="FILE", help="Use the rows of this file; by default random values.")
@click.option("--rows", type=float, default=1e6, show_default="1e6", help="Number of random rows.")
@click.option("--groups", default="1,1000", show_default=True, metavar="N,…", help="Numbers of groups.")
@click.option(
    "--distribution",
    "distributions",
    multiple=True,
    metavar="NAME",
    default=("lognormal",),
    show_default=True,
    help="Distribution of the random values: pareto, exponential, lognormal, normal, uniform, bimodal or constant; "
    "repeatable: errors are measured on each, times only on the first.",
)
@click.option(
    "--rounds", type=click.IntRange(min=1), default=5, show_default=True, help="Timed runs of each operation."
)
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of random values and groups.")
@click.option("--memory/--no-memory", default=True, show_default=True, help="Measure peak memory in a new process.")
@click.option(
    "--checked-states",
    is_flag=True,
    help="Treat states as already checked: merge and finish them without a check, as a job does with its own states.",
)
@click.option(
    "--cpu-time",
    is_flag=True,
    help="Measure the CPU time of this process instead of elapsed time; other processes affect it less.",
)
@click.option("--all-cores", is_flag=True, help="Do not restrict the process to one core.")
@click.option(
    "--spark", "is_on_spark", is_flag=True, help="Measure jobs on Spark, and compare with Spark's own functions."
)
@click.option(
    "--master",
    default="local[*]",
    show_default=True,
    help="With --spark: the master, such as local-cluster[2,1,1024]; 'submit' leaves it to spark-submit.",
)
@click.option(
    "--conf", "settings", multiple=True, metavar="KEY=VALUE", help="With --spark: a setting of Spark; repeatable."
)
@click.option("--table", metavar="NAME", help="With --spark: the rows of a table; by default random values.")
@click.option(
    "--key",
    "keys",
    multiple=True,
    metavar="COLUMN",
    help="With --spark: group the rows of --data or --table by this column; repeatable. By default random keys.",
)
@click.option("--time", metavar="COLUMN", help="With --spark: the event times of the rows, for su.rollup.")
@click.option(
    "--levels",
    default="1d",
    show_default=True,
    metavar="LEVEL,…",
    help="With --spark and --time: the levels of su.rollup. The other jobs group by the finest one.",
)
@click.option("--skewed", is_flag=True, help="With --spark: also measure keys with half of the rows in one group.")
@click.option(
    "--folder",
    metavar="PATH",
    help="With --spark: a folder for rows that all executors can read; by default a local one.",
)
@click.option("--format", "form", type=click.Choice(("table", "json")), default="table", show_default=True)
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write the figures to this JSON file.")
@click.option(
    "--compare",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Mark changes from the figures in this JSON file.",
)
@click.option("--plot", type=click.Path(path_type=Path, dir_okay=False), help="Draw the figures into this file.")
@click.pass_context
def bench_command(
    context: click.Context,
    /,
    calls: tuple[str, ...],
    against: tuple[str, ...],
    data: str | None,
    rows: float,
    groups: str,
    distributions: tuple[str, ...],
    rounds: int,
    seed: int,
    memory: bool,
    checked_states: bool,
    cpu_time: bool,
    all_cores: bool,
    is_on_spark: bool,
    form: str,
    out: Path | None,
    compare: Path | None,
    plot: Path | None,
    **spark_options: Any,
) -> None:
    """Measure the speed, the state sizes and the errors of functions.

    CALL is a measure, as for rollup: 'dds(x, [0.5, 0.99])'. Reduce, merge and finish are timed separately. The complete
    computation from rows to results is also timed, for tiltframe and for other packages. Errors are relative to the
    exact result.

    With --spark, each call is measured in several ways: with su.rollup and su.group_by (su is spark_udaf), in
    DataFrame.agg, and in SQL. Spark's own functions run on the same rows. The shuffled and spilled bytes and the memory
    of Python workers are measured too.
    """
    from aggr.bench import Report, as_text, bench, one_core  # imported here, because no other command needs this module
    from aggr.bench.plots import plot as draw_plot

    _check_options(context, is_on_spark)
    measures = [measure_from(text) for text in calls]
    earlier = None if compare is None else Report.from_json(_text_of(compare))
    request: dict[str, Any] = {
        "against": _peers(against),
        "rows": int(rows),
        "groups": _group_counts(groups),
        "rounds": rounds,
        "seed": seed,
    }
    if not is_on_spark and not all_cores:
        one_core()
    set_interrupt_message(_INTERRUPTED)
    with _progress() as show:
        if is_on_spark:
            spark_options["levels"] = spark_options["levels"].split(",")
            distribution = _single(distributions)
            report = _on_spark(
                measures, data=data, distribution=distribution, progress=show, **request, **spark_options
            )
        else:
            rows_of_file = None if data is None else _rows_in(data, measures)
            report = bench(
                measures,
                data=rows_of_file,
                distributions=distributions,
                memory=memory,
                checked_states=checked_states,
                cpu_time=cpu_time,
                progress=show,
                **request,
            )
    if out is not None:
        out.write_text(report.to_json() + "\n", encoding="utf-8")
    if plot is not None and report.timings:
        draw_plot(report, plot)
    click.echo(report.to_json() if form == "json" else as_text(report, earlier))
    if not report.is_complete:
        if out is not None:
            set_interrupt_message(_WRITTEN)
        raise KeyboardInterrupt


@contextmanager
def _progress() -> Iterator[Callable[[int, int, str], None]]:
    """Show a progress bar, and yield the function that advances it."""
    with progress_bar("measuring", 0) as advance:
        done = 0

        def show(place: int, total: int, _step: str) -> None:
            nonlocal done
            advance(place - done, total if place == 0 else 0)
            done = place

        yield show


def _check_options(context: click.Context, is_on_spark: bool) -> None:
    """Raise an error if an option does not apply. Some options apply only with --spark, and others only without it."""
    refused_options = _ONLY_HERE if is_on_spark else _ONLY_ON_SPARK
    for name in refused_options:
        if context.get_parameter_source(name) == ParameterSource.COMMANDLINE:
            option = next(parameter.opts[0] for parameter in context.command.params if parameter.name == name)
            if is_on_spark:
                raise ValueError(f"{option} cannot be used with --spark; leave it out")
            raise ValueError(f"{option} needs --spark; pass --spark as well")


def _on_spark(measures: list[Measure], **request: Any) -> Report:
    from importlib.metadata import entry_points

    points: list[EntryPoint] = list(entry_points(group=_GROUP, name="spark"))
    if not points:
        raise ValueError("--spark needs PySpark: pip install 'tiltframe[spark-local]'")
    report: Report = points[0].load()(measures, **request)
    return report


def _single(distributions: tuple[str, ...]) -> str:
    if len(distributions) != 1:
        raise ValueError(f"with --spark, pass one --distribution; got {', '.join(distributions)}")
    return distributions[0]


def _peers(against: tuple[str, ...]) -> str | tuple[str, ...]:
    if not against:
        return "auto"
    return () if against == ("none",) else against


def _group_counts(text: str) -> list[int]:
    try:
        return [int(float(part)) for part in text.split(",")]
    except ValueError:
        raise ValueError(
            f"cannot read --groups {text!r}; write whole numbers separated by commas, such as 1,1000,1e6"
        ) from None


def _rows_in(file: str, measures: list[Measure]) -> pa.Table:
    """Return the rows of a file with the columns that the measures read."""
    rows = rows_of(
        file, "data", lambda names: [name for measure in measures for name in measure.columns(names)], time=""
    )
    return pa.Table.from_batches(list(rows.batches), rows.schema)


def _text_of(file: Path) -> str:
    return file.read_text(encoding="utf-8")
