"""Group commits: several writers in one transaction give the store of separate appends, in one version."""

from __future__ import annotations

import random
import threading

import pyarrow as pa
import pytest

import aggr
from aggr.arrow.bit_equality import same_bits
from aggr.arrow.row_hash import row_hashes
from tiltframe import FrameStore, TiltFrame
from tiltframe.store import BeyondLimit, CommitConflict, OtherFrame
from tiltframe.store.log.writers import digests_of_each

pytestmark = pytest.mark.store

MEASURES = {"n": aggr.count(), "bytes": aggr.sum("bytes"), "ms": aggr.dds("ms", [0.5, 0.99])}
FRAME = TiltFrame(["10s", "1m", "1h"], "ts", MEASURES, ["zone"])
LIMITED = TiltFrame(["1m", "1h"], "ts", {"hosts": aggr.count_distinct("host", max=3, beyond="null")}, ["zone"])


def drawn(chance: random.Random, count: int) -> pa.Table:
    """Draw events of two hours, with fractions whose sum depends on the order unless it is exact."""
    return pa.table(
        {
            "ts": [chance.randrange(7_200_000) for _ in range(count)],
            "zone": [chance.choice(["a", "b", None]) for _ in range(count)],
            "host": [f"host-{chance.randrange(6)}" for _ in range(count)],
            "bytes": [chance.choice([0.1, 1e16, -1e16, 3.0]) for _ in range(count)],
            "ms": [chance.lognormvariate(3, 1) for _ in range(count)],
        }
    )


def writer_records(store: FrameStore) -> dict[str, str]:
    snapshot = store.backend.snapshot(None)
    return {name: record.text for name, record in snapshot.records.items() if "writer" in name}


def ordered(states: pa.Table) -> pa.Table:
    return states.sort_by([("window_start", "ascending"), ("zone", "ascending")])


def test_a_group_leaves_the_states_and_records_of_separate_appends(address, tmp_path):
    chance = random.Random(7)
    store, separate = FrameStore(address(), FRAME), FrameStore(str(tmp_path / "separate"), FRAME)
    numbers = dict.fromkeys("abcd", 0)
    for _ in range(4):
        writers = chance.sample(sorted(numbers), chance.randrange(1, 5))
        prepared = []
        for writer in writers:
            numbers[writer] += 1
            rows = drawn(chance, chance.randrange(1, 60))
            prepared.append(store.prepare_rows(rows, writer, numbers[writer]))
            separate.append_rows(rows, writer, numbers[writer])
        before = store.version()
        assert store.commit_group(prepared) == [True] * len(writers)
        assert store.version() == before + 1
        assert store.commit_group(prepared) == [False] * len(writers), "a repeated commit counts once"
    for level in ("10s", "1m", "1h"):
        of_group, of_appends = ordered(store.states(level)), ordered(separate.states(level))
        assert of_group.column_names == of_appends.column_names
        for name in of_group.column_names:
            assert same_bits(of_group.column(name), of_appends.column(name)), (level, name)
    assert writer_records(store) == writer_records(separate)
    assert FrameStore(address()).verify().ok


def test_a_conflict_of_one_writer_does_not_concern_the_others(address):
    store = FrameStore(address(), FRAME)
    chance = random.Random(8)
    rows = [drawn(chance, 20) for _ in range(3)]
    store.append_rows(rows[0], "a", 5)
    outcomes = store.commit_group(
        [store.prepare_rows(rows[1], "a", 5), store.prepare_rows(rows[2], "b", 1, recorded={"file": "x"})]
    )
    assert isinstance(outcomes[0], CommitConflict)
    assert "already contains other states for the writer 'a'" in str(outcomes[0])
    assert outcomes[1] is True
    assert store.recorded(["file"]) == {"file": "x"}
    assert sum(store.query("1h", keys=[]).column("n").to_pylist()) == 40


def test_rows_of_an_earlier_frame_are_refused_alone(address):
    store = FrameStore(address(), FRAME)
    chance = random.Random(9)
    store.append_rows(drawn(chance, 5), "a", 1)
    old = store.prepare_rows(drawn(chance, 5), "a", 2)
    wider = TiltFrame(FRAME.levels, "ts", {**FRAME.measures, "least": aggr.min("ms")}, ["zone"])
    changed = FrameStore(address())
    changed.evolve(wider, row_schema=pa.schema([("ms", pa.float64())]))
    new = changed.prepare_rows(drawn(chance, 7), "b", 1)
    outcomes = store.commit_group([old, new])
    assert isinstance(outcomes[0], OtherFrame)
    assert outcomes[1] is True
    assert sum(FrameStore(address()).query("1h", keys=[], measures=["n"]).column("n").to_pylist()) == 12


def test_exclusions_are_reported_for_each_writer(address):
    store = FrameStore(address(), LIMITED)
    many = pa.table({"ts": [0] * 5, "zone": ["a"] * 5, "host": list("abcde")})
    few = many.slice(0, 1)
    notes: list[str] = []
    prepared = [store.prepare_rows(many, "many", 1, note=notes.append), store.prepare_rows(few, "few", 1)]
    store.commit_group(prepared)
    assert [note.partition(",")[0] for note in notes] == ["hosts"]
    with pytest.warns(BeyondLimit):
        store.commit_group([store.prepare_rows(many, "many", 2)])


def test_a_writer_occurs_once(address):
    store = FrameStore(address(), FRAME)
    prepared = [store.prepare_rows(drawn(random.Random(1), 5), "a", number) for number in (1, 2)]
    with pytest.raises(ValueError, match="one commit per writer; got several commits of 'a'"):
        store.commit_group(prepared)
    assert store.version() == 0


def test_groups_of_several_threads_lose_and_double_nothing(address):
    FrameStore(address(), FRAME).append_rows(drawn(random.Random(0), 1), "first", 1)
    counts: list[int] = []

    def work(first: int) -> None:
        chance, store = random.Random(first), FrameStore(address())
        for number in range(1, 6):
            rows = {f"{first} {i}": drawn(chance, chance.randrange(1, 9)) for i in range(3)}
            prepared = [store.prepare_rows(table, writer, number) for writer, table in rows.items()]
            assert store.commit_group(prepared) == [True] * 3
            counts.append(sum(table.num_rows for table in rows.values()))

    threads = [threading.Thread(target=work, args=[first]) for first in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(counts) == 15
    assert sum(FrameStore(address()).query("1h", keys=[]).column("n").to_pylist()) == sum(counts) + 1


def test_digests_of_tables_are_the_sums_of_the_hashes_of_their_rows(tmp_path):
    frame = TiltFrame(["1m", "1h"], "ts", {"n": aggr.count()}, ["host"])
    store = FrameStore(tmp_path, frame)
    rows = [pa.table({"ts": [0] * size, "host": [f"h{i}" for i in range(size)]}) for size in (3, 1, 5)]
    tables = [store.prepare_rows(table, "w", 1).finest.replace_schema_metadata() for table in rows]
    tables.insert(1, tables[0].slice(0, 0))
    tables.insert(0, tables[0].slice(0, 0))
    expected = []
    for table in tables:
        columns = [table.column(name) for name in ("window_start", "host", *(state.name for state in frame.states))]
        hashes = row_hashes(columns).tolist() if table.num_rows else [[], []]
        expected.append([tuple(sum(words) % 2**64 for words in hashes)])
    store.append_rows(rows[0], "first", 1)
    digests = digests_of_each(tables, store.manifest, include_earlier_frames=True)
    assert digests == expected
    assert [len(table) for table in tables] == [0, 3, 0, 1, 5]
    assert len({digest for (digest,) in digests}) == 4
