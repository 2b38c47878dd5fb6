"""If a store is deleted and created again at the same address, objects that were opened before read the new store."""

import shutil

import pyarrow as pa
import pytest

import aggr
from tiltframe import FrameStore, TiltFrame, rollup
from tiltframe.store import MissingStore, OtherFrame

pytestmark = pytest.mark.store

FRAME = TiltFrame(["1m", "1h"], "ts", {"n": aggr.count()}, ["host"])
OTHER = TiltFrame(["10s", "1h"], "ts", {"n": aggr.sum("x")}, ["host"])


HOUR = ("1970-01-01T00:00Z", "1970-01-01T01:00Z")

CHANGES = {
    "append_rows": lambda store: store.append_rows(rows("x"), "w", 3),
    "append": lambda store: store.append(rollup(rows("x"), FRAME), "w", 3),
    "replace": lambda store: store.replace(rollup(rows("x"), FRAME), HOUR),
    "retract": lambda store: store.retract(rollup(rows("x"), FRAME), "w", 3),
    "rebuild": lambda store: store.rebuild(),
    "expire": lambda store: store.expire("2000-01-01"),
    "evolve": lambda store: store.evolve(
        TiltFrame(["1m", "1h"], "ts", {"n": aggr.count(), "m": aggr.count()}, ["host"])
    ),
}


def rows(*hosts: str) -> pa.Table:
    return pa.table({"ts": pa.array([0] * len(hosts), pa.int64()), "host": list(hosts), "x": [1.5] * len(hosts)})


def delete(place: str) -> None:
    """Delete a store without tiltframe, as an administrator would."""
    if "://" not in place:
        shutil.rmtree(place)
        return
    import adbc_driver_postgresql.dbapi as dbapi

    with dbapi.connect(place, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("DROP SCHEMA public CASCADE")
        cursor.execute("CREATE SCHEMA public")


def create(place: str, hosts: list[str], frame: TiltFrame = FRAME, every: int = 1000) -> FrameStore:
    """Create a store with a commit for each host. After every ``every`` commits, `FrameStore.vacuum` is called, which
    writes a checkpoint of the log and removes old entries.
    """
    store = FrameStore(place, frame)
    for number, host in enumerate(hosts, 1):
        store.append_rows(rows(host), "w", number)
        if number % every == 0:
            store.vacuum("0s")
    return store


def hosts_of(store: FrameStore) -> list[str]:
    return sorted(store.query("1h")["host"].to_pylist())


@pytest.mark.parametrize("was_written_here", [True, False], ids=["written here", "read here"])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 7])
def test_an_open_store_is_read_as_it_is_now(place, count, was_written_here):
    opened = create(place, ["a", "b", "c"])
    if not was_written_here:
        opened = FrameStore(place)
    assert hosts_of(opened) == ["a", "b", "c"]
    seen = opened.at().seen
    delete(place)
    hosts = [f"new{i}" for i in range(count)]
    create(place, hosts)
    assert hosts_of(opened) == hosts
    changes = opened.changes(seen)
    # Windows of the deleted store, whose files are gone, may be missing.
    assert {*hosts} <= set(changes.windows["host"].to_pylist()) <= {"a", "b", "c", *hosts}


@pytest.mark.parametrize("counts", [(130, 130), (130, 260), (260, 130), (120, 5)], ids=str)
def test_checkpoints_of_both_stores(tmp_path, counts):
    before, after = counts
    opened = create(str(tmp_path / "store"), [f"h{i % 9}" for i in range(before)], every=60)
    assert len(hosts_of(opened)) == 9
    delete(str(tmp_path / "store"))
    create(str(tmp_path / "store"), [f"new{i % 7}" for i in range(after)], every=60)
    assert hosts_of(opened) == [f"new{i}" for i in range(min(7, after))]
    assert opened.verify().problems == ()


def test_a_deleted_store_is_missing(place):
    opened = create(place, ["a"])
    delete(place)
    with pytest.raises(MissingStore, match="there is no store"):
        opened.query("1h")


def test_another_frame_is_named(place):
    opened = create(place, ["a", "b"])
    delete(place)
    new = create(place, ["c", "d"], OTHER)
    with pytest.raises(OtherFrame, match=r"deleted and created again with another frame.*10s"):
        opened.query("1h")
    for change in CHANGES.values():
        with pytest.raises(OtherFrame, match=r"deleted and created again since.*nothing was written; open the store"):
            change(opened)
    assert new.query("1h")["n"].to_pylist() == FrameStore(place).query("1h")["n"].to_pylist() == [1.5, 1.5]


def test_writers_must_open_the_new_store(place):
    """A writer of the old store continues its numbers of commits, which the new store does not have."""
    opened = create(place, ["a", "b"])
    delete(place)
    create(place, ["c", "d"])
    for change in CHANGES.values():
        with pytest.raises(OtherFrame, match=r"deleted and created again since.*nothing was written; open the store"):
            change(opened)
    assert hosts_of(FrameStore(place)) == ["c", "d"]


def test_a_copy_has_an_id_of_its_own(tmp_path):
    source = create(str(tmp_path / "source"), ["a"])
    source.copy_to(str(tmp_path / "copy"))
    copy = FrameStore(str(tmp_path / "copy"))
    first = copy.manifest.store_id
    assert len({source.manifest.store_id, first, ""}) == 3
    source.append_rows(rows("b"), "w", 2)
    source.copy_to(str(tmp_path / "copy"))
    assert FrameStore(str(tmp_path / "copy")).manifest.store_id == first
    assert hosts_of(copy) == ["a", "b"]
