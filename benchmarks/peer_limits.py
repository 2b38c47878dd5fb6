"""The limits of the comparison with peers, `benchmarks.peers`."""

from __future__ import annotations

from collections.abc import Sequence

from aggr.bench.report import OURS
from benchmarks import files
from benchmarks.costs import OURS_REDUCE_ONLY, Cost, cost_of, reduce_only_library
from benchmarks.data_sets import INTEGER_KEYS, TEXTS
from benchmarks.musthold import Figure, LimitedFigure
from benchmarks.peer_reports import MANY, SCATTERED, Bytes


def limited_figures(
    reduce_costs: Sequence[Cost], merge_costs: Sequence[Cost], state_sizes: Sequence[Bytes], file_costs: Sequence[Cost]
) -> list[LimitedFigure]:
    """Return the figures of `benchmarks.peers` that have limits: the costs of reducing rows and of reading files, each
    divided by the cost of another library; the costs of merging states; and the bytes of states of dds, divided by the
    bytes of ddsketch's sketches.
    """
    dds_cost = cost_of(reduce_costs, "dds", OURS_REDUCE_ONLY, MANY)
    duckdb_quantile_cost = cost_of(reduce_costs, "approx_quantile", "duckdb", MANY)
    ddsketch_cost = cost_of(reduce_costs, "ddsketch", reduce_only_library("ddsketch"), MANY)
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
    for (sketch, rows), protobuf in bytes_of.items():
        if sketch == "ddsketch":
            limits.append(LimitedFigure(f"dds bytes / protobuf, {rows:,} rows", 1.2, bytes_of["dds", rows] / protobuf))
    for data_set in (TEXTS, INTEGER_KEYS):
        own_cost = cost_of(file_costs, files.NINE_FUNCTIONS_NAME, files.OURS_TO_RESULTS, data_set.name)
        duckdb_cost = cost_of(file_costs, files.EIGHT_AGGREGATES_NAME, "DuckDB", data_set.name)
        # tiltframe's time from a Parquet file to the results of nine functions, divided by DuckDB's time for seven
        # aggregates and approx_quantile.
        label = f"Parquet to answers of nine functions / DuckDB's seven and approx_quantile, {data_set.name}"
        limits.append(LimitedFigure(label, 0.4, _ratio(own_cost, duckdb_cost)))
    return limits


def _ratio(numerator: Figure, denominator: Figure) -> Figure:
    return None if numerator is None or denominator is None else numerator / denominator
