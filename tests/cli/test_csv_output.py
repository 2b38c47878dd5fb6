"""Results as CSV: other programs can read every cell, also lists and structs."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
from itertools import product

import pyarrow as pa

import aggr
from tests.command_line import call
from tiltframe import FrameStore, TiltFrame, rollup, show, to_pandas
from tiltframe.extend import csv_cells, json_lines

ROWS = pa.table(
    {
        "ts": [0, 1000, 61_000],
        "host": ["a;b", 'say "x", y', None],
        "at": pa.array([{"x": 1, "tags": ["p", None]}, {"x": None, "tags": []}, None]),
        "raw": pa.array([b"\xff\x00", b"ab", None]),
    }
)
MEASURES = {
    "hosts": aggr.collect("host", max=5),
    "raws": aggr.collect_set("raw", max=5),
    "raw": aggr.last("raw"),
    "n": aggr.dds("ts", quantiles=[0.5, 0.999]),
}


def test_lists_and_bytes_go_to_csv_as_json_does(tmp_path, capfd):
    frame = TiltFrame(["1m"], "ts", MEASURES)
    store = FrameStore(tmp_path / "st", frame)
    store.append(rollup(ROWS, frame), "w", 0)
    status, out, err = call(capfd, "query", str(tmp_path / "st"), "--per", "1m", "--format", "csv")
    assert (status, err) == (0, "")
    csv_rows = list(csv.DictReader(io.StringIO(out)))
    status, out, _ = call(capfd, "query", str(tmp_path / "st"), "--per", "1m", "--format", "json", "--flat")
    json_rows = [json.loads(line) for line in out.splitlines()]
    assert [json.loads(row["hosts"]) for row in csv_rows] == [row["hosts"] for row in json_rows]
    assert csv_rows[0]["raws"] == json.dumps(json_rows[0]["raws"])
    assert [row["raw"] for row in csv_rows] == ["6162", ""]
    assert [float(row["n_p99_9"]) for row in csv_rows] == [row["n_p99_9"] for row in json_rows]
    assert {"n_p50", "n_p99_9", "n_max"} <= csv_rows[0].keys()


def test_times_in_csv_are_those_of_json():
    """All times, not only those of windows, with and without a zone, in every unit."""
    for unit, zone in product(("s", "ms", "us", "ns"), (None, "UTC", "Asia/Tokyo", "+05:30")):
        steps = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
        values = [0, 1_714_521_600 * steps, 1_714_521_600 * steps + steps // 2, -steps, None]
        table = pa.table({"latest": pa.array(values, pa.timestamp(unit, zone)), "n": range(len(values))})
        texts = csv_cells(table)["latest"].to_pylist()
        of_json = [json.loads(line)["latest"] for line in json_lines(table).splitlines()]
        assert [None if text is None else dt.datetime.fromisoformat(text) for text in texts] == [
            None if text is None else dt.datetime.fromisoformat(text) for text in of_json
        ]
        assert all(text is None or text[10] == "T" for text in texts)


def test_results_of_records_go_to_csv_by_pandas(tmp_path):
    frame = TiltFrame(["1m"], "ts", MEASURES)
    store = FrameStore(tmp_path / "st", frame)
    store.append(rollup(ROWS, frame), "w", 0)
    results = store.query(per="1m")
    read = csv.DictReader(io.StringIO(to_pandas(results).to_csv(index=False)))
    assert [float(row["n_max"]) for row in read] == [row["n"]["max"] for row in results.to_pylist()]
    assert "<th>n_p50</th>" in show(results)._repr_html_()


def test_a_spreadsheet_is_a_sentence(tmp_path, capfd):
    status, _, err = call(capfd, "query", str(tmp_path), "--per", "1m", "--format", "xlsx")
    assert status == 2
    assert "use --format csv, which Excel can open" in err
