"""Write golden states of this release: ``python tests/golden/make.py v2``. Files of released versions never change.

A case is not written if an earlier folder has states of its function with the same version.
"""

from __future__ import annotations

import sys
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

import aggr
from aggr.function import Function
from aggr.groups.groups import Groups

IDS = Groups.of([0, 1, 0, 1, 3, 3, 0, 1, 3, 0], 4)
FLOATS = pa.array([1.5, -2.25, 1e16, None, float("nan"), 3.0, -1e16, 1e-300, float("inf"), 0.1])
INTEGERS = pa.array([3, 5, 2**40, None, 0, 7, 7, 1000, 123456, 9], pa.int64())
DECIMALS = pa.array([Decimal(f"{i}.25") for i in range(10)], pa.decimal128(12, 2))
CENTS = pa.array([Decimal(f"0.{i}0") for i in range(10)], pa.decimal128(12, 2))
BOOLEANS = pa.array([True, None, True, False, None, None, False, True, None, True])
WORDS = pa.array(["b", "a", None, "ä", "", "z", "B", "a", "y", "c"])
TIMES = pa.array([5, 3, 5, 1, 9, 2, 2, 3, 8, 7], pa.int64()).cast(pa.timestamp("us", "UTC"))


def events(values: pa.Array) -> pa.Array:
    """Give values their times."""
    return pa.StructArray.from_arrays([values, TIMES], names=["value", "time"])


