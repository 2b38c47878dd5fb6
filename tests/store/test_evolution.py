"""Evolution: a store gets another frame, and keeps its data.

Expected results come from a naive evaluation of the rows. A result is that of all rows of its window and key. It is
null if one of the rows was written before the measure was added.
"""

from __future__ import annotations

import datetime as dt
import math
import pickle
import statistics
import warnings
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import aggr
from tiltframe import FrameStore, Query, StoreError, TiltFrame, rollup
from tiltframe.store import NotKnown, OtherFrame
from tiltframe.store.backends.postgres.session import session
from tiltframe.store.changes.evolution import plan_evolution
from tiltframe.store.testing import MemoryBackend
from tiltframe.streaming import OpenWindows

pytestmark = [pytest.mark.store, pytest.mark.filterwarnings("ignore::tiltframe.store.NotKnown")]

BEFORE = {"n": aggr.count(), "mean": aggr.avg("x"), "p": aggr.dds("x", [0.5])}
AFTER = {"n": aggr.count(), "sd": aggr.stdev("x"), "p": aggr.dds("x", [0.5, 0.9]), "high": aggr.count(where="x > 5")}
OLD = TiltFrame(["10s", "1m"], "ts", BEFORE, ["k"])
NEW = TiltFrame(["10s", "1m", "10m"], "ts", AFTER, ["k"])
SIZES = {"10s": 10, "1m": 60, "10m": 600}
ROWS = pa.schema([("ts", pa.int64()), ("k", pa.string()), ("x", pa.float64())])


def rows(first: int, last: int) -> list[dict]:
    """Rows of some seconds, two a second."""
    return [
        {"ts": second * 1000, "k": "ab"[i], "x": (second * 7 + i) % 11 / 2}
        for second in range(first, last)
        for i in (0, 1)
    ]


def table(records: list[dict]) -> pa.Table:
    return pa.Table.from_pylist(records, ROWS)


EARLY, LATE = rows(0, 700), rows(650, 1300)  # seconds 650 to 699 in both


@pytest.fixture(params=["memory", "folder", "postgres"])
def anywhere(request, tmp_path):
    if request.param == "memory":
        return MemoryBackend()
    return str(tmp_path / "s") if request.param == "folder" else request.getfixturevalue("postgres")


def expected(per: str, early: list[dict], late: list[dict]) -> dict[tuple, tuple]:
    """Evaluate n, sd, p and high naively: what was added is null in windows with early rows."""
    groups: dict[tuple, list[tuple[bool, float]]] = {}
    for is_late, row in [*((False, row) for row in early), *((True, row) for row in late)]:
        start = row["ts"] // 1000 // SIZES[per] * SIZES[per]
        groups.setdefault((start, row["k"]), []).append((is_late, row["x"]))
    values_by_window = {}
    for key, values_of_group in groups.items():
        values, has_late_rows_only = [x for _, x in values_of_group], all(is_late for is_late, _ in values_of_group)
        sd = statistics.stdev(values) if has_late_rows_only and len(values) > 1 else None
        values_by_window[key] = len(values), sd, sum(x > 5 for x in values) if has_late_rows_only else None
    return values_by_window


def results(store: FrameStore, per: str, **query) -> dict[tuple, tuple]:
    values_by_window = {}
    for row in store.query(per, **query).to_pylist():
        values_by_window[int(row["window_start"].timestamp()), row["k"]] = row["n"], row["sd"], row["high"]
    return values_by_window


def same(actual: dict, expected: dict) -> None:
    assert actual.keys() == expected.keys()
    for key, (n, sd, high) in expected.items():
        assert actual[key][0] == n, key
        assert actual[key][2] == high, key
        assert (actual[key][1] is None) == (sd is None), key
        assert sd is None or math.isclose(actual[key][1], sd, rel_tol=1e-12), key


