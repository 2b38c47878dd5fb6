"""The limits of the comparison with peers, `benchmarks.peers`."""

from __future__ import annotations

from collections.abc import Sequence

from aggr.bench.report import OURS
from benchmarks import files
from benchmarks.costs import OURS_REDUCE, Cost, cost_of, reduce_label
from benchmarks.musthold import Figure, LimitedFigure
from benchmarks.peer_reports import MANY, SCATTERED, Bytes
from benchmarks.shapes import INTEGER_KEYS, TEXTS


def limited_figures(
    reduce_costs: Sequence[Cost], merge_costs: Sequence[Cost], state_sizes: Sequence[Bytes], file_costs: Sequence[Cost]
) -> list[LimitedFigure]:
    """Return the figures of `benchmarks.peers` that have limits: ratios of the costs of reducing rows and of reading
    files, the costs of merging states, and ratios of the bytes of states.
    """
    dds_cost = cost_of(reduce_costs, "dds", OURS_REDUCE, MANY)
    duckdb_quantile_cost = cost_of(reduce_costs, "approx_quantile", "duckdb", MANY)
    ddsketch_cost = cost_of(reduce_costs, "ddsketch", reduce_label("ddsketch"), MANY)
    limits = [
        LimitedFigure("dds reduce / DuckDB approx_quantile, many groups", 0.5, _ratio(dds_cost, duckdb_quantile_cost)),
        LimitedFigure("dds reduce / ddsketch.add, many groups", 1 / 50, _ratio(dds_cost, ddsketch_cost)),
    ]
    limits += [
        LimitedFigure(f"merging {cost.what}: ns a state", 3000.0, cost.ns)
        for cost in merge_costs
        if cost.who == OURS and cost.what.startswith("dds") and SCATTERED not in cost.what
    ]
    bytes_of = {(size.what, size.rows): size.bytes for size in state_sizes}
    for (what, rows), protobuf in bytes_of.items():
        if what == "ddsketch":
            limits.append(LimitedFigure(f"dds bytes / protobuf, {rows:,} rows", 1.2, bytes_of["dds", rows] / protobuf))
    for shape in (TEXTS, INTEGER_KEYS):
        queries = ((files.NINE, files.ANSWERS), (files.EIGHT, "DuckDB"))
        own_cost, duckdb_cost = (cost_of(file_costs, *query, shape.name) for query in queries)
        label = f"Parquet to answers of nine functions / DuckDB's seven and approx_quantile, {shape.name}"
        limits.append(LimitedFigure(label, 0.4, _ratio(own_cost, duckdb_cost)))
    return limits


def _ratio(dds_cost: Figure, duckdb_quantile_cost: Figure) -> Figure:
    return None if dds_cost is None or duckdb_quantile_cost is None else dds_cost / duckdb_quantile_cost
