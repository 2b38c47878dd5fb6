"""The CPU time to read a Parquet file and to aggregate it by window and key, compared with DuckDB, on one core."""

from __future__ import annotations

import importlib.util
import math
import time
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from aggr.bench import alternate, draw
from aggr.bench.timing import Call
from benchmarks.costs import Cost
from benchmarks.data_sets import INTEGER_KEYS, TEXTS, DataSet
from benchmarks.quantiles import QUANTILES
from tiltframe import TiltFrame, finish, rollup

WINDOW = 10  # the length of a window in seconds
ROWS_PER_GROUP = 555
# The names of operations in the figures. ``OURS_TO_STATES`` and ``OURS_TO_RESULTS`` are used as names of libraries: for
# the time in which tiltframe computes states from a file, and for the time in which it computes results from a file.
NINE_FUNCTIONS_NAME = "count … stdev, dds, hdr"
OURS_TO_STATES = "tiltframe, states"
OURS_TO_RESULTS = "tiltframe, answers"
EIGHT_AGGREGATES_NAME = "count … stdev, approx_quantile"
SEVEN_AGGREGATES_NAME = "count … stdev"
SKETCH_NAME = "approx_quantile"
READING_NAME = "reading alone"

_SEVEN_SQL = "count(x), min(x), max(x), sum(x), avg(x), variance(x), stddev(x)".replace("(x)", "(latency_ms)")
_SKETCH_SQL = f"approx_quantile(latency_ms, {list(QUANTILES)})"


def files(rows: int, rounds: int) -> list[Cost]:
    """Compare the reading and aggregation of Parquet files by tiltframe and DuckDB, and return the costs, in
    nanoseconds per row. One file has text keys, and one has integer keys; the rows of each file are in ascending order
    of event time. Results are compared before anything is timed. Without DuckDB, return an empty list.
    """
    if not importlib.util.find_spec("duckdb"):
        return []
    return [cost for data_set in (TEXTS, INTEGER_KEYS) for cost in _costs_of_data_set(data_set, rows, rounds)]


def _costs_of_data_set(data_set: DataSet, rows: int, rounds: int) -> list[Cost]:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "latencies.parquet"
        write_rows(path, rows, data_set)
        check(path, data_set)
        calls: dict[tuple[str, str], Call] = {
            (NINE_FUNCTIONS_NAME, OURS_TO_STATES): partial(states, path, data_set),
            (NINE_FUNCTIONS_NAME, OURS_TO_RESULTS): partial(answers, path, data_set),
            (READING_NAME, "pyarrow"): partial(read_columns, path),
            (EIGHT_AGGREGATES_NAME, "DuckDB"): partial(query_duckdb, path, f"{_SEVEN_SQL}, {_SKETCH_SQL}"),
            (SEVEN_AGGREGATES_NAME, "DuckDB"): partial(query_duckdb, path, _SEVEN_SQL),
            (SKETCH_NAME, "DuckDB"): partial(query_duckdb, path, _SKETCH_SQL),
        }
        seconds = alternate(list(calls.values()), rounds, clock=time.process_time)
    return [
        Cost(operation, library, data_set.name, seconds_of_call / rows * 1e9)
        for (operation, library), seconds_of_call in zip(calls, seconds, strict=True)
    ]


