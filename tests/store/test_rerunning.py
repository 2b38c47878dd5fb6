"""Repeated rollups: the store after each kind of change to files, compared with a plain count of rows."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest

from tests.command_line import call

pytestmark = pytest.mark.store

FRAME = ["--time", "ts", "--key", "k", "--measure", "n=count()", "--measure", "s=sum(x)", "--levels", "10s,1m,1h"]
HOUR = "2024-05-01T10:00,2024-05-01T11:00"


@pytest.fixture
def desk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    return tmp_path


@pytest.fixture
def rollup(capfd):
    """Roll up into the store; returns status and what was said."""

    def run(*inputs, within=None):
        arguments = ["rollup", *map(str, inputs), *FRAME, "--store", "st"]
        return call(capfd, *arguments, *(["--replace-within", within] if within is not None else []))

    return run


@pytest.fixture
def holds(capfd):
    """Say whether every level holds just the rows of some files, each counted once; compacted, too."""

    def check(*files):
        expected = Counter()
        for file in files:
            for line in Path(file).read_text().splitlines()[1:]:
                ts, k, x = line.split(",")
                for cut in (18, 16, 13):
                    expected[(cut, ts[:cut], k)] += int(x)
        actual = Counter()
        for per, cut in (("10s", 18), ("1m", 16), ("1h", 13)):
            status, out, err = call(capfd, "query", "st", "--per", per, "--format", "json")
            assert status == 0, err
            for row in map(json.loads, out.splitlines()):
                actual[(cut, row["window_start"][:cut], row["k"])] += row["s"]
        return actual == expected

    return check


def write(name, *rows):
    """Write rows of (hh:mm:ss, key, number)."""
    Path(name).parent.mkdir(exist_ok=True)
    Path(name).write_text("ts,k,x\n" + "".join(f"2024-05-01T{at},{k},{x}\n" for at, k, x in rows))
    return name


A = [("10:00:00", "a", 1), ("10:00:30", "b", 2), ("10:59:59", "a", 4)]
B = [("11:00:00", "a", 8), ("11:30:00", "b", 16)]
C = [("10:00:05", "a", 32), ("10:20:00", "c", 64)]


def files():
    return sorted(Path("in").iterdir())


def test_new_files_are_added_and_old_ones_are_not(desk, rollup, holds):
    write("in/a.csv", *A)
    assert rollup("in")[0] == 0
    assert holds("in/a.csv")
    status, _, err = rollup("in")
    assert status == 0
    assert "nothing new" in err
    write("in/b.csv", *B)
    assert rollup("in")[0] == 0
    assert holds("in/a.csv", "in/b.csv")


def test_a_corrected_file_replaced_in_its_range_is_held_from_then_on(desk, rollup, holds):
    write("in/a.csv", *A)
    write("in/b.csv", *B)
    assert rollup("in")[0] == 0
    write("in/a.csv", ("10:00:00", "a", 100), ("10:40:00", "z", 200))
    status, _, err = rollup("in")
    assert status == 2
    assert "has changed since it was rolled up" in err
    assert "2024-05-01T10:00:00Z,2024-05-01T11:00:00Z" in err  # where its old rows are
    assert rollup("in/a.csv", within=HOUR)[0] == 0
    assert holds(*files())
    status, _, err = rollup("in")
    assert (status, "nothing new" in err) == (0, True)
    assert holds(*files())
    write("in/a.csv", ("10:00:00", "a", 1000))  # and once more, with the whole folder
    assert rollup("in")[0] == 2
    assert rollup("in", within=HOUR)[0] == 0
    assert rollup("in")[0] == 0
    assert holds(*files())


def test_a_correction_that_is_taken_back(desk, rollup, holds):
    write("in/a.csv", *A)
    assert rollup("in")[0] == 0
    write("in/a.csv", *C)
    assert rollup("in", within=HOUR)[0] == 0
    write("in/a.csv", *A)
    status, _, err = rollup("in")
    assert status == 2
    assert "has changed since" in err
    assert rollup("in", within=HOUR)[0] == 0
    assert holds("in/a.csv")
    assert "nothing new" in rollup("in")[2]
    write("in/a.csv", *C)
    assert rollup("in", within=HOUR)[0] == 0
    assert holds("in/a.csv")


def test_old_rows_come_back_under_another_name(desk, rollup, holds):
    write("in/a.csv", *A)
    assert rollup("in")[0] == 0
    write("in/a.csv", *C)
    assert rollup("in", within=HOUR)[0] == 0
    write("in/old.csv", *A)
    status, _, err = rollup("in")
    assert status == 2
    assert "in/old.csv contains rows that were replaced in st" in err
    assert rollup("in", within=HOUR)[0] == 0
    assert holds("in/a.csv", "in/old.csv")
    assert "nothing new" in rollup("in")[2]


def test_a_range_is_no_empty_text(desk, rollup, holds):
    write("in/a.csv", *A)
    assert rollup("in")[0] == 0
    write("in/b.csv", *C)
    status, _, err = rollup("in", within="")
    assert status == 2
    assert "cannot read the range ''" in err
    assert holds("in/a.csv")


def test_files_without_rows_in_the_range_do_not_empty_it(desk, rollup, holds):
    write("in/a.csv", *A)
    assert rollup("in")[0] == 0
    for rows in (B, []):
        write("in/b.csv", *rows)
        status, _, err = rollup("in/b.csv", within=HOUR)
        assert status == 2
        assert (
            "the inputs have no rows in 2024-05-01T10:00:00Z,2024-05-01T11:00:00Z, so the range would become empty"
            in err
        )
        assert holds("in/a.csv")


def test_files_without_rows_in_the_range_are_added_later(desk, rollup, holds):
    write("in/a.csv", *A)
    assert rollup("in")[0] == 0
    write("in/a.csv", *C)
    write("in/b.csv", *B)
    status, _, err = rollup("in", within=HOUR)
    assert status == 0
    assert "in/b.csv has no rows in the range, and was left out" in err
    assert holds("in/a.csv")
    assert rollup("in")[0] == 0
    assert holds("in/a.csv", "in/b.csv")


def test_renamed_copied_and_linked_files_count_once(desk, rollup, holds):
    write("in/a.csv", *A)
    write("in/same.csv", *A)
    status, _, err = rollup("in")
    assert status == 0
    assert "in/same.csv: skipped, because st already contains the same bytes from a file with another name" in err
    assert holds("in/a.csv")
    Path("in/a.csv").rename("in/z.csv")
    os.link("in/z.csv", "in/hard.csv")
    os.symlink(desk / "in/z.csv", "in/soft.csv")
    status, _, err = rollup("in", "in/z.csv", desk / "in", "./in/../in/hard.csv")
    assert status == 0
    assert "nothing new" in err
    assert "in/z.csv: skipped, because" in err
    assert holds("in/z.csv")
    assert "its bytes" not in rollup("in")[2]  # said once


def test_a_renamed_file_that_grows_later_is_known(desk, rollup, holds):
    write("in/a.csv", *A)
    assert rollup("in")[0] == 0
    Path("in/a.csv").rename("in/z.csv")
    assert rollup("in")[0] == 0
    write("in/z.csv", *A, *C)
    assert rollup("in")[0] == 2
    assert rollup("in", within=HOUR)[0] == 0
    assert holds("in/z.csv")
    assert "nothing new" in rollup("in")[2]


def test_files_that_change_names_among_each_other(desk, rollup, holds):
    write("in/1.csv", *A)
    write("in/2.csv", *B)
    assert rollup("in")[0] == 0
    Path("in/2.csv").rename("in/3.csv")
    Path("in/1.csv").rename("in/2.csv")
    write("in/1.csv", *C)
    status, _, err = rollup("in")
    assert status == 2  # 1.csv might be the old one, corrected: nobody can tell
    assert "in/1.csv has changed" in err
    assert rollup("in", within=HOUR)[0] == 0
    assert holds(*files())
    assert "nothing new" in rollup("in")[2]
    assert holds(*files())


def test_a_removed_file_stays(desk, rollup, holds):
    write("in/a.csv", *A)
    write("in/b.csv", *B)
    write("c.csv", *B, *A)
    assert rollup("in")[0] == 0
    Path("in/b.csv").unlink()
    assert rollup("in")[0] == 0
    assert holds("c.csv")


@pytest.mark.parametrize("old", [A + B, A])
@pytest.mark.parametrize("new", [[*C, ("11:00:00", "a", 9)], [*C, *B, ("12:00:00", "q", 5)], C])
def test_a_range_that_does_not_hold_all_that_changed_is_refused_and_the_one_named_works(desk, rollup, holds, old, new):
    write("in/a.csv", *old)
    assert rollup("in")[0] == 0
    write("in/a.csv", *new)
    write("in/b.csv", ("11:10:00", "b", 3))
    status, _, err = rollup("in/a.csv", within=HOUR)
    if old == A and new == C:
        assert status == 0  # the range holds all of both
    else:
        assert status == 2
        assert "outside the range to replace, st differs from the inputs" in err
        write("was.csv", *old)
        assert holds("was.csv")
        named = err.split("--replace-within ")[1].split(", and pass every file")[0]
        assert rollup("in/a.csv", within=named)[0] == 0
    assert holds("in/a.csv")
    assert rollup("in")[0] == 0
    assert holds("in/a.csv", "in/b.csv")


def test_a_range_within_a_file_whose_other_rows_are_as_they_were(desk, rollup, holds):
    write("in/a.csv", *A, *B)
    write("in/b.csv", *C)
    assert rollup("in")[0] == 0
    write("in/a.csv", ("10:00:00", "a", 7), *A[1:], *B)
    status, _, err = rollup("in", within="2024-05-01T10:00,2024-05-01T10:01")
    assert status == 0, err
    assert holds("in/a.csv", "in/b.csv")
    assert "nothing new" in rollup("in")[2]


def test_a_new_file_partly_in_the_range(desk, rollup, holds):
    write("in/a.csv", *A)
    assert rollup("in")[0] == 0
    write("in/b.csv", *C, *B)
    status, _, err = rollup("in", within=HOUR)
    assert status == 2
    assert "in/b.csv" in err
    assert holds("in/a.csv")
    assert rollup("in")[0] == 0  # added first, and then replaced
    assert rollup("in", within=HOUR)[0] == 0
    assert holds("in/a.csv", "in/b.csv")
    assert "nothing new" in rollup("in")[2]


def test_a_range_of_a_store_that_is_not_there_yet(desk, rollup, holds):
    write("in/a.csv", *A)
    write("in/b.csv", *B)
    assert rollup("in", within=HOUR)[0] == 0
    assert holds("in/a.csv")
    assert rollup("in")[0] == 0
    assert holds("in/a.csv", "in/b.csv")


def test_a_file_of_a_header_only_may_fill(desk, rollup, holds):
    write("in/a.csv")
    status, _, err = rollup("in")
    assert (status, Path("st").exists()) == (0, False)
    assert "the inputs have no rows" in err
    write("in/b.csv", *B)
    assert rollup("in/b.csv")[0] == 0
    assert rollup("in")[0] == 0
    assert "nothing new" in rollup("in")[2]
    write("in/a.csv", *A)
    assert rollup("in")[0] == 0
    assert holds("in/a.csv", "in/b.csv")


def test_rows_that_happen_to_be_the_same_count_with_an_empty_line_more(desk, rollup, holds):
    write("in/a.csv", *A)
    write("in/b.csv", *A)
    assert rollup("in")[0] == 0
    assert holds("in/a.csv")
    Path("in/b.csv").write_text(Path("in/a.csv").read_text() + "\n")
    assert rollup("in")[0] == 2  # b.csv has been taken for a copy
    Path("in/b.csv").rename("in/c.csv")
    assert rollup("in")[0] == 0
    write("twice.csv", *A, *A)
    assert holds("twice.csv")


def test_links_to_folders_are_followed_and_broken_ones_named(desk, rollup, holds):
    write("far/a.csv", *A)
    os.symlink(desk / "far", "in/far")
    os.symlink(desk / "in", "far/round")
    assert rollup("in")[0] == 0
    assert holds("far/a.csv")
    os.symlink(desk / "gone.csv", "in/gone.csv")
    status, _, err = rollup("in")
    assert status == 2
    assert "in/gone.csv is a link to a missing file" in err


def test_a_pipe_is_no_file(desk, rollup):
    os.mkfifo("in/a.csv")
    for path in ("in", "in/a.csv"):
        status, _, err = rollup(path)
        assert status == 2
        assert "in/a.csv is n" in err
    assert not Path("st").exists()


def test_a_range_of_broken_windows_writes_nothing(desk, rollup):
    write("in/a.csv", *A)
    status, _, err = rollup("in", within="2024-05-01T10:00:03,2024-05-01T11:00")
    assert status == 2
    assert "whole windows of 10s" in err
    assert not Path("st").exists()
