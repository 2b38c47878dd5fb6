"""Expected results from Kaskada's own tests, for running aggregates and the windows since and sliding."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa

import aggr
from tests.conftest import conformance
from tiltframe import running
from windows import ordered

FUNCTIONS = {
    "mean": lambda column: aggr.avg(column),
    "variance": lambda column: aggr.var(column, ddof=0),
    "stddev": lambda column: aggr.stdev(column, ddof=0),
}
TICKS = {
    "minutely": ordered.minutely(),
    "hourly": ordered.hourly(),
    "daily": ordered.daily("UTC"),
    "monthly": ordered.monthly("UTC"),
    "yearly": ordered.yearly("UTC"),
}


def typed(values):
    """Read a column of text: numbers and booleans, where empty is null; else text, where empty is a value."""
    present = [v for v in values if v != ""]
    if present and all(v in ("true", "false") for v in present):
        return pa.array([None if v == "" else v == "true" for v in values])
    for kind in (int, float):
        try:
            return pa.array([None if v == "" else kind(v) for v in values])
        except ValueError:
            continue
    return pa.array(values)


def table_of(case):
    names = list(dict.fromkeys(name for row in case["rows"] for name in row))
    text = {name: [row.get(name, "") for row in case["rows"]] for name in names}
    keep = {name: pa.array(text[name]) for name in (case["config"][0], case["config"][2])}
    return pa.table({name: keep.get(name, typed(column)) for name, column in text.items() if name})


def condition_of(where):
    if where == "every row":
        return ()
    column, operator, value = where
    return (f"{column} = {str(value).lower()}" if operator == "is" else f"{column} {operator} {value}",)


def window_of(spec):
    if spec is None:
        return ordered.running()
    if "since" in spec:
        reset = spec["since"]
        return ordered.since(*([TICKS[reset["tick"]]] if "tick" in reset else condition_of(reset["where"])))
    resets = [TICKS[spec["tick"]]] if "tick" in spec else condition_of(spec["where"])
    return ordered.sliding(spec["sliding"], *resets)


def measure_of(spec):
    if spec["input"] is None:
        return aggr.count()
    make = FUNCTIONS.get(spec["fn"]) or getattr(aggr, spec["fn"])
    return make(spec["input"])


def agrees(actual, expected, function):
    if expected == "":
        # of one value Kaskada tells no variance; ours with ddof=0 is 0.0
        return actual in (None, "") or (function in ("variance", "stddev") and actual == 0.0)
    if isinstance(actual, bool):
        return str(actual).lower() == expected
    if isinstance(actual, (int, float)):
        return math.isclose(actual, float(expected), rel_tol=1e-12)
    return actual == expected


def instant(text):
    return np.datetime64(text, "us").astype(np.int64)


@conformance("kaskada.json")
def test_kaskada(case):
    time, subsort, key, _ = case["config"]
    measured = {name: spec for name, spec in case["measures"].items() if "fn" in spec}
    measures = {f"_{name}": measure_of(spec) for name, spec in measured.items()}
    windows = {f"_{name}": window_of(spec.get("window")) for name, spec in measured.items()}
    emit = "final" if case["final_only"] else "rows"
    actual = running(table_of(case), measures, windows, time=time, keys=[key], order=[subsort], emit=emit).to_pylist()
    assert len(actual) == len(case["expected"])
    for value in {row["key"] for row in case["expected"]}:
        ours = [row for row in actual if row[key] == value]
        expected_rows = [row for row in case["expected"] if row["key"] == value]
        for row, expected in zip(ours, expected_rows, strict=True):
            if not case["final_only"]:  # theirs is just after all rows; ours is the time of the key's last row
                at = pa.array([row[time]])
                at = at.cast(pa.timestamp("us", "UTC")) if pa.types.is_string(at.type) else at
                assert at.cast(pa.timestamp("us")).cast(pa.int64())[0].as_py() == instant(expected["time"])
                assert row.get("tick", False) == expected["tick"]
            for name, spec in case["measures"].items():
                value_found = row[f"_{name}"] if "fn" in spec else row[spec["column"]]
                assert agrees(value_found, expected[name], spec.get("fn")), (name, row, expected)