CASES: dict[str, tuple[Function, pa.Array]] = {
    "count": (aggr.Count(), WORDS),
    "min-float": (aggr.Min(), FLOATS),
    "min-text": (aggr.Min(), WORDS),
    "max-decimal": (aggr.Max(), DECIMALS),
    "sum-float": (aggr.Sum(), FLOATS),
    "sum-int": (aggr.Sum(), INTEGERS),
    "sum-decimal": (aggr.Sum(), DECIMALS),
    "avg-time": (aggr.Avg(), TIMES),
    "var-float": (aggr.Var(), FLOATS),
    "stdev-int": (aggr.Stdev(0), INTEGERS),
    "dds": (aggr.Dds((0.1, 0.5, 1.0), 0.02), FLOATS),
    "dds-folded": (aggr.Dds((0.5,), 0.01, 30), DECIMALS),
    "dds-decimal": (aggr.Dds((0.1, 0.5, 1.0)), CENTS),
    "exponential": (aggr.Exponential((0.1, 0.5, 1.0), 10, 40), FLOATS),
    "exponential-decimal": (aggr.Exponential((0.5,), 10, 40), CENTS),
    "hdr": (aggr.Hdr((0.5, 0.99), 3), INTEGERS),
    "hdr-unit": (aggr.Hdr((0.5, 0.99), 2, 0.25), DECIMALS),
    "first": (aggr.First(), events(WORDS)),
    "last": (aggr.Last(), events(FLOATS)),
    "corr": (aggr.Corr(), pa.StructArray.from_arrays([FLOATS, INTEGERS], names=["y", "x"])),
    "covar-decimal": (aggr.Covar(), pa.StructArray.from_arrays([DECIMALS, INTEGERS], names=["y", "x"])),
    "kurtosis": (aggr.Kurtosis(), INTEGERS),
    "bool_and": (aggr.BoolAnd(), BOOLEANS),
    "bool_or": (aggr.BoolOr(), BOOLEANS),
    "bit_and": (aggr.BitAnd(), INTEGERS),
    "bit_or": (aggr.BitOr(), INTEGERS),
    "bit_xor": (aggr.BitXor(), INTEGERS),
    "any_value": (aggr.AnyValue(), events(WORDS)),
    "range": (aggr.Range(), DECIMALS),
    "m4": (aggr.M4(), events(FLOATS)),
    "rate": (aggr.Rate("1m"), events(FLOATS)),
    "integral": (aggr.Integral("linear", "1us"), events(INTEGERS)),
    "funnel": (aggr.Funnel(("a", "z"), "10us", max=5, keep="latest"), events(WORDS)),
    "decayed_sum": (aggr.DecayedSum("1us"), events(FLOATS)),
    "decayed_avg": (aggr.DecayedAvg("3us"), events(INTEGERS)),
    "decayed_count": (aggr.DecayedCount("100ms", as_of="1970-01-01T00:00:01"), events(DECIMALS)),
    "candlestick": (
        aggr.Candlestick(),
        pa.StructArray.from_arrays([FLOATS, INTEGERS, TIMES], names=["value", "volume", "time"]),
    ),
    "sum_of_squares": (aggr.SumOfSquares(), FLOATS),
    "rms": (aggr.Rms(), INTEGERS),
    "geometric_mean": (aggr.GeometricMean(), pc.abs(FLOATS)),
    "harmonic_mean": (aggr.HarmonicMean(), INTEGERS),
    "per": (
        aggr.Per({"s": aggr.sum("x"), "n": aggr.count(where="ok")}),
        pa.StructArray.from_arrays([WORDS, BOOLEANS, FLOATS], names=["key", "of.ok", "of.x"]),
    ),
    "per-sample": (aggr.Per(max=1, beyond="sample"), WORDS),
    "value_counts": (aggr.ValueCounts(), FLOATS),
    "mode": (aggr.Mode(), WORDS),
    "entropy": (aggr.Entropy(), INTEGERS),
    "exact_quantiles": (aggr.ExactQuantiles(), DECIMALS),
    "frequent": (aggr.Frequent(0.3), events(WORDS)),
    "top_k": (aggr.TopK(2), pa.StructArray.from_arrays([WORDS, FLOATS], names=["value", "by"])),
    "bottom_k": (aggr.BottomK(2), pa.StructArray.from_arrays([INTEGERS, DECIMALS], names=["value", "by"])),
    "arg_min": (aggr.ArgMin(), pa.StructArray.from_arrays([WORDS, FLOATS], names=["value", "by"])),
    "arg_max": (aggr.ArgMax(), pa.StructArray.from_arrays([INTEGERS, WORDS], names=["value", "by"])),
    "weighted_avg": (aggr.WeightedAvg(), pa.StructArray.from_arrays([FLOATS, INTEGERS], names=["value", "weight"])),
    "count_distinct": (aggr.CountDistinct(), WORDS),
    "sum_distinct": (aggr.SumDistinct(), DECIMALS),
    "avg_distinct": (aggr.AvgDistinct(), INTEGERS),
    "collect_set": (aggr.CollectSet(), FLOATS),
    "histogram": (aggr.Histogram((-2.25, 0, 5, 6)), FLOATS),
    "histogram-decimal": (aggr.Histogram((0.1, 0.3, 0.6)), CENTS),
    "approx_count_distinct": (aggr.ApproxCountDistinct(), WORDS),
    "hll": (aggr.Hll(), WORDS),
    "hll-int": (aggr.Hll(8), pa.array(range(0, 3000, 300))),
    "approx_count_distinct-float": (aggr.ApproxCountDistinct(16), FLOATS),
}


def main(version: str) -> None:
    """Write states and results, one file a case."""
    folder = Path(__file__).parent / version
    folder.mkdir(exist_ok=True)
    written = {file.stem: _version_in(file) for file in sorted(folder.parent.glob("v*/*.arrow"))}
    missing = {name: case for name, case in CASES.items() if written.get(name) != case[0].own_state.version}
    for name, (function, values) in missing.items():
        states = function.reduce(values, IDS)
        merged = function.merge(states, Groups.single(IDS.n))
        table = pa.table(
            {
                "states": states,
                "results": function.finish(states),
                "merged": merged.take(pa.array([0, None, None, None])),
                "result": function.finish(merged).take(pa.array([0, None, None, None])),
            }
        )
        with pa.ipc.new_file(folder / f"{name}.arrow", table.schema) as file:
            file.write_table(table)


def _version_in(file: Path) -> int:
    versions = pa.ipc.open_file(file).read_all().column("states").combine_chunks().field("version")
    return int(pc.max(versions).as_py())


if __name__ == "__main__":
    main(sys.argv[1])
