"""Keys in text files that look like times are text in every interface, unless an option or the store gives another
type.
"""

from __future__ import annotations

import csv
import io
import json
import sys
from collections import Counter

import pyarrow as pa
import pytest

import aggr
from tests.command_line import call
from tiltframe import FrameStore, ReadOptions, TiltFrame, finish, rollup
from tiltframe.serve.writing import read_lines

TIMES = ["2024-05-01T10:00:00Z", "2024-05-01T10:20:00Z"]
COLUMNS = {  # texts of a column that Arrow infers to be dates or times
    "dates": ["2024-05-01", "2024-05-02"],
    "times": ["10:30", "10:30:00"],
    "moments": ["2024-05-01 10:00:00", "2024-05-01T10:00:00"],
    "instants": ["2024-05-01T10:00:00Z", "2024-05-01T10:00:00+00:00"],
}
FRAME = TiltFrame(["1h"], "ts", {"n": aggr.count()}, ["k"])
OPTIONS = ["--time", "ts", "--key", "k", "--measure", "n=count()", "--levels", "1h"]


def rows_of(texts: list[str]) -> list[dict[str, str]]:
    return [{"ts": time, "k": text} for time, text in zip(TIMES, texts, strict=True)]


def as_csv(rows: list[dict]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def as_lines(rows: list[dict]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def counts_of(states: pa.Table, frame: TiltFrame = FRAME) -> dict:
    return {row["k"]: row["n"] for row in finish(states, frame).to_pylist()}


@pytest.mark.parametrize("texts", COLUMNS.values(), ids=COLUMNS)
def test_every_door_keeps_the_text(texts, tmp_path, capfd, monkeypatch):
    rows, expected = rows_of(texts), dict(Counter(texts))
    (tmp_path / "a.csv").write_text(as_csv(rows))
    (tmp_path / "a.jsonl").write_text(as_lines(rows))
    for name in ("a.csv", "a.jsonl"):
        assert counts_of(rollup(str(tmp_path / name), FRAME)) == expected, name
        store = tmp_path / f"{name}.store"
        status, _, err = call(capfd, "rollup", tmp_path / name, *OPTIONS, "--store", store)
        assert status == 0, err
        results = FrameStore(store).query(per="1h", keys=["k"]).to_pylist()
        assert {row["k"]: row["n"] for row in results} == expected, name
    web = FrameStore(tmp_path / "web", FRAME)
    web.append_rows(pa.table({"ts": [0], "k": ["a"]}), "w", 1)
    assert read_lines(as_lines(rows).encode(), web)["k"].to_pylist() == texts
    with (tmp_path / "a.jsonl").open() as file:
        monkeypatch.setattr(sys, "stdin", file)
        status, out, err = call(capfd, "stream", *OPTIONS, "--drain")
    assert status == 0, err
    assert {row["k"]: row["n"] for row in map(json.loads, out.splitlines())} == expected


def test_elements_of_lists_and_fields_of_objects_stay_text_next_to_times(tmp_path):
    rows = [
        {"ts": time, "days": [day, "2024-05-03"], "visit": {"day": day, "at": f"{day}T10:00:00"}}
        for time, day in zip(TIMES, COLUMNS["dates"], strict=True)
    ]
    (tmp_path / "a.jsonl").write_text(as_lines(rows))
    for key, expected in [
        ("each(days)", {"2024-05-01": 1, "2024-05-02": 1, "2024-05-03": 2}),
        ("visit.day", {"2024-05-01": 1, "2024-05-02": 1}),
    ]:
        measures = {"n": aggr.count(where="hour(visit.at) = 10")}
        frame = TiltFrame(["1h"], "ts", measures, {"k": key})
        assert counts_of(rollup(str(tmp_path / "a.jsonl"), frame), frame) == expected


@pytest.mark.parametrize("write", [as_csv, as_lines])
def test_a_declared_type_and_the_type_of_a_store_make_times(write, tmp_path):
    file = tmp_path / ("a.csv" if write is as_csv else "a.jsonl")
    file.write_text(write(rows_of(COLUMNS["dates"])))
    states = rollup(str(file), FRAME, ReadOptions({"k": "date"}))
    assert states.schema.field("k").type == pa.date32()
    store = FrameStore(tmp_path / "store", FRAME)
    store.append(states, "w", 1)
    assert store.append_rows(str(file), "w", 2)
    results = store.query(per="1h", keys=["k"]).to_pylist()
    assert {str(row["k"]): row["n"] for row in results} == {"2024-05-01": 2, "2024-05-02": 2}


def test_a_key_that_is_computed_from_a_time_reads_a_time(tmp_path):
    (tmp_path / "a.csv").write_text(as_csv(rows_of(COLUMNS["instants"])))
    frame = TiltFrame(["1h"], "ts", {"n": aggr.count()}, {"hour": "hour(k)"})
    assert [row["hour"] for row in finish(rollup(str(tmp_path / "a.csv"), frame), frame).to_pylist()] == [10]
