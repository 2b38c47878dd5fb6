"""The states of the rows for which a condition is true, false and unknown merge to the state of all rows.

The method is ternary logic partitioning (Rigger and Su, 2020), applied to bits. ``TRIALS`` is the number of conditions,
and ``TILTFRAME_SEED`` is the seed from which they are drawn.
"""

from __future__ import annotations

import os
import random

import numpy as np
import pyarrow as pa
import pytest

import aggr
from aggr.arrow.bit_equality import digest
from aggr.registry import names
from aggr.sql import rows_where
from tests.random_conditions import Conditions, table
from tiltframe import FrameStore, TiltFrame, finish, rollup
from tiltframe.merged_windows import merge_panes
from tiltframe.store.testing import MemoryBackend

TRIALS = int(os.environ.get("TRIALS", "12"))
SEED = int(os.environ.get("TILTFRAME_SEED", random.randrange(10**6)))


def measures(where: str | None) -> dict[str, aggr.Measure]:
    """A call of every function, of the rows for which a condition holds."""
    all_measures = {
        **{name: getattr(aggr, name)("f", where=where) for name in ONE_INPUT},
        **{name: getattr(aggr, name)("f", "g", where=where) for name in ("corr", "covar", "slope", "intercept", "r2")},
        **{
            name: getattr(aggr, name)("i32", where=where) for name in ("bit_and", "bit_or", "bit_xor", "count_distinct")
        },
        **{name: getattr(aggr, name)("p", where=where) for name in ("bool_and", "bool_or")},
        **{name: getattr(aggr, name)("finite", "1h", where=where) for name in ("decayed_sum", "decayed_avg")},
        **{name: getattr(aggr, name)("s", "i64", where=where) for name in ("arg_min", "arg_max")},
        **{name: getattr(aggr, name)("s", "i64", 3, where=where) for name in ("top_k", "bottom_k")},
        "candlestick": aggr.candlestick("d1", "u8", where=where),
        "decayed_count": aggr.decayed_count("finite", "1h", where=where),
        "duration_in": aggr.duration_in("s", "a", where=where),
        "frequent": aggr.frequent("s", 0.1, where=where),
        "funnel": aggr.funnel("s", ["a", "b"], "1h", where=where),
        "geometric_mean": aggr.geometric_mean("u8", where=where),
        "harmonic_mean": aggr.harmonic_mean("u8", where=where),
        "hdr": aggr.hdr("u16", [0.5], where=where),
        "histogram": aggr.histogram("i16", [-5, 0, 5], where=where),
        "lttb": aggr.lttb("finite", 3, where=where),
        "per": aggr.per("s", {"n": aggr.count(), "s": aggr.sum("f")}, where=where),
        "weighted_avg": aggr.weighted_avg("f", "u8", where=where),
    }
    return all_measures


ONE_INPUT = (
    *("any_value", "approx_count_distinct", "avg", "avg_distinct", "collect", "collect_set", "count", "dds", "delta"),
    *("entropy", "exact_quantiles", "exponential", "first", "hll", "increase", "integral", "kurtosis", "last", "m4"),
    *("max", "min", "mode", "points", "range", "rate", "resets", "rms", "skewness", "stdev", "sum", "sum_distinct"),
    *("sum_of_squares", "time_weighted_avg", "value_counts", "var"),
)


def frame(where: str | None = None) -> TiltFrame:
    return TiltFrame(["1h", "1d"], "at", measures(where), ["who"])


def rows() -> pa.Table:
    """Every ugly value of every type, in a few hours of three keys."""
    draws = np.random.default_rng(SEED)
    values = table(SEED)
    at = pa.array(draws.integers(0, 3 * 3_600_000, values.num_rows))
    who = pa.array(draws.choice(["a", "b", None], values.num_rows))
    finite = pa.array(draws.normal(0, 1e3, values.num_rows), mask=draws.random(values.num_rows) < 0.1)
    return values.append_column("at", at).append_column("who", who).append_column("finite", finite)


def bits(states: pa.Table) -> dict[str, str]:
    ordered = states.sort_by([("window_start", "ascending"), ("who", "ascending")])
    return {name: digest(ordered.column(name)) for name in ordered.column_names if name not in ("level", "partial")}


def test_every_function_is_asked():
    assert sorted(measures(None)) == names()


@pytest.mark.slow
@pytest.mark.long
def test_three_parts_are_the_whole():
    """Chosen by a condition of the measures, and by one of the rows; merged in memory, and by a store."""
    print(f"seed {SEED}")
    all_rows, make, compared = rows(), Conditions(SEED), 0
    all_states = rollup(all_rows, frame())
    finest = all_states.filter(pa.compute.equal(all_states["level"], "1h"))
    answers = finish(all_states, frame()).drop_columns(["level"])
    while compared < TRIALS:
        condition = make.condition(depth=2)
        parts = [f"({condition})", f"NOT ({condition})", f"({condition}) IS NULL"]
        try:
            chosen = [all_rows.filter(pa.array(rows_where(part, all_rows))) for part in parts]
        except ValueError:
            continue  # it cannot be evaluated: a sum beyond its type, or text that is no number
        compared += 1
        assert sum(part.num_rows for part in chosen) == all_rows.num_rows, condition
        by_measures = [rollup(all_rows, frame(part)) for part in parts]
        by_measures = [part.set_column(0, all_states.schema.field(0), part["level"]) for part in by_measures]
        merged = merge_panes(
            pa.concat_tables([part.filter(pa.compute.equal(part["level"], "1h")) for part in by_measures]), frame()
        )
        assert bits(merged) == bits(finest.select(merged.column_names)), condition
        store = FrameStore(MemoryBackend(), frame(), row_schema=all_rows.schema)
        for number, part in enumerate(chosen):
            store.append(rollup(part, frame()), "w", number)
        for level in ("1h", "1d"):
            expected = answers.filter(pa.array([row == level for row in all_states["level"].to_pylist()]))
            assert bits(store.query(level)) == bits(expected), (condition, level)
