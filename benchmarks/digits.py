"""The number of correct decimal digits of statistics, for NIST's data sets and for random numbers near 1e9.

python -m benchmarks.digits [--out benchmarks/results/digits.json]

Statistics are computed for each pair of columns of a data set. The number of correct digits is the negative decimal
logarithm of the relative error, as in NIST's reports. The smallest number of correct digits over all pairs is reported,
or "all" if every result is the double nearest to the exact result.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import click
import numpy as np
import pyarrow as pa

import aggr
from aggr import Groups
from aggr.bench.timing import circumstances
from benchmarks.by_fractions import exact_pair_statistic, exact_statistic
from benchmarks.costs import create_table, print_table
from benchmarks.nist import SETS

OF_TWO = ("covar", "corr", "slope", "intercept", "r2")
OF_ONE = ("skewness", "kurtosis")
# The name of each function → its call in the SQL of Spark and DuckDB.
SQL = {
    "covar": "covar_samp(y, x)",
    "corr": "corr(y, x)",
    "slope": "regr_slope(y, x)",
    "intercept": "regr_intercept(y, x)",
    "r2": "regr_r2(y, x)",
    "skewness": "skewness(y)",
    "kurtosis": "kurtosis(y)",
}
# A pair of columns: the name of its data set, the values of y, and the values of x.
Pair = tuple[str, list[float], list[float]]
Results = dict[str, list[float | None]]
# The number of correct digits, by function. It is "all" if each result is the nearest double.
Digits = dict[str, float | str | None]


def column_pairs() -> list[Pair]:
    """Return all pairs of columns of each data set: those of NIST, and one of random numbers near 1e9."""
    rng = np.random.default_rng(5)
    columns_near_1e9 = [[*map(str, (1e9 + rng.normal(size=1000)).tolist())] for _ in range(4)]
    sets = {**SETS, "1e9 + normal": columns_near_1e9}
    return [
        (name, [*map(float, y)], [*map(float, x)])
        for name, columns in sets.items()
        for y, x in combinations(columns, 2)
    ]


def table_of(pairs: Sequence[Pair]) -> pa.Table:
    """Return one table with the rows of all pairs of columns. Its columns are the index of the pair, y and x."""
    numbers = np.repeat(np.arange(len(pairs)), [len(y) for _, y, _ in pairs])
    y, x = (np.concatenate([pair[side] for pair in pairs]) for side in (1, 2))
    return pa.table({"pair": numbers, "y": y, "x": x})


def exact_results(pairs: Sequence[Pair]) -> Results:
    """Return the exact statistics of each pair, rounded once."""
    statistics_of_pairs: Results = {name: [exact_pair_statistic(name, y, x) for _, y, x in pairs] for name in OF_TWO}
    return statistics_of_pairs | {
        name: [exact_statistic(name, y, sample=False) for _, y, _ in pairs] for name in OF_ONE
    }


def results_of_tiltframe(pairs: Sequence[Pair]) -> Results:
    """Return the statistics that tiltframe computes for each pair."""
    table = table_of(pairs)
    groups = Groups.of(table["pair"].to_numpy(), len(pairs))
    results = {}
    for name in SQL:
        function = aggr.get(name)()
        inputs = [table["y"], table["x"]] if name in OF_TWO else table["y"]
        results[name] = function.finish(function.reduce(inputs, groups)).to_pylist()
    return results


def results_of_scipy(pairs: Sequence[Pair]) -> Results:
    """Return the statistics that SciPy computes for each pair, and the covariance of NumPy."""
    from scipy import stats

    results: Results = {name: [] for name in SQL}
    for _, y, x in pairs:
        line = stats.linregress(x, y)
        correlation = float(stats.pearsonr(x, y).statistic)
        values = (np.cov(y, x)[0, 1], correlation, line.slope, line.intercept, line.rvalue**2)
        moments = (stats.skew(y), stats.kurtosis(y))
        for name, value in zip(SQL, (*values, *moments), strict=True):
            results[name].append(float(value))
    return results


def results_of_spark(pairs: Sequence[Pair]) -> Results:
    """Return the statistics that Spark computes for each pair."""
    from benchmarks.jobs import session

    with session() as spark_session:
        spark_session.createDataFrame(table_of(pairs).to_pandas()).createOrReplaceTempView("pairs")
        rows_of_spark = spark_session.sql(
            f"SELECT {', '.join(SQL.values())} FROM pairs GROUP BY pair ORDER BY pair"
        ).collect()
    return {name: list(column) for name, column in zip(SQL, zip(*rows_of_spark, strict=True), strict=True)}


def results_of_duckdb(pairs: Sequence[Pair]) -> Results:
    """Return the statistics that DuckDB computes for each pair. Skewness is left out, because DuckDB computes the
    skewness of a sample, and the other engines compute that of a population.
    """
    import duckdb as engine

    expressions = {**SQL, "skewness": "NULL", "kurtosis": "kurtosis_pop(y)"}
    with engine.connect() as db:
        db.register("pairs", table_of(pairs))
        rows_of_duckdb = db.execute(
            f"SELECT {', '.join(expressions.values())} FROM pairs GROUP BY pair ORDER BY pair"
        ).fetchall()
    return {name: list(column) for name, column in zip(expressions, zip(*rows_of_duckdb, strict=True), strict=True)}


def digits(value: float | None, exact: float | None) -> float:
    """Return the number of correct decimal digits of ``value``. ``exact`` is the exact result. Return infinity if
    ``value`` equals ``exact``. Otherwise, return 0 if one of them equals None, if ``value`` is not finite, or if
    ``exact`` is 0.
    """
    if value == exact:
        return math.inf
    if value is None or exact is None or not math.isfinite(value):
        return 0.0
    return max(0.0, -math.log10(abs(value - exact) / abs(exact))) if exact else 0.0


def fewest_correct_digits(pairs: Sequence[Pair], results: Results, exact: Results) -> dict[str, Digits]:
    """Return, by data set and function, the smallest number of correct digits over all pairs of columns. Instead of a
    number, the value is "all" if every result is the nearest double, and None if the engine does not have the function.
    """
    digits_of_sets: dict[str, Digits] = {}
    for name in SQL:
        for set_name in dict.fromkeys(set_of_pair for set_of_pair, *_ in pairs):
            indices = [index for index, (set_of_pair, *_) in enumerate(pairs) if set_of_pair == set_name]
            fewest_digits = min(digits(results[name][index], exact[name][index]) for index in indices)
            digits_of_set = digits_of_sets.setdefault(set_name, {})
            if all(results[name][index] is None for index in indices):
                digits_of_set[name] = None
            elif fewest_digits == math.inf:
                digits_of_set[name] = "all"
            else:
                digits_of_set[name] = round(fewest_digits, 1)
    return digits_of_sets


def show_digits(by_engine: dict[str, dict[str, Digits]]) -> None:
    """Print one line per data set and function, and one column per engine."""
    table = create_table("Correct digits of the worst pair of columns", ["", "", *by_engine])
    for name in next(iter(by_engine.values())):
        for function in SQL:
            cells: Sequence[object] = [by_engine[engine][name][function] for engine in by_engine]
            table.add_row(name, function, *("" if cell is None else str(cell) for cell in cells))
    print_table(table)


@click.command()
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write the figures to this JSON file.")
def main(out: Path | None) -> None:
    """Compare the results of each engine with the exact results. Exit with status 1 unless all results of tiltframe are
    the nearest doubles.
    """
    warnings.simplefilter("ignore")
    pairs = column_pairs()
    exact = exact_results(pairs)
    engines = {
        "tiltframe": results_of_tiltframe,
        "Spark": results_of_spark,
        "DuckDB": results_of_duckdb,
        "SciPy": results_of_scipy,
    }
    digits_of_engines = {name: fewest_correct_digits(pairs, compute(pairs), exact) for name, compute in engines.items()}
    show_digits(digits_of_engines)
    if out is not None:
        out.write_text(
            json.dumps({**circumstances(("pyspark", "duckdb", "scipy")), "digits": digits_of_engines}, indent=1) + "\n"
        )
    raise SystemExit(any(cell != "all" for cells in digits_of_engines["tiltframe"].values() for cell in cells.values()))


if __name__ == "__main__":
    main()
