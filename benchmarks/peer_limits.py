"""The limits of the comparison with peers, `benchmarks.peers`."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks import files, merging, reducing
from benchmarks.costs import Cost, cost_of
from benchmarks.musthold import Figure, MustHold
from benchmarks.shapes import INTEGER_KEYS, TEXTS
from benchmarks.sizes import Size, size_of


def must_hold(
    reduced: Sequence[Cost], merged: Sequence[Cost], stored: Sequence[Size], read: Sequence[Cost]
) -> list[MustHold]:
    """Return the figures of `benchmarks.peers` that have limits: ratios of the costs of reducing rows and of reading
    files, the costs of merging states, and ratios of the bytes of states.
    """
    many = reducing.MANY
    ours = cost_of(reduced, "dds", reducing.REDUCE, many)
    duckdb = cost_of(reduced, "approx_quantile", "DuckDB", many)
    loop = cost_of(reduced, "ddsketch", "ddsketch", many)
    limits = [
        MustHold("dds reduce / DuckDB approx_quantile, many groups", 0.5, _ratio(ours, duckdb)),
        MustHold("dds reduce / ddsketch.add, many groups", 1 / 50, _ratio(ours, loop)),
    ]
    limits += [
        MustHold(f"merging {cost.what}: ns a state", 3000.0, cost.ns)
        for cost in merged
        if cost.who == "tiltframe" and cost.what.startswith("dds") and merging.SCATTERED not in cost.what
    ]
    for distribution, rows in dict.fromkeys((size.distribution, size.rows) for size in stored):
        bytes_, protobuf = (size_of(stored, what, distribution, rows) for what in ("dds", "ddsketch"))
        limits.append(MustHold(f"dds bytes / protobuf, {distribution}, {rows:,} rows", 1.2, bytes_ / protobuf))
    for shape in (TEXTS, INTEGER_KEYS):
        queries = ((files.NINE, files.ANSWERS), (files.EIGHT, "DuckDB"))
        own_cost, duckdb_cost = (cost_of(read, *query, shape.name) for query in queries)
        label = f"Parquet to answers of nine functions / DuckDB's seven and approx_quantile, {shape.name}"
        limits.append(MustHold(label, 0.4, _ratio(own_cost, duckdb_cost)))
    return limits


def _ratio(ours: Figure, duckdb: Figure) -> Figure:
    return None if ours is None or duckdb is None else ours / duckdb
