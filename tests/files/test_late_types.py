"""Values that do not have the type inferred from the rows before them, and the advice in the error messages, which
works.
"""

from __future__ import annotations

import json
import re
import shlex

import pytest

import aggr
from tests.command_line import call
from tiltframe import FrameStore, ReadOptions, TiltFrame, finish, rollup
from tiltframe.files import formats


@pytest.fixture
def few_bytes(monkeypatch):
    """Infer types from a few hundred bytes."""
    monkeypatch.setattr(formats, "_INFERRED_BYTES", 512)


def answers(path, measures, **options):
    frame = TiltFrame(["1d"], "ts", measures)
    (row,) = finish(rollup(path, frame, ReadOptions(**options)), frame).to_pylist()
    return [row[name] for name in measures]


def write(path, values, ending="csv"):
    if ending == "csv":
        path.write_text("ts,x\n" + "".join(f"0,{value}\n" for value in values))
    else:
        path.write_text("".join(json.dumps({"ts": 0} | value) + "\n" for value in values))
    return path


@pytest.mark.parametrize(
    ("first", "late", "measure", "expected"),
    [
        ("", "7", aggr.sum("x"), 7),
        ("", "1.5", aggr.sum("x"), 1.5),
        ("", "word", aggr.last("x"), "word"),
        ("", "word", aggr.mode("x"), "word"),
        ("", "007", aggr.mode("x"), "007"),
        ("7", "1.5", aggr.max("x"), 7.0),
        ("7", "1.5", aggr.sum("x"), 1401.5),
        ("7", "word", aggr.count_distinct("x"), 2),
        ("7", "007", aggr.collect_set("x"), ["007", "7"]),
        ("7", "1.50", aggr.collect_set("x"), ["1.50", "7"]),
        ("true", "maybe", aggr.collect_set("x"), ["maybe", "true"]),
    ],
)
def test_csv(few_bytes, tmp_path, first, late, measure, expected):
    file = write(tmp_path / "a.csv", [first] * 200 + [late])
    assert answers(file, {"a": measure}) == [expected]


@pytest.mark.parametrize(
    ("first", "late", "measure", "expected"),
    [
        ({"x": None}, {"x": "P"}, aggr.last("x"), "P"),
        ({"x": None}, {"x": 5}, aggr.sum("x"), 5),
        ({"y": 1}, {"x": 5}, aggr.sum("x"), 5),
        ({"y": 1}, {"x": {"z": 5}}, aggr.sum("x.z"), 5),
    ],
)
def test_json(few_bytes, tmp_path, first, late, measure, expected):
    file = write(tmp_path / "a.jsonl", [first] * 200 + [late], "jsonl")
    assert answers(file, {"a": measure}) == [expected]


def test_words_that_come_late_where_numbers_are_computed_with(few_bytes, tmp_path):
    file = write(tmp_path / "a.csv", ["7"] * 200 + ["word"])
    with pytest.raises(ValueError, match=r"'word' in line 202, in the column 'x'"):
        answers(file, {"a": aggr.sum("x")})


ADVISED = {
    "money": ["$1,234.50", "$7.00"],
    "a unit": ["15 ms", "7 ms"],
    "beyond int64": ["5863949479783605708", "17929716297117857676"],
    "digits and fractions": ["0.5", "9007199254740993"],
    "nothing": ["5", "-"],
    "a comma": ["1,5", "2,25"],
}


@pytest.mark.parametrize("case", ADVISED)
def test_advice_is_obeyed(case, tmp_path, monkeypatch, capfd):
    """What a message advises is typed as it says, and keeps every number."""
    monkeypatch.chdir(tmp_path)
    texts = ADVISED[case]
    (tmp_path / "a.tsv").write_text("ts\tx\n" + "".join(f"0\t{text}\n" for text in texts))
    value, more = "x", []
    for attempt in range(4):
        words = ["--time", "ts", "--levels", "1d", "--measure", f'n=count_distinct("{value}")', *more]
        words += ["--measure", f'm=max("{value}")', "--measure", f'p=dds("{value}")', "--store", "s"]
        status, _, err = call(capfd, "rollup", "a.tsv", *words)
        if status == 0:
            break
        assert attempt < 3, err
        advice = re.split(r"\b(?:use|with) ", err)[-1].strip()
        advice = advice.removeprefix("--text x to keep the text, or ")
        cast = re.search(r" and (CAST\(.*\)) in place of x$", advice)
        value = cast[1] if cast else value
        more += shlex.split(advice.partition(" and CAST")[0].replace(" and ", " ").partition(";")[0].partition(",")[0])
    (row,) = FrameStore("s").query("1d").to_pylist()
    numbers = {text for text in texts if text != "-"}
    assert row["n"] == len(numbers)


def test_excel_is_named(tmp_path):
    (tmp_path / "a.xlsx").write_bytes(b"PK")
    with pytest.raises(ValueError, match=r"pandas\.read_excel"):
        answers(tmp_path / "a.xlsx", {"n": aggr.count()})


def test_other_forms_of_times_are_declared(tmp_path):
    (tmp_path / "a.csv").write_text("ts\n05/01/2024 10:00\n")
    with pytest.raises(ValueError, match="--time-format"):
        answers(tmp_path / "a.csv", {"n": aggr.count()})


def test_utf16_is_named(tmp_path):
    (tmp_path / "a.csv").write_bytes("ts,x\n0,é\n".encode("utf-16"))
    with pytest.raises(ValueError, match="--encoding utf-16"):
        answers(tmp_path / "a.csv", {"n": aggr.count()})
    assert answers(tmp_path / "a.csv", {"x": aggr.last("x")}, encoding="utf-16") == ["é"]


def test_columns_that_nothing_reads(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text(
        "Bank of Nowhere\nStatement;May\nts;x;note;note;;\n0;7;a;b;;\n0;bad;a;b;;\n0;3;;;;\n"
    )
    assert (
        call(capfd, "rollup", "a.csv", "--time", "ts", "--measure", "n=sum(x)", "--levels", "1d", "--store", "s")[0]
        == 2
    )
    options = ["--skip-rows", "2", "--delimiter", ";", "--bad-rows", "bad.jsonl"]
    words = ["--time", "ts", "--measure", "n=sum(x)", "--levels", "1d", "--store", "s", *options]
    assert call(capfd, "rollup", "a.csv", *words)[0] == 0
    assert FrameStore("s").query("1d")["n"].to_pylist() == [10]
    (bad,) = map(json.loads, (tmp_path / "bad.jsonl").read_text().splitlines())
    assert bad["line"] == 5
    with pytest.raises(ValueError, match=r"line 5, in the column 'x'"):
        answers(tmp_path / "a.csv", {"n": aggr.sum("x")}, skip_rows=2, delimiter=";")
    with pytest.raises(ValueError, match="two columns called 'note'"):
        answers(tmp_path / "a.csv", {"n": aggr.last("note")}, skip_rows=2, delimiter=";")