@pytest.mark.long
def test_what_was_added_is_null_where_it_is_not_known_until_rows_are_rolled_up_anew(anywhere):
    store = FrameStore(anywhere, OLD)
    store.append(rollup(table(EARLY), OLD), "w", 1)
    store.compact()
    store.evolve(NEW, row_schema=ROWS)
    assert [level.name for level in store.frame.levels] == ["10s", "1m", "10m"]
    assert [c.name for c in store.frame.states] == ["n", "p", "sd", "high"]
    opened = FrameStore(anywhere, NEW)
    assert opened.frame == store.frame == pickle.loads(pickle.dumps(store)).frame
    for state in ("evolved", "appended", "compacted"):
        late = [] if state == "evolved" else LATE
        if state == "appended":
            assert opened.append(rollup(table(LATE), opened.frame), "w", 2)
        if state == "compacted":
            opened.compact("9999-01-01")
        for per in SIZES:
            same(results(FrameStore(anywhere), per), expected(per, EARLY, late))
        assert store.verify().problems == ()
    filled = store.query("10s", within="1970-01-01 **:**:**", fill=True, keys=[])
    assert filled["high"].to_pylist()[129:132] == [sum(row["x"] > 5 for row in LATE if row["ts"] >= 1290_000), 0, 0]
    assert filled["high"][0].as_py() is None
    halves = store.query("1m", measures={"p": aggr.dds("x", [0.1])}, where="k = 'a'")["p"].to_pylist()
    assert [half["count"] for half in halves[:2]] == [60, 60]
    all_rows = EARLY + LATE
    opened.replace(rollup(table([row for row in all_rows if row["ts"] < 1_200_000]), opened.frame), (0, 1_200_000))
    opened.compact("9999-01-01")
    for per in SIZES:
        same(results(store, per), expected(per, [], all_rows))
    assert store.verify().problems == ()


def test_since_when_an_added_measure_is_known(anywhere):
    store = FrameStore(anywhere, OLD)
    store.append(rollup(table(EARLY), OLD), "w", 1)
    store.evolve(NEW, row_schema=ROWS)
    store.append(rollup(table(LATE), store.frame), "w", 2)

    def check_known_from() -> dict[str, float]:
        """Tell it from the results of windows, naively: the end of the last that is null."""
        report = store.inspect().known_from
        starts = {row["window_start"] for row in store.query("10s").to_pylist() if row["high"] is None}
        last = max((start.timestamp() + 10 for start in starts), default=None)
        assert report == ({"sd": last * 10**6, "high": last * 10**6} if last else {})
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            store.query("10s", measures=["high", "n"])
        assert [warning.category for warning in caught] == [NotKnown] * bool(last)
        return last

    assert check_known_from() == 700
    for within, measures in (((700_000, None), ["high"]), (None, ["n", "p"])):
        assert store.ask(Query("10s", within, measures=measures)).unknown == ()
    expected_warning = "high was added at 1970-01-01T00:11:40Z, and is null in earlier windows"
    assert store.ask(Query("10m", measures={"twice": "2 * high"})).unknown == (expected_warning,)
    middle_rows = [row for row in EARLY + LATE if 400_000 <= row["ts"] < 700_000]
    store.replace(rollup(table(middle_rows), store.frame), (400_000, 700_000))
    assert check_known_from() == 400
    store.replace(rollup(table(EARLY[:200]), store.frame), (0, 100_000))
    assert check_known_from() == 400
    store.replace(rollup(table(EARLY[:800]), store.frame), (0, 400_000))
    assert check_known_from() is None
    same(results(store, "10m"), expected("10m", [], EARLY + LATE))


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (
            TiltFrame(["10s", "1m"], "ts", BEFORE, ["k", "l"]),
            r"cannot change its keys: it has \['k'\], and the new frame has \['k', 'l'\];",
        ),
        (
            TiltFrame(["10s", "1m"], "ts", BEFORE, ["k"], "Asia/Tokyo"),
            "cannot change its timezone: it has UTC, and the new frame has Asia/Tokyo",
        ),
        (TiltFrame(["10s", "1m"], "at", BEFORE, ["k"]), "cannot change its time: it has ts, and the new frame has at;"),
        (TiltFrame(["1m"], "ts", BEFORE, ["k"]), "the level 10s cannot be removed"),
        (
            TiltFrame(["10s", "30s", "1m"], "ts", BEFORE, ["k"]),
            "must be coarser than 1m, the coarsest level of the store; 30s is finer",
        ),
        (TiltFrame(["10s", "1m", "hopping(1h, 1m)"], "ts", BEFORE, ["k"]), "a store can contain only windows that"),
        (
            TiltFrame(["10s", "1m"], "ts", {**BEFORE, "p": aggr.dds("x", relative_accuracy=0.1)}, ["k"]),
            r"the measure 'p' is dds\('x', quantiles=\[0.5\]\) in the store and dds\('x', relative_accuracy=0.1\) here",
        ),
        (TiltFrame(["10s", "1m"], "ts", {**BEFORE, "n": aggr.count(where="x > 1")}, ["k"]), "the measure 'n' is count"),
        (TiltFrame(["10s", "1m"], "ts", {**BEFORE, "y": aggr.sum("y")}, ["k"]), "the data has no column 'y'|y"),
        (
            TiltFrame(["10s", "1m"], "ts", {"n": aggr.count(), "mean": aggr.avg("x"), "P": aggr.max("x")}, ["k"]),
            "cannot have the columns 'P' and 'p', which differ only by case",  # the states of the dropped p remain
        ),
    ],
)
def test_what_a_store_cannot_become_is_refused_by_naming_the_difference(frame, message):
    store = FrameStore(MemoryBackend(), OLD, row_schema=ROWS)
    described = store.backend.snapshot().manifest
    with pytest.raises((ValueError, TypeError), match=message):
        store.evolve(frame, row_schema=ROWS)
    assert store.backend.snapshot().manifest == described
    assert store.frame == OLD


