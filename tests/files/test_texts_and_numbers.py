"""Texts that look like numbers are stored as text and computed with as numbers, in the same way by every interface."""

from __future__ import annotations

import csv
import json
import math
import os
import random
import re
import sys

import pyarrow as pa
import pytest

import aggr
from tests.command_line import call
from tiltframe import FrameStore, ReadOptions, TiltFrame, finish, rollup
from tiltframe.cli.stream_sources import InputLines
from tiltframe.serve.writing import read_lines

TRIALS = int(os.environ.get("TRIALS", "4"))
SEED = int(os.environ.get("SEED", random.randrange(2**32)))
NUMBERS = ["7", "007", "1.10", "1.1", "+49", "00", "1e3", "0.5", "-0", "-3", "1000", "2.50", ".5", "12345678901234"]
TEXTS = [*NUMBERS, "A12", "10a", "-", "1.2.3", "é", "12345678901234567890", "0.12345678901234567"]
TIME = "2024-05-01T10:00:{:02}Z"

KEEPERS = {
    "last": aggr.last("k"),
    "mode": aggr.mode("k"),
    "counts": aggr.value_counts("k"),
    "all": aggr.collect("k"),
    "set": aggr.collect_set("k"),
    "distinct": aggr.count_distinct("k"),
    "about": aggr.approx_count_distinct("k"),
    "frequent": aggr.frequent("k"),
    "top": aggr.top_k("k", by="x"),
    "where": aggr.arg_max("k", by="x"),
    "per": aggr.per("k"),
    "seven": aggr.count(where="k = '007'"),
}
COMPUTING = {"sum": aggr.sum("x"), "least": aggr.min("x"), "greatest": aggr.max("x"), "p": aggr.dds("x", [0.5])}
COMPUTING |= {"large": aggr.count(where="x > 5"), "twice": aggr.sum("x * 2")}


def frame_of(measures, keys=("k",)):
    return TiltFrame(["1d"], "ts", measures, keys)


def rows_of(texts, numbers):
    return [
        {"ts": TIME.format(second), "k": k, "x": x} for second, (k, x) in enumerate(zip(texts, numbers, strict=True))
    ]


def write_csv(path, rows, delimiter=","):
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)


def json_lines(rows):
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def from_pipe(data, frame, monkeypatch):
    """Read standard input as `tiltframe stream` does."""
    reading_end, writing_end = os.pipe()
    with os.fdopen(writing_end, "wb") as pipe:
        pipe.write(data)
    with os.fdopen(reading_end, "rb") as pipe, monkeypatch.context() as patch:
        patch.setattr(sys, "stdin", pipe)
        arrived = list(InputLines(frame, lambda rows: None, ReadOptions()).batches([]))
    return pa.concat_tables([batch.rows for batch in arrived if batch.rows is not None])


def doors(rows, frame, folder, monkeypatch):
    """Return the states that each door gives for the same texts."""
    write_csv(folder / "a.csv", rows)
    write_csv(folder / "a.tsv", rows, "\t")
    data = json_lines(rows)
    (folder / "a.jsonl").write_bytes(data)
    files = {name: rollup(folder / name, frame) for name in ("a.csv", "a.tsv", "a.jsonl")}
    store = FrameStore(str(folder / "store"), frame)
    return {
        **files,
        "Arrow": rollup(pa.Table.from_pylist(rows), frame),
        "standard input": rollup(from_pipe(data, frame, monkeypatch), frame),
        "HTTP": rollup(read_lines(data, store), frame),
    }


def test_the_same_texts_give_the_same_states_at_every_door(tmp_path, monkeypatch):
    print("seed", SEED)
    draws = random.Random(SEED)
    for trial in range(TRIALS):
        folder = tmp_path / str(trial)
        folder.mkdir()
        count = draws.randint(1, 30)
        texts = ["007", *draws.choices(TEXTS, k=count)]
        numbers = draws.choices(NUMBERS, k=count + 1)
        frame = frame_of({**KEEPERS, **COMPUTING}, draws.choice([(), ("k",)]))
        states = doors(rows_of(texts, numbers), frame, folder, monkeypatch)
        expected = states["Arrow"]
        for door, states_of_door in states.items():
            assert states_of_door.equals(expected), (trial, door)
        results = finish(expected, frame).to_pylist()
        assert sorted(text for row in results for text in row["all"]) == sorted(texts)
        for row in results:
            own = [float(x) for k, x in zip(texts, numbers, strict=True) if row.get("k") in (None, k)]
            assert row["sum"] == math.fsum(own)
        assert max(row["greatest"] for row in results) == max(float(x) for x in numbers)


