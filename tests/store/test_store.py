"""The frame store: queries give the results of the rows, after every operation on the store."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import aggr
from aggr.arrow.bit_equality import same_bits
from tests.conftest import conformance, needs_a_buffer
from tests.engines import FLAT_FRAME as UGLY
from tests.engines import rows as ugly_rows
from tiltframe import FrameStore, StoreError, TiltFrame, finish, rollup
from tiltframe.names import LEVEL, START
from tiltframe.store import Expired
from windows import hopping, window

pytestmark = pytest.mark.store

FRAME = TiltFrame(
    ["10s", "1m", "10m", "1h"],
    "ts",
    {"n": aggr.count(), "s": aggr.sum("x"), "p": aggr.dds("x", [0.5, 0.99])},
    ["host", "route"],
)
BEGIN = 1_714_500_000_000  # 2024-04-30T18:00Z, a whole hour


def rows(seed: int, n: int = 1000, begin: int = BEGIN, hours: int = 3) -> pa.Table:
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "ts": begin + rng.integers(0, hours * 3_600_000, n),
            "x": rng.lognormal(0, 2, n),
            "host": pa.array(rng.choice(["a", "it's", None], n).tolist(), pa.string()),
            "route": rng.choice(["/", "/x"], n),
        }
    )


def expected(tables, frame=FRAME):
    """Roll the rows up locally: what every query must give."""
    states = rollup(pa.concat_tables(tables), frame)
    return {level.name: finish(states.filter(pc.equal(states[LEVEL], level.name)), frame) for level in frame.levels}


def assert_same(got: pa.Table, want: pa.Table) -> None:
    assert got.num_rows == want.num_rows
    for name in want.column_names:
        assert same_bits(got.column(name), want.column(name)), name


def assert_holds(store, tables, levels=("10s", "1m", "10m", "1h")):
    want = expected(tables)
    for level in levels:
        assert_same(store.query(level), want[level])


@pytest.mark.long
def test_what_was_appended_comes_back_bit_for_bit(place):
    data = ugly_rows(3000)
    store = FrameStore(place, UGLY)
    for i in range(3):
        assert store.append(rollup(data.slice(i * 1000, 1000), UGLY), "w", i)
    want = expected([data], UGLY)
    for level in UGLY.levels:
        assert_same(FrameStore(place).query(level.name), want[level.name])
    assert_same(store.states("1mo"), rollup(data, UGLY).filter(pc.equal(rollup(data, UGLY)[LEVEL], "1mo")))


@pytest.mark.long
def test_bits_stay_through_compaction_expiry_cleaning_and_reopening(place):
    tables = [rows(i) for i in range(5)]
    store = FrameStore(place, FRAME, retention={"10s": "1d", "1m": "7d"})
    for i, table in enumerate(tables):
        assert store.append(rollup(table, FRAME), "w", i)
        assert not store.append(rollup(table, FRAME), "w", i)
    assert_holds(store, tables)
    merged = store.compact()
    assert all(was == 5 * now for was, now in [merged["1h"], merged["10s"]])
    store.vacuum("1s")
    assert_holds(store, tables)
    assert_holds(FrameStore(place), tables)
    now = datetime(2024, 5, 2, 12, tzinfo=UTC)
    expired = store.expire(now)
    assert set(expired) == {"10s", "1m"}
    assert expired["10s"][1] == expected(tables)["10s"].num_rows  # all of it is older than a day
    assert expired["1m"][1] == 0
    assert_holds(FrameStore(place), tables, ["1m", "10m", "1h"])
    with pytest.warns(Expired, match="10s has windows only from 2024-05-01T12:00:00Z on; query a coarser level"):
        assert store.query("10s", within=("2024-04-30", "2024-05-01")).num_rows == 0
    store.append(rollup(rows(9), FRAME), "w", 9)  # late: counted where it still can be
    assert_holds(store, [*tables, rows(9)], ["1m", "10m", "1h"])
    with pytest.warns(Expired, match="10s has windows only from"):
        assert store.query("10s").num_rows == 0
    store.expire(now)
    assert_holds(FrameStore(place), [*tables, rows(9)], ["1m", "10m", "1h"])


def test_a_query_changes_nothing(tmp_path):
    store = FrameStore(tmp_path / "s", FRAME)
    store.append(rollup(rows(0), FRAME), "w", 0)
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    first = store.query("1m")
    assert store.query("1m").equals(first)
    store.inspect()
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


def test_finer_levels_alone_are_enough(place):
    store = FrameStore(place, FRAME)
    tables = [rows(i) for i in range(3)]
    for i, table in enumerate(tables):
        states = rollup(table, FRAME)
        store.append(states.filter(pc.equal(states[LEVEL], "10s")) if i != 1 else states, "w", i)
        assert_holds(store, tables[: i + 1])
    assert [level.waiting for level in store.inspect().levels][1:] == [3, 3, 3]
    store.compact()
    assert [level.waiting for level in store.inspect().levels] == [0, 0, 0, 0]
    assert [level.parts for level in store.inspect().levels][1:] == [1, 1, 1]
    assert_holds(store, tables)
    with pytest.raises(ValueError, match="states of the finest level, 10s, are missing"):
        store.append(states.filter(pc.equal(states[LEVEL], "1h")), "w", 7)


def test_replacing_a_range_and_rebuilding(place):
    """A range is derived again in all levels; next to it nothing changes."""
    store = FrameStore(place, FRAME)
    tables = [rows(i) for i in range(3)]
    for i, table in enumerate(tables):
        store.append(rollup(table, FRAME), "w", i)
    low, high = BEGIN + 35 * 60_000, BEGIN + 95 * 60_000 + 10_000
    kept_tables = [t.filter(pc.or_(pc.less(t["ts"], low), pc.greater_equal(t["ts"], high))) for t in tables]
    anew = rows(7, 2000)
    anew = anew.filter(pc.and_(pc.greater_equal(anew["ts"], low), pc.less(anew["ts"], high)))
    store.replace(rollup(anew, FRAME), (low, high))
    assert_holds(store, [*kept_tables, anew])
    store.replace(rollup(anew, FRAME), (low, high))
    store.compact()
    store.rebuild()
    assert_holds(FrameStore(place), [*kept_tables, anew])
    store.replace(rollup(anew.slice(0, 0), FRAME), (low, high))
    assert_holds(FrameStore(place), kept_tables)
    with pytest.raises(ValueError, match=r"windows of 10s; got .*; use 2024-04-30T18:00:00Z,2024-04-30T18:00:10Z"):
        store.replace(rollup(anew.slice(0, 0), FRAME), (BEGIN, BEGIN + 5000))
    with pytest.raises(ValueError, match="states outside the range"):
        store.replace(rollup(anew, FRAME), (BEGIN, BEGIN + 10_000))
    store.append(rollup(anew, FRAME), "w", 3)
    assert_holds(store, [*kept_tables, anew])


def test_what_has_expired_cannot_be_replaced_by_halves(place):
    store = FrameStore(place, FRAME, retention={"10s": "1h"})
    store.append(rollup(rows(0), FRAME), "w", 0)
    store.expire("2024-05-30")
    none = rollup(rows(0).slice(0, 0), FRAME)
    with pytest.raises(ValueError, match=r"windows of 1m in the range need windows of 10s that have expired; replace "):
        store.replace(none, (BEGIN, BEGIN + 10_000))
    with pytest.raises(ValueError, match=r"10s has windows only from .* on, so earlier windows of 1m cannot be"):
        store.rebuild((BEGIN, BEGIN + 3_600_000))
    store.replace(none, (BEGIN, BEGIN + 3_600_000))
    later = rows(0).filter(pc.greater_equal(rows(0)["ts"], BEGIN + 3_600_000))
    assert_holds(store, [later], ["1m", "10m", "1h"])


def test_windows_that_levels_can_make(place):
    store = FrameStore(place, FRAME)
    tables = [rows(i, begin=BEGIN, hours=30) for i in range(2)]
    for i, table in enumerate(tables):
        store.append(rollup(table, FRAME), "w", i)
    for per in ("1d", "30s", "2h", "1w", "1mo"):
        frame = TiltFrame([per], FRAME.time, FRAME.measures, FRAME.keys)
        assert_same(store.query(per), expected(tables, frame)[window(per).name])
    hops = store.query(hopping("1h", "10m"), keys=[], measures=["n", "s"])
    times, x = np.concatenate([t["ts"].to_numpy() for t in tables]), np.concatenate([t["x"] for t in tables])
    for row in hops.to_pylist()[::7]:
        start = int(row[START].timestamp() * 1000)
        inside = (times >= start) & (times < start + 3_600_000)
        assert row["n"] == inside.sum()
        assert row["s"] == pytest.approx(float(x[inside].sum()), rel=1e-12)
    total = store.query(within=(BEGIN + 600_000, BEGIN + 3_600_000), keys=[])
    inside = (times >= BEGIN + 600_000) & (times < BEGIN + 3_600_000)
    assert total["n"].to_pylist() == [inside.sum()]
    assert store.query("all", keys=[])["n"].to_pylist() == [len(times)]


def test_keys_measures_and_new_quantiles(place):
    store = FrameStore(place, FRAME)
    table = rows(0)
    store.append(rollup(table, FRAME), "w", 0)
    other = TiltFrame(["1h"], "ts", {"p": aggr.dds("x", [0.1, 0.999]), "n": aggr.count()}, ["host"])
    got = store.query("1h", keys=["host"], measures={"p": other.measures["p"], "n": aggr.count()})
    assert_same(got, expected([table], other)["1h"])
    assert store.query("1h", where="host = 'it''s' AND route = '/'")["n"].to_pylist() == [
        int(n)
        for n in np.bincount(
            [
                (ts - BEGIN) // 3_600_000
                for ts, host, route in zip(*(table[c].to_pylist() for c in ("ts", "host", "route")), strict=True)
                if (host, route) == ("it's", "/")
            ]
        )
    ]
    top = store.query("1h", order_by=["p.quantiles.0.99 desc"], limit=2, measures=["p"])
    want = sorted((q["quantiles"]["0.99"] for q in store.query("1h")["p"].to_pylist()), reverse=True)[:2]
    assert [q["quantiles"]["0.99"] for q in top["p"].to_pylist()] == want


def test_fill_gives_windows_without_events(place):
    store = FrameStore(place, FRAME)
    few = rows(0).slice(0, 4)
    store.append(rollup(few, FRAME), "w", 0)
    got = store.query("1m", within=(BEGIN, BEGIN + 3 * 3_600_000), fill=True)
    keys = {(r["host"], r["route"]) for r in few.to_pylist()}
    assert got.num_rows == 180 * len(keys)
    assert sum(got["n"].to_pylist()) == 4
    empty = next(r for r in got.to_pylist() if r["n"] == 0)
    assert (empty["s"], empty["p"]) == (None, None)
    assert got["window_start"].to_pylist() == sorted(got["window_start"].to_pylist())
    with pytest.raises(ValueError, match="windows of 10s begin in the range, and at most"):
        store.query("10s", within=("2000-01-01", "2024-05-02"), fill=True)
    now = datetime.fromtimestamp(BEGIN / 1000, UTC) + timedelta(hours=1, minutes=30)
    capped = store.query("1h", within=("2024-04-30", "2024-05-02"), fill=True, keys=[], now=now)
    assert capped["window_start"].to_pylist()[0] == datetime(2024, 4, 30, tzinfo=UTC)
    assert all(row["window_start"] <= now for row in capped.to_pylist() if not row["n"])
    assert sum(not n for n in capped["n"].to_pylist()) == 20 - sum(
        1 for row in capped.to_pylist() if row["n"] and row["window_start"] <= now
    )


def test_the_open_window_is_marked_as_partial(place):
    store = FrameStore(place, FRAME, retention={"10s": "1h"})
    store.append(rollup(rows(0), FRAME), "w", 0)
    now = datetime.fromtimestamp(BEGIN / 1000, UTC) + timedelta(hours=2, minutes=30)
    marks = store.query("1h", keys=[], now=now)["partial"].to_pylist()
    assert marks == [False, False, True]
    store.expire(now)
    with pytest.warns(Expired):
        halves = store.query(hopping("1m", "10s"), keys=[], now=now)
    assert halves["partial"].to_pylist()[0]  # it reaches into what 10s has forgotten


def test_inspect_tells_what_is_there(place):
    store = FrameStore(place, FRAME, retention={"10s": "1d"})
    store.append(rollup(rows(0, 3), FRAME), "w", 0)
    finest, *_, hour = store.inspect().levels
    starts = sorted({ts // 10_000 * 10_000 for ts in rows(0, 3)["ts"].to_pylist()})
    assert finest.windows == len(starts)
    assert finest.first == starts[0] * 1000
    assert finest.end == (starts[-1] + 10_000) * 1000
    assert len(finest.gaps) == len(starts) - 1
    assert (finest.rows, finest.waiting, finest.retention) == (3, 0, "1d")
    assert hour.retention is None
    assert finest.bytes > 0


def test_a_store_describes_itself_and_refuses_another_frame(place):
    with pytest.raises(StoreError, match="there is no store"):
        FrameStore(place)
    store = FrameStore(place, FRAME, name="web", retention={"10s": "1d", "1h": None})
    with pytest.raises(StoreError, match="does not exist yet"):
        store.query("1h")
    store.append(rollup(rows(0), FRAME), "w", 0)
    again = pickle.loads(pickle.dumps(FrameStore(place)))
    assert (again.frame, again.name, again.retention) == (FRAME, "web", {"10s": "1d"})
    assert "TiltFrame(10s → 1m → 10m → 1h by host, route" in repr(again)
    other = TiltFrame(["10s", "1m", "10m", "1h"], "ts", FRAME.measures, ["host"])
    with pytest.raises(StoreError, match=r"another frame: keys is \['host'\] here and \['host', 'route'\] there"):
        FrameStore(place, other)
    if "://" not in place:  # a database may hold several
        with pytest.raises(StoreError, match="called 'web', not 'app'"):
            FrameStore(place, FRAME, name="app")
    assert FrameStore(place, retention={"10s": "2d"}).retention == {"10s": "2d"}
    assert FrameStore(place).retention == {"10s": "2d"}


def test_a_writer_of_another_frame_that_came_second_is_refused(place):
    other = TiltFrame(["1s"], "ts", {"n": aggr.count()})
    own_store, other_store = FrameStore(place, FRAME), FrameStore(place, other)
    own_store.append(rollup(rows(0), FRAME), "w", 0, {"file": 3})
    with pytest.raises(StoreError, match="another frame: levels"):
        other_store.append(rollup(pa.table({"ts": [1]}), other), "w", 0)
    with pytest.raises(StoreError, match="recorded values differ from those that this commit expects"):
        own_store.append(rollup(rows(0), FRAME), "w", 1, {"file": 3})
    assert own_store.recorded(["file", "no"]) == {"file": 3}
    assert (own_store.last_commit("w"), own_store.last_commit("no")) == (0, None)
    assert_holds(own_store, [rows(0)])


def test_states_of_other_types_are_refused(place):
    store = FrameStore(place, FRAME)
    store.append(rollup(rows(0), FRAME), "w", 0)
    integer_rows = rows(0).set_column(1, "x", pa.array(range(1000)))
    with pytest.raises(StoreError, match="contains states of double in 's'; got states of int64"):
        store.append(rollup(integer_rows, FRAME), "w", 1)
    with pytest.raises(ValueError, match="not states of this frame"):
        store.append(rollup(rows(0), TiltFrame(["10s"], "ts", {"m": aggr.count()})), "w", 1)
    assert_holds(store, [rows(0)])


QUESTIONS = {
    "an unknown level": ({"per": "7s"}, "7s does not consist of whole windows of a level; use a level"),
    "no window": ({"per": "soon"}, "cannot read 'soon' as a window"),
    "hops of no level": ({"per": "hopping(1h, 7s)"}, "hopping.*not consist of whole windows"),
    "an unknown measure": ({"per": "1h", "measures": ["q"]}, "no measure 'q'; it has n, s, p"),
    "a measure nobody kept": ({"per": "1h", "measures": {"q": aggr.avg("y")}}, r"no states of avg\('y'\)"),
    "an unknown key": ({"per": "1h", "keys": ["x"]}, "no key 'x'; it has host, route"),
    "a condition on a measure": ({"per": "1h", "where": "n > 1"}, "can use only the keys of the frame"),
    "start after end": ({"per": "1h", "within": ("2024-05-02", "2024-05-01")}, "end must come after its start"),
    "an unknown column to order by": ({"per": "1h", "order_by": "z"}, "cannot order by 'z'"),
    "a record to order by": ({"per": "1h", "order_by": "p"}, "cannot order by 'p'"),
    "no limit": ({"per": "1h", "limit": -1}, "limit must be a whole number"),
}


@pytest.mark.parametrize("mistake", QUESTIONS)
def test_what_cannot_be_asked(mistake, tmp_path):
    query, message = QUESTIONS[mistake]
    store = FrameStore(tmp_path / "s", FRAME)
    store.append(rollup(rows(0, 10), FRAME), "w", 0)
    with pytest.raises(ValueError, match=message):
        store.query(**query)


@pytest.mark.parametrize(
    ("retention", "message"),
    [
        ({"10s": "7d", "1m": "1d"}, "10s would be kept for 7d, and 1m, which is computed from it, only for 1d"),
        ({"1m": "1d"}, "10s would be kept for ever"),
        ({"1d": "1d"}, "the frame has no level '1d'"),
        ({"10s": "a while"}, "cannot read 'a while'"),
    ],
)
def test_retention_that_would_lose_data(retention, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        FrameStore(tmp_path / "s", FRAME, retention=retention)


@pytest.mark.parametrize("writer", ["", "tiltframe:x", 7, "a\0b"])
def test_writers_that_cannot_be(writer, tmp_path):
    with pytest.raises(ValueError, match="the name of a writer must be text"):
        FrameStore(tmp_path / "s", FRAME).append(rollup(rows(0, 10), FRAME), writer, 0)


@conformance("siddhi.json", lambda case: not needs_a_buffer(case))
def test_siddhi_through_a_store(case, place):
    """Each row expected is there, to the last bit; rows come in four commits, in the order of arrival."""
    measures = {name: aggr.caller(f)(*[column] * bool(column)) for name, (f, column) in case["measures"].items()}
    frame = TiltFrame(
        ["second", "minute", "hour", "day", "month", "year"], "ts_ms", measures, case["keys"], case["timezone"]
    )
    data, store = pa.Table.from_pylist(case["rows"]), FrameStore(place, frame)
    step = -(-data.num_rows // 4)
    for i in range(0, data.num_rows, step):
        store.append(rollup(data.slice(i, step), frame), "siddhi", i)
    for name, expected in case["expected"].items():
        starts = [row["window_start_ms"] for row in expected]
        rows = store.query(per=name, within=(min(starts), max(starts) + 1)).to_pylist()
        rows = [{**row, "window_start_ms": int(row[START].timestamp() * 1000)} for row in rows]
        matched = [next((r for r in rows if all(r[k] == v for k, v in want.items())), None) for want in expected]
        assert None not in matched
        assert len({id(r) for r in matched}) == len(expected)


@pytest.mark.long
def test_a_query_reads_only_the_files_it_needs(tmp_path):
    """A month, an hour a row: of all files, the day's hours are read from one, and the rest may be gone."""
    frame = TiltFrame(["1s", "1m", "1h"], "ts", {"n": aggr.count()})
    store = FrameStore(tmp_path / "s", frame)
    begin = 1_714_521_600_000  # 2024-05-01
    for day in range(30):
        hours = [begin + (day * 24 + hour) * 3_600_000 for hour in range(24)]
        store.append(rollup(pa.table({"ts": hours}), frame), "w", day)
    store.compact()
    store.vacuum("1s")
    day = store.query("1h", within=("2024-05-07", "2024-05-08"))
    parts = store.backend.snapshot().parts
    assert len(parts) == 720 + 30 + 1
    (hours,) = (part for part in parts if part.level == "1h")
    for part in parts:
        if part.level != "1h":
            (tmp_path / "s" / "tiltframe" / part.name).unlink()
    assert FrameStore(tmp_path / "s").query("1h", within=("2024-05-07", "2024-05-08")).equals(day)
    with pytest.raises(StoreError, match="damaged: a file is missing: level=1m/"):
        store.query("1m", within=("2024-05-07", "2024-05-08"))