def test_open_windows_have_the_states_that_a_store_keeps():
    store = FrameStore(MemoryBackend(), TiltFrame(["10s"], "ts", {"mean": aggr.avg("x")}, ["k"]), row_schema=ROWS)
    store.evolve(TiltFrame(["10s"], "ts", {"mean": aggr.avg("x"), "sd": aggr.stdev("x")}, ["k"]), row_schema=ROWS)
    assert [column.name for column in store.frame.states] == ["mean", "sd"]
    open_frame = OpenWindows(store.frame).partial_frame
    assert open_frame.states[:2] == store.frame.states
    assert TiltFrame.from_dict(open_frame.describe()) == open_frame


def test_a_name_that_was_dropped_is_not_used_again():
    store = FrameStore(MemoryBackend(), OLD, row_schema=ROWS)
    store.evolve(TiltFrame(["10s", "1m"], "ts", {"n": aggr.count()}, ["k"]))
    with pytest.raises(ValueError, match="'p' is the name of states of another measure of the store"):
        store.evolve(TiltFrame(["10s", "1m"], "ts", {"n": aggr.count(), "p": aggr.dds("x")}, ["k"]), row_schema=ROWS)
    with pytest.raises(
        ValueError,
        match=r"the types of x determine the states of 'q'; pass these types with --type COL=TYPE on the command "
        r"line, or in Python evolve\(frame, row_schema=SCHEMA\), with the schema of future rows",
    ):
        store.evolve(TiltFrame(["10s", "1m"], "ts", {"n": aggr.count(), "q": aggr.dds("x")}, ["k"]))


def test_measures_that_the_states_answer_are_there_at_once():
    full = TiltFrame(["10s"], "ts", {"sd": aggr.stdev("x")}, ["k"])
    store = FrameStore(MemoryBackend(), full)
    store.append(rollup(table(EARLY), full), "w", 1)
    store.evolve(TiltFrame(["10s"], "ts", {"mean": aggr.avg("x"), "total": aggr.sum("x")}, ["k"]))
    assert store.schema.names == ["window_start", "k", "sd"]
    store.append(rollup(table(LATE), store.frame), "w", 2)
    store.compact("9999-01-01")
    result_row = store.query("all", keys=[]).to_pylist()[0]
    assert result_row["total"] == sum(row["x"] for row in EARLY + LATE)
    assert math.isclose(result_row["mean"], statistics.fmean(row["x"] for row in EARLY + LATE))
    store.evolve(TiltFrame(["10s"], "ts", {"mean": aggr.avg("x"), "var": aggr.var("x")}, ["k"]))
    assert store.schema.names == ["window_start", "k", "sd"]
    assert store.query("10s")["var"].null_count == 0


