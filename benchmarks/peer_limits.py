"""The limits of the comparison with peers, `benchmarks.peers`."""

from __future__ import annotations

from collections.abc import Sequence

from aggr.bench.report import OURS
from benchmarks import files
from benchmarks.costs import REDUCE, Cost, cost_of, reduce_of
from benchmarks.musthold import Figure, MustHold
from benchmarks.peer_reports import MANY, SCATTERED, Bytes
from benchmarks.shapes import INTEGER_KEYS, TEXTS


def must_hold(
    reduced: Sequence[Cost], merged: Sequence[Cost], stored: Sequence[Bytes], read: Sequence[Cost]
) -> list[MustHold]:
    """Return the figures of `benchmarks.peers` that have limits: ratios of the costs of reducing rows and of reading
    files, the costs of merging states, and ratios of the bytes of states.
    """
    ours = cost_of(reduced, "dds", REDUCE, MANY)
    duckdb = cost_of(reduced, "approx_quantile", "duckdb", MANY)
    loop = cost_of(reduced, "ddsketch", reduce_of("ddsketch"), MANY)
    limits = [
        MustHold("dds reduce / DuckDB approx_quantile, many groups", 0.5, _ratio(ours, duckdb)),
        MustHold("dds reduce / ddsketch.add, many groups", 1 / 50, _ratio(ours, loop)),
    ]
    limits += [
        MustHold(f"merging {cost.what}: ns a state", 3000.0, cost.ns)
        for cost in merged
        if cost.who == OURS and cost.what.startswith("dds") and SCATTERED not in cost.what
    ]
    bytes_of = {(size.what, size.rows): size.bytes for size in stored}
    for (what, rows), protobuf in bytes_of.items():
        if what == "ddsketch":
            limits.append(MustHold(f"dds bytes / protobuf, {rows:,} rows", 1.2, bytes_of["dds", rows] / protobuf))
    for shape in (TEXTS, INTEGER_KEYS):
        queries = ((files.NINE, files.ANSWERS), (files.EIGHT, "DuckDB"))
        own_cost, duckdb_cost = (cost_of(read, *query, shape.name) for query in queries)
        label = f"Parquet to answers of nine functions / DuckDB's seven and approx_quantile, {shape.name}"
        limits.append(MustHold(label, 0.4, _ratio(own_cost, duckdb_cost)))
    return limits


def _ratio(ours: Figure, duckdb: Figure) -> Figure:
    return None if ours is None or duckdb is None else ours / duckdb
