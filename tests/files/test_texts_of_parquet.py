"""Texts of Parquet files that are not UTF-8 are refused before they become keys or states."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.command_line import call
from tiltframe import FrameStore

TEXTS = [b"a", b"x\xff", b"a", None]


@pytest.fixture(params=["plain", "dictionary"])
def file(request, tmp_path):
    """A file whose second row has a text that is not UTF-8."""
    texts = pa.array(TEXTS).view(pa.string())
    column = texts.dictionary_encode() if request.param == "dictionary" else texts
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"ts": [1_714_557_600_000] * 4, "k": column, "v": [1, 2, 3, 4]}), path)
    return path


@pytest.mark.store
@pytest.mark.parametrize("use", ["--key k --measure n=count()", "--measure m=max(k)", "--measure d=count_distinct(k)"])
def test_they_are_refused(file, use, tmp_path, capfd):
    options = ["--time", "ts", "--levels", "1m", "--store", str(tmp_path / "store"), *use.split()]
    status, _, err = call(capfd, "rollup", str(file), *options)
    assert status == 2
    assert "the column 'k' contains a text that is not UTF-8" in err
    assert not (tmp_path / "store").exists()


@pytest.mark.store
def test_they_can_be_left_out(file, tmp_path, capfd):
    bad = tmp_path / "bad.jsonl"
    options = [
        "--time",
        "ts",
        "--levels",
        "1m",
        "--store",
        str(tmp_path / "store"),
        "--key",
        "k",
        "--measure",
        "n=count()",
    ]
    status, _, err = call(capfd, "rollup", str(file), *options, "--bad-rows", str(bad))
    assert status == 0, err
    assert FrameStore(tmp_path / "store").query("1m").select(["k", "n"]).to_pylist() == [
        {"k": "a", "n": 2},
        {"k": None, "n": 1},
    ]
    (row,) = map(json.loads, bad.read_text().splitlines())
    assert row["line"] == 2
    assert "x\\ufffd" in json.dumps(row)


@pytest.mark.store
def test_a_text_column_that_is_not_used_is_not_read(file, tmp_path, capfd):
    options = ["--time", "ts", "--levels", "1m", "--store", str(tmp_path / "store"), "--measure", "s=sum(v)"]
    assert call(capfd, "rollup", str(file), *options)[0] == 0