def test_who_has_opened_the_store_before_reads_on_and_is_told_to_open_it_again(anywhere):
    first = FrameStore(anywhere, OLD)
    first.append(rollup(table(EARLY), OLD), "w", 1)
    reader, writer, keeper, other = (FrameStore(anywhere) for _ in range(4))
    before = reader.query("1m")
    FrameStore(anywhere).evolve(NEW, row_schema=ROWS)
    assert reader.query("1m") == before
    with pytest.raises(OtherFrame, match=r"has changed since it was opened here: levels is .* open the store again"):
        writer.append(rollup(table(LATE), OLD), "w", 2)
    with pytest.raises(StoreError, match="open the store again"):
        keeper.replace(rollup(table(LATE), OLD), (600_000, 1_300_000))
    with pytest.raises(StoreError, match="open the store again"):
        other.evolve(TiltFrame(["10s", "1m"], "ts", {**BEFORE, "more": aggr.count(where="x < 1")}, ["k"]))
    with pytest.raises(StoreError, match=r"belongs to another frame: .*evolve\(frame\)"):
        FrameStore(anywhere, OLD)
    fresh = FrameStore(anywhere)
    assert fresh.append(rollup(table(LATE), fresh.frame), "w", 2)
    assert not fresh.append(rollup(table(LATE), fresh.frame), "w", 2)
    fresh.compact("9999-01-01")
    counted = reader.query("1m").select(["window_start", "k", "n"]).to_pylist()
    counted = {(int(row["window_start"].timestamp()), row["k"]): row["n"] for row in counted}
    assert counted == {key: n for key, (n, _, _) in expected("1m", EARLY, LATE).items()}
    assert fresh.append(rollup(table(LATE), fresh.frame), "w", 3)
    with pytest.raises(StoreError, match="open the store again"):
        keeper.compact("9999-01-01")
    assert fresh.verify().problems == ()


def test_a_commit_from_before_that_comes_again_with_more_measures_counts_once(anywhere):
    store = FrameStore(anywhere, OLD)
    store.append(rollup(table(EARLY), OLD), "w", 1)
    more = TiltFrame(["10s", "1m"], "ts", {**BEFORE, "high": aggr.count(where="x > 5")}, ["k"])
    store.evolve(more)
    assert not store.append(rollup(table(EARLY), store.frame), "w", 1)
    with pytest.raises(StoreError, match="already contains other states for the writer 'w' and the number 1"):
        store.append(rollup(table(LATE), store.frame), "w", 1)


def test_a_new_level_has_whole_windows_of_what_is_still_held(anywhere):
    frame = TiltFrame(["10s", "1m"], "ts", {"n": aggr.count()}, ["k"])
    store = FrameStore(anywhere, frame, retention={"10s": "2m", "1m": "5m"})
    store.append(rollup(table(EARLY), frame), "w", 1)
    store.expire(now=700_000 + 240_000)  # 10m 40s into the data: minutes from 600 s on are held
    store.append(rollup(table(LATE), frame), "w", 2)
    store.evolve(TiltFrame(["10s", "1m", "10m"], "ts", {"n": aggr.count()}, ["k"]))
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        results = store.query("10m", keys=[])
    assert len(warned) == 1
    kept_from = 600
    assert str(warned[0].message).startswith("10m has windows only from 1970-01-01T00:10:00Z on")
    expected: dict[int, int] = {}
    for row in EARLY + LATE:
        if row["ts"] >= kept_from * 1000:
            start = row["ts"] // 600_000 * 600
            expected[start] = expected.get(start, 0) + 1
    assert (
        dict(zip((at.timestamp() for at in results["window_start"].to_pylist()), results["n"].to_pylist(), strict=True))
        == expected
    )
    assert store.verify().problems == ()


class Stop(BaseException):
    pass


@dataclass(frozen=True)
class Stopping(MemoryBackend):
    """A backend in memory whose process is killed before a call."""

    left: tuple[list[int]] = ([10**9],)

    def _count(self):
        self.left[0][0] -= 1
        if self.left[0][0] < 0:
            raise Stop

    def snapshot(self, *arguments):
        self._count()
        return super().snapshot(*arguments)

    def write(self, *arguments):
        self._count()
        return super().write(*arguments)

    def commit(self, *arguments, **named):
        self._count()
        return super().commit(*arguments, **named)


