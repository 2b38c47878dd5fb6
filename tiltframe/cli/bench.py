"""tiltframe bench: speed, bytes and errors of any function, compared with other packages on the same rows."""

from __future__ import annotations

from pathlib import Path

import click
import pyarrow as pa

from aggr import Measure
from tiltframe.cli.interrupts import from_now
from tiltframe.cli.output import progress_bar
from tiltframe.tabular import rows_of
from tiltframe.text.measures import measure_from

_INTERRUPTED = "interrupted; no figures were written"


@click.command(
    name="bench",
    epilog="\b\nExamples:\n  "
    "tiltframe bench 'dds(x, [0.5, 0.99])' 'hdr(x, [0.5, 0.99], unit=0.01)'\n  "
    "tiltframe bench 'dds(ms, [0.5, 0.99])' --data day.parquet --against 'duckdb:quantile_cont(ms, [0.5, 0.99])'\n  "
    "tiltframe bench 'avg(x)' --groups 1,1000,100000 --out new.json --compare old.json --plot speed.png",
)
@click.argument("calls", nargs=-1, required=True, metavar="CALL…")
@click.option(
    "--against",
    multiple=True,
    metavar="PEER:EXPRESSION",
    help="Another package: duckdb:SQL, polars:SQL, datasketches:kll, ddsketch:ddsketch, hdrhistogram:hdrhistogram; "
    "repeatable. By default the counterparts of built-in functions that are installed; 'none' for none.",
)
@click.option(
    "--data", type=click.Path(path_type=Path), metavar="FILE", help="Use these rows; by default random values."
)
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
    "repeatable, errors are measured on each.",
)
@click.option(
    "--rounds", type=click.IntRange(min=1), default=5, show_default=True, help="Timed runs of each operation."
)
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of random values and groups.")
@click.option("--memory/--no-memory", default=True, show_default=True, help="Measure peak memory in a new process.")
@click.option("--all-cores", is_flag=True, help="Do not restrict the process to one core.")
@click.option("--format", "form", type=click.Choice(("table", "json")), default="table", show_default=True)
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write the figures to this JSON file.")
@click.option("--compare", type=click.Path(path_type=Path, dir_okay=False), help="Mark changes since this JSON file.")
@click.option("--plot", type=click.Path(path_type=Path, dir_okay=False), help="Draw the figures into this file.")
def bench_command(
    calls: tuple[str, ...],
    against: tuple[str, ...],
    data: Path | None,
    rows: float,
    groups: str,
    distributions: tuple[str, ...],
    rounds: int,
    seed: int,
    memory: bool,
    all_cores: bool,
    form: str,
    out: Path | None,
    compare: Path | None,
    plot: Path | None,
) -> None:
    """Measure the speed, the state sizes and the errors of functions.

    CALL is a measure, as for rollup: 'dds(x, [0.5, 0.99])'. Reduce, merge and finish are timed separately. The
    computation from rows to results is timed together with other packages. Errors are relative to the exact result.
    """
    from aggr.bench import Report, as_text, bench, one_core  # imported here, because no other command needs it
    from aggr.bench.plots import plot as draw_plot

    if not all_cores:
        one_core()
    measures = [measure_from(text) for text in calls]
    earlier = None if compare is None else Report.from_json(_text_of(compare))
    from_now(_INTERRUPTED)
    with progress_bar("measuring", 0) as advance:
        done = 0

        def show(place: int, total: int, _step: str) -> None:
            nonlocal done
            advance(place - done, total if place == 0 else 0)
            done = place

        report = bench(
            measures,
            against=_peers(against),
            data=None if data is None else _rows_in(data, measures),
            rows=int(rows),
            groups=_group_counts(groups),
            distributions=distributions,
            rounds=rounds,
            seed=seed,
            memory=memory,
            progress=show,
        )
    if out is not None:
        out.write_text(report.to_json() + "\n", encoding="utf-8")
    if plot is not None and report.timings:
        draw_plot(report, plot)
    click.echo(report.to_json() if form == "json" else as_text(report, earlier))
    if not report.is_complete:
        raise KeyboardInterrupt


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


def _rows_in(file: Path, measures: list[Measure]) -> pa.Table:
    """Read the columns of the measures from a file."""
    rows = rows_of(
        str(file), "data", lambda names: [name for measure in measures for name in measure.columns(names)], time=""
    )
    return pa.Table.from_batches(list(rows.batches), rows.schema)


def _text_of(file: Path) -> str:
    return file.read_text(encoding="utf-8")