@pytest.mark.skipif(int(pa.__version__.split(".")[0]) < 16, reason="deltalake reads no partitions with it")
def test_any_delta_reader_reads_the_table(tmp_path):
    """The table of a store is Delta Lake's: what it holds is there for others too."""
    from deltalake import DeltaTable

    store = FrameStore(tmp_path / "s", FRAME, name="web")
    store.append(rollup(rows(0), FRAME), "w", 0)
    every = DeltaTable(str(tmp_path / "s" / "tiltframe"))
    table = every.to_pyarrow_table(filters=[("level", "=", "1h")])
    expected = rollup(rows(0), FRAME).filter(pc.equal(rollup(rows(0), FRAME)[LEVEL], "1h"))
    assert sum(table["n"].combine_chunks().field("count").to_pylist()) == 1000
    assert sorted(table["window_start"].to_pylist()) == sorted(expected["window_start"].to_pylist())
    hour = datetime.fromtimestamp(BEGIN / 1000, UTC)
    bucket = [("level", "=", "10s"), ("bucket", "=", f"{hour:%Y-%m-%dT%H}")]
    assert len(every.file_uris(file_pruning_predicate=bucket)) == 1


def test_other_tools_may_vacuum_and_optimize_the_table(tmp_path):
    """They merge files of states and of records as they are: results and numbers of writers stay."""
    from deltalake import DeltaTable

    store = FrameStore(tmp_path / "s", FRAME)
    for i in range(3):
        store.append(rollup(rows(i), FRAME), f"w{i}", i, {"file": i} if i == 2 else {f"other {i}": i})
    table = DeltaTable(str(tmp_path / "s" / "tiltframe"))
    assert table.optimize.compact()["numFilesRemoved"] > 12
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    again = FrameStore(tmp_path / "s")
    assert_holds(again, [rows(i) for i in range(3)])
    assert [again.last_commit(f"w{i}") for i in range(3)] == [0, 1, 2]
    assert again.recorded(["file", "other 0"]) == {"file": 2, "other 0": 0}
    assert not again.append(rollup(rows(1), FRAME), "w1", 1)
    assert again.append(rollup(rows(3), FRAME), "w1", 2, {"file": 4}, {"file": 2})
    again.compact()
    assert_holds(store, [rows(i) for i in range(4)])
    assert store.recorded(["file"]) == {"file": 4}
    assert again.verify().problems == ()