def test_whoever_evolves_may_be_killed_before_any_call():
    for calls in range(100):
        left = [10**9]
        backend = Stopping(left=(left,))
        store = FrameStore(backend, OLD)
        store.append(rollup(table(EARLY[:200]), OLD), "w", 1)
        store.compact("9999-01-01")
        other = FrameStore(backend)
        left[0] = calls
        try:
            store.evolve(NEW, row_schema=ROWS)
        except Stop:
            done = False
        else:
            done = True
        left[0] = 10**9
        again = FrameStore(backend)
        sizes = [level.name for level in again.frame.levels]
        for size in sizes:
            counted = again.query(size, keys=[])["n"].to_pylist()
            assert sum(counted) == 200, (calls, size)
        if len(sizes) == 2:
            assert other.append(rollup(table(EARLY[200:300]), OLD), "w", 2)
        again.evolve(NEW, row_schema=ROWS)
        again.append(rollup(table(LATE), again.frame), "v", 1)
        again.compact("9999-01-01")
        late = EARLY[200:300] if len(sizes) == 2 else []
        for per in SIZES:
            same(results(again, per), expected(per, EARLY[:200] + late, LATE))
        assert again.verify().problems == ()
        if done:
            return
    raise AssertionError("it never came to its end")


@pytest.mark.skipif(int(pa.__version__.split(".")[0]) < 16, reason="deltalake reads no partitions with it")
def test_plain_tables_and_views_follow_the_frame(tmp_path, postgres):
    folder, database = FrameStore(tmp_path / "s", OLD, name="web"), FrameStore(postgres, OLD, name="web")
    with session(postgres) as db:
        db.run("DO $$ BEGIN CREATE ROLE watcher; EXCEPTION WHEN duplicate_object THEN NULL; END $$")
    for store in (folder, database):
        store.append(rollup(table(EARLY), OLD), "w", 1)
        store.export()
    with session(postgres) as db:
        db.run("GRANT SELECT ON web_1m_current TO watcher")
    for store in (folder, database):
        store.evolve(NEW, row_schema=ROWS)
        store.append(rollup(table(LATE), store.frame), "w", 2)
        store.compact("9999-01-01")
        store.export("10m")
    for per in SIZES:
        expected_values = folder.query(per, flat=True).sort_by([("window_start", "ascending"), ("k", "ascending")])
        plain = DeltaTable(str(tmp_path / "s" / f"web_{per}_flat")).to_pyarrow_table()
        with session(postgres) as db:
            views = [db.ask(f'SELECT * FROM "web_{per}_{what}"') for what in ("flat", "current")]
        names = [
            name
            for name in expected_values.column_names
            if name not in ("level", "partial", "window_start", "window_end")
        ]
        for view in (plain, *views):
            assert set(view.column_names) == {*expected_values.column_names} - {"level"}
            view = view.sort_by([("window_start", "ascending"), ("k", "ascending")])
            assert view.select(names).to_pylist() == expected_values.select(names).to_pylist()
        if per == "1m":
            assert expected_values["sd"].null_count == 2 * 12
            with session(postgres) as db:
                assert db.rows("SELECT has_table_privilege('watcher', 'web_1m_current', 'SELECT') AS may")[0]["may"]
    every = DeltaTable(str(tmp_path / "s" / "tiltframe"))  # any reader of Delta sees the new columns
    states = every.to_pyarrow_table(filters=[("level", "=", "1m")])
    assert states["high"].null_count == 2 * 12
    assert {"n", "mean", "p", "sd", "high"} <= set(states.column_names)


def test_a_store_of_an_earlier_release_gets_its_plain_tables_as_it_needs_them(postgres):
    store = FrameStore(postgres, OLD, name="web")
    store.append(rollup(table(EARLY), OLD), "w", 1)
    with session(postgres) as db:
        for level in ("10s", "1m"):
            db.run(f'DROP VIEW "web_{level}_current"')
            db.run(f'DROP TABLE "web_{level}_flat"')
        db.run("DROP TABLE web_flat")
    store.compact("9999-01-01")
    with session(postgres) as db:
        view_rows = db.ask("SELECT n, p_p50 FROM web_1m_current ORDER BY window_start, k")
    results = store.query("1m", flat=True)
    assert view_rows.to_pydict() == results.select(["n", "p_p50"]).to_pydict()


