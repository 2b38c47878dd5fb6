"""`tiltframe backfill`, then `tiltframe rollup` of the same files: each row counts once, or an error says why not."""

import itertools

import pytest

from tests.command_line import call
from tiltframe import FrameStore

FRAME = ["--time", "ts", "--key", "h", "--measure", "n=count()", "--measure", "s=sum(x)", "--levels", "1h,1d"]
DAYS = {"a": [1, 2], "b": [3], "c": [2, 4]}  # the days of the rows of each file


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, days in DAYS.items():
        rows = "".join(f"2024-05-0{day}T10:00:00Z,a,{day}\n" for day in days)
        (tmp_path / f"{name}.csv").write_text("ts,h,x\n" + rows)
    return tmp_path


def sums():
    return FrameStore("store").query("1d")["s"].to_pylist()


ALL = [1.0, 4.0, 3.0, 4.0]


@pytest.mark.store
@pytest.mark.parametrize(("first_day", "end_day"), list(itertools.combinations(range(1, 6), 2)))
def test_rows_outside_of_the_range_are_not_lost(folder, capfd, first_day, end_day):
    within = f"2024-05-0{first_day},2024-05-0{end_day}"
    files = [f"{name}.csv" for name in DAYS]
    for _ in range(2):  # the second run adds nothing
        status, _, err = call(capfd, "backfill", *files, *FRAME, "--within", within, "--store", "store")
        assert status == 0, err
        assert sums() == ALL[first_day - 1 : end_day - 1]
    in_range = {name: sum(first_day <= day < end_day for day in days) for name, days in DAYS.items()}
    stored = sum(day for days in DAYS.values() for day in days if first_day <= day < end_day)
    for name, days in DAYS.items():
        status, _, err = call(capfd, "rollup", f"{name}.csv", *FRAME, "--store", "store")
        overlaps = min(days) < end_day and first_day <= max(days)  # the command knows only the first and the last time
        if overlaps and in_range[name] < len(days):
            assert status == 2
            assert f"contains only those rows of {name}.csv that a backfill has added" in err
        else:
            assert status == 0, err
            assert ("nothing new" in err) == (in_range[name] == len(days))
            stored += 0 if in_range[name] else sum(days)
        assert sum(sums()) == stored
    status, _, err = call(
        capfd, "rollup", *files, *FRAME, "--store", "store", "--replace-within", "2024-05-01,2024-05-05"
    )
    assert status == 0, err
    assert sums() == ALL
    assert "nothing new" in call(capfd, "rollup", *files, *FRAME, "--store", "store")[2]


@pytest.mark.store
@pytest.mark.parametrize("commits", range(5))
@pytest.mark.parametrize("order", [[], ["--newest-first"]])
def test_an_interrupted_backfill_is_continued(folder, capfd, monkeypatch, commits, order):
    options = [*(f"{name}.csv" for name in DAYS), *FRAME, "--store", "store"]
    count = itertools.count()
    add = FrameStore.append_spilled

    def add_or_stop(*args, **kwargs):
        if next(count) == commits:
            raise KeyboardInterrupt
        return add(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(FrameStore, "append_spilled", add_or_stop)
        status, _, _ = call(capfd, "backfill", *options, "--chunk", "1d", *order)
    if 0 < commits < 4:
        assert status != 0
        for name in DAYS:
            status, _, err = call(capfd, "rollup", f"{name}.csv", *FRAME, "--store", "store")
            assert status == 2
            assert "run the same tiltframe backfill again" in err
    assert call(capfd, "backfill", *options, "--chunk", "1d", *order)[0] == 0
    assert sums() == ALL
    assert "nothing new" in call(capfd, "rollup", *options)[2]
    assert sums() == ALL


@pytest.mark.store
def test_another_backfill_of_the_same_files_says_what_to_do(folder, capfd):
    options = ["a.csv", "b.csv", *FRAME, "--store", "store"]
    assert call(capfd, "backfill", *options, "--within", "2024-05-01,2024-05-02")[0] == 0
    status, _, err = call(capfd, "backfill", *options, "--within", "2024-05-02,2024-05-04")
    assert status == 2
    assert "--replace-within START,END" in err
    assert "writer" not in err
    status, _, err = call(capfd, "backfill", "a.csv", *FRAME, "--store", "store")
    assert status == 2
    assert "already contains rows of" in err
    status, _, err = call(capfd, "rollup", *options, "--replace-within", "2024-05-01,2024-05-04")
    assert status == 0, err
    assert sums() == [1.0, 2.0, 3.0]