@pytest.mark.long
def test_more_commits_than_a_checkpoint_takes(tmp_path):
    frame = TiltFrame(["1s", "1m"], "ts", {"n": aggr.count()})
    store = FrameStore(tmp_path / "s", frame)
    for i in range(120):
        store.append(rollup(pa.table({"ts": [1000 * i]}), frame), f"w{i % 3}", i)
    assert list((tmp_path / "s" / "tiltframe" / "_delta_log").glob("*.checkpoint.parquet"))
    again = FrameStore(tmp_path / "s")
    assert again.query("1m")["n"].to_pylist() == [60, 60]
    assert not again.append(rollup(pa.table({"ts": [119_000]}), frame), "w2", 119)
    again.compact()
    assert FrameStore(tmp_path / "s").query("1m")["n"].to_pylist() == [60, 60]


@pytest.mark.long
def test_a_bucket_that_is_too_large_is_merged_in_pieces(tmp_path, monkeypatch):
    from tiltframe.store.query import merging

    monkeypatch.setattr(merging, "ROWS_AT_ONCE", 200)
    store = FrameStore(tmp_path / "s", FRAME)
    tables = [rows(i) for i in range(3)]
    for i, table in enumerate(tables):
        store.append(rollup(table, FRAME), "w", i)
    done = store.compact()
    assert done["10s"][0] == 9
    assert done["10s"][1] > 3
    parts = store.backend.snapshot().of("10s")
    assert max(part.rows for part in parts) < 500
    assert_holds(store, tables)
    store.compact()  # small neighbours
    assert set(store.compact().values()) == {(0, 0)}
    assert_holds(FrameStore(tmp_path / "s"), tables)


def test_expiry_counts_what_goes_from_the_middle_of_a_part(place):
    store = FrameStore(place, FRAME, retention={"10s": "1h"})
    store.append(rollup(rows(0), FRAME), "w", 0)
    all_windows = store.query("10s")
    middle = datetime.fromtimestamp(BEGIN / 1000, UTC) + timedelta(minutes=90)
    (before, expired) = store.expire(middle + timedelta(hours=1))["10s"]
    assert before == middle.timestamp() * 1e6
    late = all_windows.filter(pc.greater_equal(all_windows["window_start"], pa.scalar(middle)))
    assert expired == all_windows.num_rows - late.num_rows
    with pytest.warns(Expired):
        assert_same(store.query("10s"), late)
    assert_holds(store, [rows(0)], ["1m", "10m", "1h"])


def test_a_store_that_someone_else_has_made_meanwhile_tells_its_numbers(place):
    early = FrameStore(place, FRAME)
    assert early.last_commit("w") is None
    FrameStore(place, FRAME).append(rollup(rows(0), FRAME), "w", 3)
    assert early.last_commit("w") == 3
    assert early.has_commit("w", 3)