def test_a_manifest_says_what_was_and_comes_back():
    store = FrameStore(MemoryBackend(), OLD, row_schema=ROWS)
    following = plan_evolution(store.manifest, NEW, ROWS)
    assert following.dropped.names == ["mean"]
    assert following.generation == 1
    assert type(following).from_dict(following.to_dict(), "here") == following


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.long
def test_spark_reads_and_writes_a_store_that_evolves(spark, tmp_path):
    import spark_udaf as su

    early, late = (spark.createDataFrame(table(records)) for records in (EARLY, LATE))
    store = FrameStore(tmp_path / "s", OLD)
    assert su.rollup_into(early, store, "w", 1)
    opened = FrameStore(store.uri)
    store.evolve(TiltFrame(["10s", "1m", "10m"], "ts", {**BEFORE, "high": AFTER["high"]}, ["k"]), row_schema=ROWS)
    assert not su.rollup_into(early, store, "w", 1)  # a job that is tried again, by the new frame
    with pytest.raises(StoreError, match="already contains other states for the writer 'w' and the number 1"):
        su.rollup_into(late, store, "w", 1)
    with pytest.raises(OtherFrame, match="open the store again"):
        su.rollup_into(late, opened, "w", 2)
    store.evolve(NEW, row_schema=ROWS)
    assert su.append(su.rollup(late, store.frame), store, "w", 2)
    for per in SIZES:
        same(results(store, per), expected(per, EARLY, LATE))
        read = su.read(spark, store.uri, per=per).toArrow().sort_by([("window_start", "ascending"), ("k", "ascending")])
        expected_values = store.query(per).sort_by([("window_start", "ascending"), ("k", "ascending")])
        assert read.select(["n", "sd", "high"]).to_pylist() == expected_values.select(["n", "sd", "high"]).to_pylist()


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.long
def test_a_stream_goes_on_into_a_store_that_has_evolved(spark, tmp_path):
    import spark_udaf as su

    folder = tmp_path / "rows"
    store = FrameStore(tmp_path / "s", OLD)
    for number, records in enumerate((EARLY, LATE)):
        folder.mkdir(exist_ok=True)
        pq.write_table(table(records), folder / f"{number}.parquet")
        rows_of = spark.readStream.schema("ts long, k string, x double").parquet(str(folder))
        into = {"name": "s", "checkpoint": str(tmp_path / "checkpoint"), "trigger": "available_now"}
        su.stream_into(rows_of, FrameStore(store.uri, store.frame), **into).awaitTermination()
        if not number:
            store = FrameStore(store.uri)
            store.evolve(NEW, row_schema=ROWS)
    for per in SIZES:
        same(results(store, per), expected(per, EARLY, LATE))


@pytest.mark.parametrize("levels", [["1m"], ["1m", "1h"], ["1m", "1h", "1d"]], ids=str)
@pytest.mark.parametrize("start", [0, 30, 90])
def test_a_measure_is_known_after_all_rows_were_replaced(tmp_path, levels, start):
    """A coarse window begins before the rows, but all its rows have the measure. Rows before the range matter."""
    minute = 60_000
    rows = pa.table({"ts": [(start + i) * minute for i in range(90)], "x": list(range(90))})
    for replaced_rows in (90, 60):
        store = FrameStore(tmp_path / f"store{replaced_rows}", TiltFrame(levels, "ts", {"n": aggr.count()}))
        store.append_rows(rows, "w", 1)
        store.evolve(TiltFrame(levels, "ts", {"n": aggr.count(), "high": aggr.max("x")}), row_schema=rows.schema)
        later = rows.slice(90 - replaced_rows)
        span = [dt.datetime.fromtimestamp(at * 60, dt.UTC) for at in (start + 90 - replaced_rows, start + 90)]
        store.replace(rollup(later, store.frame), tuple(span))
        known_from = store.inspect().known_from
        if replaced_rows == 90:
            assert known_from == {}
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                assert [store.query(level)["high"].null_count for level in levels] == [0] * len(levels)
        else:
            assert known_from == {"high": (start + 30) * minute * 1000}
