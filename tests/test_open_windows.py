"""Open windows against what other engines emit, step by step: shared/conformance/streams.json and siddhi.json."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

import aggr
from tests.conftest import conformance
from tiltframe import TiltFrame
from tiltframe.level_chain import reduce_rows
from tiltframe.streaming import Buffer, Drop, OpenWindows, TrueWindow, read_emit

SCALE = 1_000_000  # a unit of a case, whatever it is, is a second: windows are of whole seconds
END_OF_TIME = 2**62 - 1


def frame_of(case: dict) -> TiltFrame:
    window = case["window"]
    offset = f", offset={window['offset']}s" if window.get("offset") else ""
    level = {
        "tumbling": "tumbling({size}s" + offset + ")",
        "hopping": "hopping({size}s, {hop}s" + offset + ")",
        "session": "session({gap}s)",
        "whole": "all",
    }[window["kind"]].format(**window)
    return TiltFrame([level], "time", {"count": aggr.count(), "sum": aggr.sum("value")}, ["key"])


def policies_of(case: dict) -> tuple:
    begun = {"every_n": "after_count(rows={n}, ", "periodic": "periodic(every={period}s, "}
    text = begun.get(case["emit"], case["emit"] + "(").format(**case)
    late = TrueWindow() if case["late"] == "true_window" else Drop(f"{case['lateness']}s")
    return read_emit(f"{text}mode={case['mode']}, delay={case['delay']}s)"), late


def played(case: dict, add) -> Iterator[tuple[str, list, list]]:
    """Feed the steps of a case; yield what is expected and what has come since, for rows emitted and for late ones."""
    windows = OpenWindows(frame_of(case), *policies_of(case))
    watermark, now, emitted, late = None, 0, [], []
    windows.advance(now=0)
    for step in case["steps"]:
        ((kind, given),) = step.items()
        if kind == "input":
            late += add(windows, rows_of(given))
        elif kind == "watermark":
            watermark = given * SCALE
        elif kind == "time":
            now = given * SCALE
        elif kind == "restart":
            windows = OpenWindows.from_ipc(windows.to_ipc())
        elif kind == "expect":
            yield "emitted", given, emitted
            emitted = []
        else:
            yield "late", given, late
            late = []
        if kind in ("input", "watermark", "time"):
            emitted += windows.results(windows.advance(watermark, now)).to_pylist() if windows._levels else []
    yield "emitted", [], emitted


def rows_of(given: list[dict]) -> pa.Table:
    times = pa.array([row["time"] * SCALE for row in given], pa.timestamp("us", "UTC"))
    values = pa.array([row["value"] for row in given], pa.float64())
    return pa.table({"key": pa.array([row["key"] for row in given], pa.string()), "time": times, "value": values})


def told(row: dict) -> tuple:
    start, end = (None if row[n] is None else row[n].timestamp() * 1e6 / SCALE for n in ("window_start", "window_end"))
    change = row.get("change", 1)
    return row["key"], start, end, row["count"], pytest.approx(row["sum"], abs=1e-9), row["reason"] == "late", change < 0


def wanted(row: dict) -> tuple:
    return tuple(row[n] for n in ("key", "start", "end", "count", "sum", "late", "retraction"))


def by_rows(windows: OpenWindows, rows: pa.Table) -> list[dict]:
    return windows.add_rows(rows).to_pylist()


def compare(case: dict, what: str, expected: list, got: list) -> None:
    if what == "late":
        got = [{**row, "time": row["time"].timestamp() * 1e6 / SCALE} for row in got]
        assert sorted(map(str_of, got)) == sorted(map(str_of, expected))
        return
    left = [told(row) for row in got]
    assert len(left) == len(expected), (left, expected)
    for row in expected:
        assert wanted(row) in left
        left.remove(wanted(row))
    places = [(row["key"], row.get("change", 1)) for row in got]
    for key in {key for key, _ in places}:
        changes = [change for k, change in places if k == key]
        assert changes == sorted(changes) or case["mode"] != "changelog" or len(changes) > 2


def str_of(row: dict) -> str:
    return f"{row['key']} {row['time']:g} {row['value']:g}"


@conformance("streams.json")
def test_streams(case):
    for what, expected, got in played(case, by_rows):
        compare(case, what, expected, got)