def write_rows(path: Path, rows: int, data_set: DataSet) -> None:
    """Write a Parquet file of rows with ascending event times, a host and a lognormal latency. There are about
    `ROWS_PER_GROUP` rows per window and host.
    """
    rng = np.random.default_rng(17)
    hosts = len(data_set.keys)
    span = max(1, rows // (ROWS_PER_GROUP * hosts)) * WINDOW * 1_000_000
    # The times begin at 2024-05-01, in microseconds since 1970.
    times = np.sort(rng.integers(0, span, rows)) + 1_714_521_600_000_000
    columns = {
        "ts": pa.array(times).cast(pa.timestamp("us", "UTC")),
        "host": data_set.keys.take(pa.array(rng.integers(0, hosts, rows))),
        "latency_ms": draw("lognormal", rows),
    }
    pq.write_table(pa.table(columns), path)


def frame(data_set: DataSet) -> TiltFrame:
    """Return a frame with windows of 10 seconds, the key ``host`` and nine measures."""
    return TiltFrame([f"{WINDOW}s"], time="ts", keys=["host"], measures=data_set.nine_measures)


def states(path: Path, data_set: DataSet) -> pa.Table:
    """Read a file and return one state per window, host and measure."""
    return rollup(path, frame(data_set))


def answers(path: Path, data_set: DataSet) -> pa.Table:
    """Read a file, and return the results of the nine measures by window and host."""
    frame_of_data_set = frame(data_set)
    return finish(rollup(path, frame_of_data_set), frame_of_data_set)


def read_columns(path: Path) -> int:
    """Read the three columns of a file without aggregating them, and return the number of rows."""
    return sum(batch.num_rows for batch in ds.dataset(path).to_batches())


def query_duckdb(path: Path, aggregates: str) -> pa.Table:
    """Return the results that DuckDB computes by window and host with one thread. ``aggregates`` are calls in SQL."""
    connection = importlib.import_module("duckdb").connect(config={"threads": 1})
    return connection.sql(
        f"SELECT epoch_us(ts) // {WINDOW * 1_000_000} AS w, host, {aggregates} FROM read_parquet('{path}') GROUP BY ALL"
    ).to_arrow_table()


def check(path: Path, data_set: DataSet) -> None:
    """Raise ``AssertionError`` if the simple aggregates of tiltframe and DuckDB differ in a group, or if quantiles of
    the first group are wrong.
    """
    answer = answers(path, data_set)
    duckdb_answer = query_duckdb(path, f"{_SEVEN_SQL}, {_SKETCH_SQL}").sort_by(
        [("w", "ascending"), ("host", "ascending")]
    )
    if (
        len(answer) != len(duckdb_answer)
        or answer.column("host").to_pylist() != duckdb_answer.column("host").to_pylist()
    ):
        raise AssertionError(
            f"the groups of tiltframe and DuckDB differ in number or in hosts: {len(answer)} and {len(duckdb_answer)} "
            "groups"
        )
    for i, name in enumerate(("count", "min", "max", "sum", "avg", "var", "stdev")):
        own_values = answer.column(name).to_numpy()
        duckdb_values = duckdb_answer.column(2 + i).to_numpy()
        if not np.allclose(own_values, duckdb_values, rtol=1e-9, atol=0):
            first = int(np.argmax(~np.isclose(own_values, duckdb_values, rtol=1e-9, atol=0)))
            raise AssertionError(
                f"{name} of group {first} is {own_values[first]} by tiltframe, and {duckdb_values[first]} by DuckDB"
            )
    _check_quantiles(path, answer)


def _check_quantiles(path: Path, answer: pa.Table) -> None:
    """Raise ``AssertionError`` if a quantile in the first row of ``answer`` differs from the true quantile of this
    group by more than the relative accuracy of the sketch. For hdr, it is enough if the value at the rank, or one of
    the values at the two neighbouring ranks, is within the accuracy.
    """
    row = answer.slice(0, 1).to_pylist()[0]
    condition = (pc.field("host") == row["host"]) & (pc.field("ts") < row["window_end"])
    ordered = np.sort(pq.read_table(path, columns=["latency_ms"], filters=condition).column(0).to_numpy())
    for name, accuracy in (("dds", 0.01), ("hdr", 0.01)):
        for q, estimate in row[name]["quantiles"].items():
            rank = math.floor(float(q) * (len(ordered) - 1))
            allowed_values = ordered[rank : rank + 1] if name == "dds" else ordered[max(0, rank - 1) : rank + 2]
            rounding_of_hdr = 0.005 if name == "hdr" else 0.0
            allowed_errors = accuracy * allowed_values * (1 + 1e-9) + rounding_of_hdr
            if (np.abs(estimate - allowed_values) > allowed_errors).all():
                raise AssertionError(
                    f"{name}: quantile {q} is {estimate}, but must be within the sketch's accuracy of one of "
                    f"{allowed_values}"
                )
