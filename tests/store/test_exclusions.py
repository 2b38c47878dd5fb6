"""Groups beyond limits and refused values, in maps, replacements and streams, are reported as by a rollup."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

import aggr
from tests.command_line import call
from tiltframe import FrameStore, TiltFrame, rollup
from tiltframe.store import BeyondLimit, RefusedValues
from tiltframe.store.closed_windows import ClosedWindows
from tiltframe.streaming import OpenWindows

pytestmark = pytest.mark.store

OF = {"some": aggr.collect("x", max=2, beyond="null"), "p": aggr.hdr("x", bad_values="skip"), "n": aggr.count()}
FRAME = TiltFrame(["1m", "1h"], "ts", {"m": aggr.per("h", of=OF, max=3, beyond="null")}, ["k"])
MINUTE = 60_000


def rows_of(*rows: tuple[int, str, str, int]) -> pa.Table:
    columns = zip(*rows, strict=True)
    return pa.table(dict(zip(["ts", "k", "h", "x"], columns, strict=True)))


# In the first minute, the key "a" has one map whose entry "u" has three values, one of them refused. In the second
# minute, "b" has four entries, beyond the limit of the map, which loses its refused value with its entries.
ROWS = rows_of(
    (0, "a", "u", 1), (0, "a", "u", -2), (1, "a", "u", 3), (2, "a", "v", -4), (MINUTE, "b", "s", -1),
    (MINUTE, "b", "t", 1), (MINUTE, "b", "u", 1), (MINUTE, "b", "v", 1),
)  # fmt: skip
BEYOND = "the results of groups with more values than the limit are null: 2 at level 1m, 2 at level 1h"
REFUSED = "invalid values skipped: 2"


def test_groups_inside_per_are_counted(tmp_path):
    with pytest.warns(BeyondLimit, match=BEYOND), pytest.warns(RefusedValues, match=REFUSED):
        states = rollup(ROWS, FRAME)
    store, notes = FrameStore(tmp_path / "s", FRAME), list[str]()
    store.append(states, "w", 1, note=notes.append)
    assert [note.partition("): ")[2] for note in notes] == [BEYOND, REFUSED]


def test_replacements_report_the_finest_level(tmp_path):
    store, notes = FrameStore(tmp_path / "s", FRAME), list[str]()
    with pytest.warns(BeyondLimit), pytest.warns(RefusedValues):
        states = rollup(ROWS, FRAME)
    store.replace(states, ("1970-01-01", "1970-01-02"), note=notes.append)
    assert [note.partition("): ")[2] for note in notes] == [BEYOND.removesuffix(", 2 at level 1h"), REFUSED]


def test_streams_count_what_they_emit_and_skip():
    windows = OpenWindows(FRAME, "on_update")
    windows.add_rows(ROWS.slice(0, 3))
    assert (windows.progress.refused_values, windows.progress.results_beyond_limit) == (1, 0)
    windows.advance(1)
    assert windows.progress.results_beyond_limit == 2  # "u", in the minute and in the hour
    restored = OpenWindows.from_ipc(windows.to_ipc())
    for late in restored.add_rows(ROWS.slice(3)), restored.close():
        assert late.num_rows in (0, 4)
    assert (restored.progress.refused_values, restored.progress.results_beyond_limit) == (2, 2 + 4)


def test_late_rows_that_are_dropped_are_not_counted():
    frame = TiltFrame(["1s"], "ts", {"p": aggr.hdr("x", bad_values="skip")})
    windows = OpenWindows(frame)
    windows.add_rows(pa.table({"ts": [0], "x": [-1]}))
    windows.advance(5_000_000)
    assert windows.add_rows(pa.table({"ts": [0, 6_000], "x": [-1, -1]})).num_rows == 1
    assert windows.progress.refused_values == 2


def test_commits_of_closed_windows_report(tmp_path):
    stream = ClosedWindows(FrameStore(tmp_path / "s", FRAME), "rows")
    stream.add_rows(ROWS)
    stream.close()
    with pytest.warns(BeyondLimit, match=BEYOND), pytest.warns(RefusedValues, match=REFUSED):
        stream.commit()


@pytest.mark.parametrize("into", ["output", "store"])
def test_the_command_says_it_at_the_end(into, tmp_path, capfd):
    (tmp_path / "in").mkdir()
    lines = (json.dumps(row) for row in ROWS.to_pylist())
    (tmp_path / "in" / "rows.jsonl").write_text("\n".join(lines) + "\n")
    measures = ["p=hdr(x, bad_values=skip)", "some=collect(x, max=2, beyond=null)"]
    options = ["--time", "ts", "--key", "k", "--levels", "1m,1h", *(f"--measure={text}" for text in measures)]
    store = ["--store", tmp_path / "s"] if into == "store" else []
    status, _, err = call(capfd, "stream", tmp_path / "in", "--once", *options, *store)
    assert status == 0
    assert "tiltframe: p, hdr('x', bad_values='skip'): invalid values skipped: 3\n" in err
    # into a store, a window of 1h may be in several commits, so only those of 1m are counted
    beyond = "2 at level 1m" if into == "store" else "2 at level 1m, 2 at level 1h"
    assert f"than the limit are null: {beyond}\n" in err
    assert err.count("invalid values skipped") == 1
