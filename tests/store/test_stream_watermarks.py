"""Queries of closed windows in stores with streams: the watermark of each stream is used."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pytest

import aggr
from spark_udaf.store.options import from_options, to_options
from tests.command_line import call
from tiltframe import FrameStore, Query, TiltFrame
from tiltframe.store import CommitConflict
from tiltframe.store.closed_windows import ClosedWindows
from tiltframe.store.log.stream_watermarks import StreamWatermark
from tiltframe.store.testing import MemoryBackend

pytestmark = pytest.mark.store
MINUTE = 60_000_000
FRAME = TiltFrame(["1m", "10m", "1h"], "ts", {"n": aggr.count()})
LENGTHS = {"1m": 1, "10m": 10, "20m": 20, "1h": 60}


def minutes(*times: int) -> pa.Table:
    return pa.table({"ts": pa.array([minute * MINUTE for minute in times], pa.timestamp("us", "UTC"))})


def closed_counts(store: FrameStore, per: str, **options) -> dict[int, int]:
    rows = store.query(per, closed=True, **options).to_pylist()
    return {int(row["window_start"].timestamp()) // 60: row["n"] for row in rows}


@pytest.mark.parametrize("saved", [False, True])
@pytest.mark.parametrize("delay", [0, 2])
def test_a_watermark_before_the_first_rows_loses_none_of_them(saved, delay):
    store = FrameStore(MemoryBackend(f"early watermark {saved} {delay}"), FRAME, row_schema=minutes().schema)
    stream = ClosedWindows(store, "r", emit=f"after_close(delay={delay}m)")
    stream.advance(100 * MINUTE)
    if saved:
        stream = ClosedWindows.from_ipc(stream.to_ipc(), store, "r", emit=f"after_close(delay={delay}m)")
    times = [0, 1, 97, 98, 99, 101]
    assert stream.add_rows(minutes(*times)).num_rows == 0
    stream.close()
    stream.commit()
    assert {int(row["window_start"].timestamp()) // 60: row["n"] for row in store.query("1m").to_pylist()} == Counter(
        times
    )


@pytest.mark.parametrize("seed", range(2))
def test_closed_windows_are_those_before_the_least_watermark_of_all_streams(seed):
    draws = random.Random(seed)
    store = FrameStore(MemoryBackend(f"watermarks {seed}"), FRAME, row_schema=minutes().schema)
    lateness, delay = draws.choice([0, 3]), draws.choice([0, 2])
    policies = {"emit": f"after_close(delay={delay}m)", "late": f"drop({lateness}m)"}
    streams = {name: ClosedWindows(store, name, **policies) for name in "abc"[: draws.randrange(1, 4)]}
    advanced_to = dict.fromkeys(streams)
    committed, waiting = Counter(), {name: Counter() for name in streams}
    for _ in range(12):
        name = draws.choice(list(streams))
        stream, now = streams[name], advanced_to[name] or 0
        times = [now + draws.randrange(30) for _ in range(draws.randrange(1, 9))]
        assert stream.add_rows(minutes(*times)).num_rows == 0
        waiting[name].update(times)
        advanced_to[name] = now + draws.randrange(25)
        stream.advance(advanced_to[name] * MINUTE)
        stream.commit()
        done = {at: n for at, n in waiting[name].items() if at + 1 + delay <= advanced_to[name]}
        committed.update(done)
        waiting[name] -= Counter(done)
        recorded = store.inspect().watermarks
        assert all(recorded[name] <= (advanced_to[name] - delay - lateness) * MINUTE for name in recorded)
        if done:
            assert recorded[name] == (advanced_to[name] - delay - lateness) * MINUTE
        bound = min(recorded.values(), default=10**18) // MINUTE
        for per, length in LENGTHS.items():
            expected = Counter()
            for at, n in committed.items():
                expected[at // length * length] += n
            expected = {start: n for start, n in expected.items() if start + length <= bound}
            assert closed_counts(store, per) == expected
            if per == "20m" and expected:
                assert closed_counts(store, per, latest=True) == {max(expected): expected[max(expected)]}


def test_an_idle_stream_does_not_hold_the_others_back_once_its_watermark_passes_a_window():
    store = FrameStore(MemoryBackend("idle"), FRAME)
    idle, busy = (ClosedWindows(store, name) for name in ("idle", "busy"))
    for stream, last in ((idle, 1), (busy, 90)):
        stream.add_rows(minutes(*range(last)))
        stream.advance(last * MINUTE)
        assert stream.commit()
    assert closed_counts(store, "1h") == {}
    idle.advance(5 * MINUTE)
    assert not idle.is_waiting  # no window of a coarser level has closed
    idle.advance(75 * MINUTE)
    assert idle.is_waiting
    idle.commit()
    assert not idle.is_waiting
    assert closed_counts(store, "1h") == {0: 61}
    assert closed_counts(store, "10m") == {0: 11} | dict.fromkeys(range(10, 70, 10), 10)


def test_a_restarted_stream_goes_on_and_one_that_has_ended_holds_nothing_back(place):
    store = FrameStore(place, FRAME)
    stream = ClosedWindows(store, "requests")
    stream.add_rows(minutes(*range(70)))
    stream.advance(65 * MINUTE)
    saved = stream.to_ipc()
    stream.commit()
    opened = FrameStore(place)
    assert opened.inspect().watermarks == {"requests": 65 * MINUTE}
    assert closed_counts(opened, "1h") == {0: 60}
    ClosedWindows.from_ipc(saved, store).commit()
    stream = ClosedWindows.from_ipc(stream.to_ipc(), store, "requests")
    stream.close()
    stream.commit()
    assert opened.inspect().watermarks == {}
    assert closed_counts(opened, "1h") == {0: 60, 60: 10}
    with pytest.raises(ValueError, match="no watermark of the stream 'requests'; there are none"):
        opened.end_stream("requests")


def test_streams_that_commit_together_keep_both_watermarks():
    store = FrameStore(MemoryBackend("together"), FRAME)
    store.append_rows(minutes(0), writer="batch", commit=0)
    assert closed_counts(store, "1h") == {0: 1}  # writers without a watermark keep nothing open
    begun = [store.begin(name, 0, FRAME.states_schema(minutes().schema)) for name in "ab"]
    for pending, name in zip(begun, "ab", strict=True):
        replace(pending, watermark=StreamWatermark(name, ord(name))).commit([])
    assert store.inspect().watermarks == {"a": ord("a"), "b": ord("b")}


def test_every_door_leaves_out_windows_that_a_stream_keeps_open(tmp_path, capfd):
    """Tektite's `store = true`: the last window of a key is the last closed one."""
    rows = tmp_path / "arriving" / "rows.jsonl"
    rows.parent.mkdir()
    rows.write_text("".join(json.dumps({"ts": f"2024-05-01T10:{at:02}:00Z"}) + "\n" for at in (1, 9, 12, 14, 26, 27)))
    options = f"stream {rows.parent} --once --time ts --measure n=count() --levels 1m,10m --store {tmp_path}/store"
    status, _, _ = call(capfd, *options.split(), "--state", f"{tmp_path}/state")
    assert status == 0
    uri = str(tmp_path / "store")
    expected = [("2024-05-01T10:10:00Z", 2)]  # 27 has arrived, so 10:20 is open
    query = ["query", uri, "--per", "10m", "--latest", "--format", "json"]
    status, out, _ = call(capfd, *query, "--closed")
    assert [(row["window_start"], row["n"]) for row in map(json.loads, out.splitlines())] == expected
    planned, _ = from_options(to_options(uri, Query("10m", latest=True, closed=True), None))
    results = planned.read(planned.partitions(1)[0]).to_pylist()
    assert [(row["window_start"].strftime("%FT%TZ"), row["n"]) for row in results] == expected
    status, _, _ = call(capfd, *options.split(), "--state", f"{tmp_path}/state", "--drain")
    status, out, _ = call(capfd, *query, "--closed")
    assert [row["n"] for row in map(json.loads, out.splitlines())] == [2]
    status, out, _ = call(capfd, "inspect", uri)
    assert "stream" not in out


