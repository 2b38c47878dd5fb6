"""Windows of all kinds as text in options of the command line."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.command_line import call


@pytest.fixture
def rows(tmp_path):
    pq.write_table(pa.table({"ts": [0, 7 * 3_600_000, 31 * 3_600_000], "x": [1, 2, 3]}), tmp_path / "rows.parquet")
    return tmp_path / "rows.parquet"


def rollup(capfd, rows, levels: str) -> tuple[int, str, str]:
    measures = ("--time", "ts", "--measure", "n=count()", "--measure", "s=sum(x)")
    return call(capfd, "rollup", rows, *measures, "--levels", levels, "--store", rows.parent / "store")


@pytest.mark.parametrize(
    ("levels", "message"),
    [
        ("session(30m)", "windows of session(30m) do not; store 1h instead"),
        ("hopping(1h, 10m),1d", "store 10m instead, and query hopping(1h, 10m)"),
        ("1h,all", "windows of all do not"),
        ("session(0s)", "at least one microsecond"),
        ("1h,session(30m)", "session(30m) depends on the rows, and must be the only level"),
        ("tumbling(1d, offset=1d)", "shorter than the windows"),
        ("hopping(1h", "close every bracket"),
        ("1h,", "cannot read ''"),
    ],
)
def test_levels_that_a_store_does_not_keep_are_refused_in_one_sentence(rows, levels, message, capfd):
    status, _, err = rollup(capfd, rows, levels)
    assert (status, len(err.strip().splitlines())) == (2, 1)
    assert message in err
    assert not (rows.parent / "store").exists()


def test_levels_with_an_offset(rows, capfd):
    assert rollup(capfd, rows, "1h,tumbling(1d, offset=6h)")[0] == 0

    def ask(per: str, form: str = "json") -> str:
        status, out, err = call(capfd, "query", rows.parent / "store", "--per", per, "--format", form)
        assert status == 0, err
        return out

    lines = [json.loads(line) for line in ask("tumbling(1d, offset=6h)").splitlines()]
    assert [(line["window_start"], line["n"], line["s"]) for line in lines] == [
        ("1969-12-31T06:00:00Z", 1, 1),
        ("1970-01-01T06:00:00Z", 1, 2),
        ("1970-01-02T06:00:00Z", 1, 3),
    ]
    assert "1970-01-01 06:00" in ask("tumbling(1d, offset=6h)", "table")
    # rows at 0, 7 and 31 o'clock; days from 6 and from 18 o'clock
    hops = [json.loads(line) for line in ask("hopping(1d, 12h, offset=6h)").splitlines()]
    assert [line["s"] for line in hops] == [1, 3, 2, 3, 3]
