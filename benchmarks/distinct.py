"""Distinct counts: approx_count_distinct next to DuckDB's on one core; next to Spark's see benchmarks.builtins.

    python -m benchmarks.distinct [--quick]

All sides alternate in one process; ratios of medians are compared. DuckDB and "tiltframe" go from an integer key to
counts; "tiltframe, reduce" is our kernel alone, with groups that are known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import click
import numpy as np
import pyarrow as pa

import aggr
from aggr.bench.timing import alternate, one_core
from aggr.groups.groups import Groups, group_by
from benchmarks.costs import Cost, show_grid
from benchmarks.musthold import MustHold, show_must_hold

GROUPS = 36_000
ONE_GROUP, MANY = "one group", f"{GROUPS:,} groups"
REDUCE, ANSWERS, DUCKDB = "tiltframe, reduce", "tiltframe", "DuckDB"
SKETCH = aggr.approx_count_distinct("x")


def sample(rows: int) -> pa.Table:
    """Draw whole numbers, few of them twice, in random groups."""
    rng = np.random.default_rng(11)
    return pa.table({"g": rng.integers(0, GROUPS, rows), "x": rng.integers(0, 1 << 40, rows)})


def local(table: pa.Table, rounds: int) -> list[Cost]:
    """Time reducing, and answering, over one group and over many."""
    import duckdb

    costs = []
    with duckdb.connect(config={"threads": 1}) as db:
        db.register("arrow", table)
        db.execute("CREATE TABLE rows AS SELECT * FROM arrow")
        for case, sql in ((ONE_GROUP, "{} FROM rows"), (MANY, "g, {} FROM rows GROUP BY g")):
            query = "SELECT " + sql.format("approx_count_distinct(x)")
            keys = [table.column("g").chunk(0)] if case == MANY else []
            calls: dict[str, Callable[[], object]] = {
                REDUCE: partial(_reduced, table, group_by(keys, len(table))[0]),
                ANSWERS: partial(_answered, table, keys),
                DUCKDB: partial(_fetch, db, query),
            }
            seconds = alternate(list(calls.values()), rounds)
            costs += [Cost(case, who, "", s / len(table) * 1e9) for who, s in zip(calls, seconds, strict=True)]
    return costs


def _reduced(table: pa.Table, groups: Groups) -> pa.Array:
    """Reduce with groups that remember nothing of the last time."""
    return SKETCH.reduce(table, Groups(groups.ids, groups.n))


def _answered(table: pa.Table, keys: Sequence[pa.Array]) -> pa.Array:
    return SKETCH.function.finish(SKETCH.reduce(table, group_by(keys, len(table))[0]))


def _fetch(db: Any, query: str) -> None:
    db.execute(query).fetchnumpy()


@click.command()
@click.option("--quick", is_flag=True, help="A fifth of the rows, fewer rounds.")
def command(quick: bool) -> None:
    """Compare with DuckDB's approximate distinct count; exit status 1 if something that must hold does not."""
    table = sample(2_000_000 if quick else 10_000_000).combine_chunks()
    rounds = 3 if quick else 5
    one_core()
    costs = local(table, rounds)
    limits = [(MANY, REDUCE, DUCKDB, 1.0), (ONE_GROUP, REDUCE, DUCKDB, 1.0)]
    show_grid(f"{len(table):,} rows, ns a row", costs, DUCKDB)
    ns = {(cost.who, cost.what): cost.ns for cost in costs}
    lines = [
        MustHold(f"{ours} / {peer}, {case}", limit, ns[ours, case] / ns[peer, case])
        for case, ours, peer, limit in limits
    ]
    show_must_hold(lines)
    raise SystemExit(any(line.verdict == "FAIL" for line in lines))


if __name__ == "__main__":
    command()
