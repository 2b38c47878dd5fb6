"""Results as CSV: other programs can read every cell, also lists and structs."""

from __future__ import annotations

import csv
import io
import json

import pyarrow as pa

import aggr
from tests.command_line import call
from tiltframe import FrameStore, TiltFrame, rollup, show, to_pandas

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
