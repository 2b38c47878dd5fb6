"""Readers of other file formats: their files are inputs like Parquet files, and errors in a reader name the reader."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

import aggr
from tiltframe import TiltFrame, finish, rollup
from tiltframe.cli import main
from tiltframe.files.readers import FileReader, register_reader, unregister_reader

ROWS = pa.table(
    {
        "unread": [1, 2, 3],
        "ts": pa.array([0, 30, 90], pa.timestamp("s", "UTC")),
        "code": ["007", "7", None],
        "ms": pa.array([1.5, None, 4.0], pa.float32()),
    }
)
FRAME = TiltFrame(["1m"], "ts", {"n": aggr.count(), "most": aggr.max("ms")}, ["code"])


class Orc(FileReader):
    name, endings = "orc", (".orc", ".orcfile")

    def schema(self, path):
        return orc.ORCFile(path).schema

    def batches(self, path, columns):
        assert "unread" not in columns  # which no measure reads
        file = orc.ORCFile(path)
        yield from (file.read_stripe(stripe, columns=list(columns)) for stripe in range(file.nstripes))


@pytest.fixture
def orc_reader():
    register_reader(Orc)
    yield
    unregister_reader("orc")


def results(*paths: Path) -> list[dict]:
    return (
        finish(rollup(list(paths), FRAME), FRAME)
        .sort_by([("window_start", "ascending"), ("code", "ascending")])
        .to_pylist()
    )


def test_files_of_a_reader_give_the_results_of_parquet(orc_reader, tmp_path):
    """Also in a folder with other formats. Keys such as 007 stay text, and texts of numbers are not guessed."""
    (tmp_path / "both").mkdir()
    orc.write_table(ROWS, tmp_path / "both" / "day.ORC")
    pq.write_table(ROWS, tmp_path / "day.parquet")
    expected = results(tmp_path / "day.parquet")
    assert results(tmp_path / "both" / "day.ORC") == expected
    pq.write_table(ROWS, tmp_path / "both" / "day.parquet")
    assert [row["n"] for row in results(tmp_path / "both")] == [2 * row["n"] for row in expected]


def test_rows_that_cannot_be_read_are_dropped_from_files_of_a_reader(orc_reader, tmp_path, capfd):
    rows = pa.table({"ts": ["2024-05-01T00:00:00Z", "yesterday", "2024-05-01T00:00:30Z"], "ms": [1, 2, 4]})
    orc.write_table(rows, tmp_path / "day.orcfile")
    options = ["--time", "ts", "--levels", "1m", "--measure", "s=sum(ms)", "--store", str(tmp_path / "s")]
    with pytest.raises(SystemExit):
        main(["rollup", str(tmp_path / "day.orcfile"), *options])
    assert "cannot parse 'yesterday'" in capfd.readouterr().err
    main(["rollup", str(tmp_path / "day.orcfile"), *options, "--bad-rows", str(tmp_path / "bad.jsonl")])
    main(["query", str(tmp_path / "s"), "--per", "1m", "--format", "json"])
    assert '"s": 5' in capfd.readouterr().out


def test_mistakes_of_readers_are_named(orc_reader, tmp_path):
    (tmp_path / "day.orc").write_bytes(b"no ORC")
    with pytest.raises(ValueError, match=r"cannot read .*day\.orc as orc: "):
        results(tmp_path / "day.orc")

    class Fewer(Orc):
        name, endings = "fewer", (".fewer",)

        def batches(self, path, columns):
            yield pa.RecordBatch.from_pydict({"ts": [0]})

    register_reader(Fewer)
    orc.write_table(ROWS, tmp_path / "day.fewer")
    with pytest.raises(ValueError, match=r"day\.fewer as fewer: a batch of the reader lacks the column '(code|ms)'"):
        results(tmp_path / "day.fewer")
    unregister_reader("fewer")
    for members, message in [
        ({"name": "csv"}, "other than csv, tsv, json, parquet; got 'csv'"),
        ({"name": "own", "endings": (".csv",)}, r"own needs endings such as .*; got \('.csv',\)"),
        ({"name": "own", "endings": ".own"}, "own needs endings such as"),
        (
            {"name": "own", "endings": (".orc",)},
            "same name or ending as the registered reader 'orc', which reads .orc, .orcfile",
        ),
    ]:
        with pytest.raises(ValueError, match=message):
            register_reader(type("Own", (Orc,), members))
    with pytest.raises(TypeError, match="register_reader takes a subclass of FileReader; got"):
        register_reader(int)


def test_an_ending_without_a_reader_is_refused_with_those_that_exist(orc_reader, tmp_path):
    (tmp_path / "day.avro").write_bytes(b"Obj")
    with pytest.raises(
        ValueError,
        match=r"cannot determine the format of .*day\.avro from its name; use one of the endings .*\.orc, \.orcfile",
    ):
        results(tmp_path / "day.avro")