def test_the_command_ends_an_abandoned_stream(tmp_path, capfd):
    uri = str(tmp_path / "store")
    stream = ClosedWindows(FrameStore(uri, FRAME), "requests")
    stream.add_rows(minutes(*range(70)))
    stream.advance(65 * MINUTE)
    stream.commit()
    status, out, _ = call(capfd, "inspect", uri)
    assert "requests" in out
    query = ["query", uri, "--per", "1h", "--closed", "--format", "json"]
    assert len(call(capfd, *query)[1].splitlines()) == 1
    status, out, err = call(capfd, "end-stream", uri, "requests")
    assert (status, out) == (0, "")
    assert "the stream 'requests' keeps no windows open from now on" in err
    assert len(call(capfd, *query)[1].splitlines()) == 2
    status, _, err = call(capfd, "end-stream", uri, "requests")
    assert status == 2
    assert "no watermark of the stream 'requests'; there are none" in err


def test_a_process_whose_stream_another_has_taken_over_does_not_end_it():
    store = FrameStore(MemoryBackend("taken over"), FRAME, row_schema=minutes().schema)
    first = ClosedWindows(store, "s")
    first.add_rows(minutes(0))
    first.advance(1 * MINUTE)
    assert first.commit()
    second = ClosedWindows(store, "s")
    second.add_rows(minutes(2))
    second.advance(3 * MINUTE)
    assert second.commit()
    before = store.inspect().watermarks
    first.close()
    with pytest.raises(CommitConflict, match="another process writes the stream 's'"):
        first.commit()
    assert store.inspect().watermarks == before != {}