@pytest.mark.parametrize("text", ["007", "1.10", "+49171234567", "00", "1e3", "0.12345678901234567"])
@pytest.mark.parametrize("name", list(KEEPERS))
def test_a_measure_that_keeps_values_keeps_their_texts(name, text, tmp_path):
    rows = rows_of([text, text], ["1", "2"])
    write_csv(tmp_path / "a.csv", rows)
    frame = frame_of({name: KEEPERS[name]}, ())
    result = finish(rollup(tmp_path / "a.csv", frame), frame)
    assert result.equals(
        finish(rollup(pa.table({**pa.Table.from_pylist(rows).to_pydict(), "x": [1, 2]}), frame), frame)
    )


def test_a_column_that_is_kept_and_computed_with(tmp_path):
    write_csv(tmp_path / "a.csv", [{"ts": 0, "price": text} for text in ("1.10", "9.5", "10.00")])
    measures = {"last": aggr.mode("price"), "sum": aggr.sum("price"), "max": aggr.max("price")}
    frame = TiltFrame(["1d"], "ts", {**measures, "n": aggr.count(where="price >= 9.5 AND price <> '9.5'")})
    (row,) = finish(rollup(tmp_path / "a.csv", frame), frame).to_pylist()
    assert [row[name] for name in ("last", "sum", "max", "n")] == ["1.10", 20.6, 10.0, 1]


def test_canonical_digits_are_numbers(tmp_path):
    write_csv(tmp_path / "a.csv", [{"ts": 0, "x": text} for text in ("1.5", "20", "1e100")])
    frame = TiltFrame(["1d"], "ts", {"set": aggr.collect_set("x")})
    assert finish(rollup(tmp_path / "a.csv", frame), frame)["set"].to_pylist() == [[1.5, 20.0, 1e100]]


def test_comparisons_do_not_round(tmp_path):
    write_csv(tmp_path / "a.csv", [{"ts": 0, "x": text} for text in ("0.12345678901234567", "0.12345678901234568")])
    frame = TiltFrame(["1d"], "ts", {"max": aggr.max("x")})
    advice = "use types={'x': 'text'} to keep the text, or types={'x': 'decimal(18, 17)'}"
    with pytest.raises(ValueError, match=re.escape(advice)):
        rollup(tmp_path / "a.csv", frame)
    result = rollup(tmp_path / "a.csv", frame, ReadOptions({"x": "decimal(18, 17)"}))
    assert str(finish(result, frame)["max"][0].as_py()) == "0.12345678901234568"


def test_digits_that_show_late_are_read_again_as_text(tmp_path, capfd, monkeypatch):
    """Beyond the bytes by which types are inferred."""
    monkeypatch.chdir(tmp_path)
    pad = "p" * 1000
    with open("a.csv", "w", encoding="utf-8") as file:
        file.write("ts,zip,pad\n")
        file.writelines(f"0,10115,{pad}\n" for _ in range(17_000))
        file.write("0,01067,\n")
    frame = TiltFrame(["1d"], "ts", {"zips": aggr.collect_set("zip")})
    assert finish(rollup("a.csv", frame), frame)["zips"].to_pylist() == [["01067", "10115"]]
    arguments = ["--time", "ts", "--levels", "1d", "--measure", "zips=collect_set(zip)", "--store", "s"]
    assert call(capfd, "rollup", "a.csv", *arguments)[0] == 0
    assert FrameStore("s").query("1d")["zips"].to_pylist() == [["01067", "10115"]]


def test_a_store_that_keeps_texts_goes_on_with_texts(tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = ["--time", "ts", "--key", "zip", "--levels", "1d", "--measure", "last=last(zip)", "--store", "s"]
    for name, text in (("a.csv", "01067"), ("b.csv", "10115")):
        write_csv(tmp_path / name, [{"ts": 0, "zip": text}])
        assert call(capfd, "rollup", name, *arguments)[0] == 0
    assert FrameStore("s").query("1d")["last"].to_pylist() == ["01067", "10115"]


def test_texts_are_kept_in_one_input_and_ordered_as_numbers_in_another(tmp_path, monkeypatch):
    rows = [{"ts": TIME.format(second), "x": text} for second, text in enumerate(("9", "010", "1.0"))]
    frame = TiltFrame(["1d"], "ts", {"greatest": aggr.arg_max("x", by="x"), "top": aggr.top_k("x", by="x", k=2)})
    for door, states in doors(rows, frame, tmp_path, monkeypatch).items():
        (row,) = finish(states, frame).to_pylist()
        assert (row["greatest"], row["top"]) == ("010", ["010", "9"]), door


def test_measures_that_share_a_state_but_not_its_values(tmp_path):
    write_csv(tmp_path / "a.csv", [{"ts": 0, "x": text} for text in ("1.10", "1.1")])
    frame = TiltFrame(["1d"], "ts", {"n": aggr.count_distinct("x"), "s": aggr.sum_distinct("x")})
    with pytest.raises(ValueError, match=r"share a state.*types=\{'x': 'float64'\}"):
        rollup(tmp_path / "a.csv", frame)
