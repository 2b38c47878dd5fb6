"""Two concurrent writers of a store with a history: each backend rejects commits that would lose rows or count them
twice.
"""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable

import pyarrow as pa
import pytest

import aggr
from tiltframe import FrameStore, TiltFrame, rollup
from tiltframe.store import Expired
from tiltframe.store.backends import Transaction

pytestmark = [pytest.mark.store, pytest.mark.filterwarnings("ignore::tiltframe.store.Expired")]

DAY = 86_400_000
FRAME = TiltFrame(["1m", "1h"], "ts", {"n": aggr.count()})


def rows(day: int, count: int = 1) -> pa.Table:
    times = pa.array([day * DAY + at for at in range(count)], pa.timestamp("ms", "UTC"))
    return rollup(pa.table({"ts": times}), FRAME)


def day(number: int) -> tuple[str, str]:
    first = dt.date(1970, 1, 1) + dt.timedelta(days=number)
    return str(first), str(first + dt.timedelta(days=1))


def store_with_history(address) -> FrameStore:
    """Return a store to which rows were appended and replaced: the record of expiry is there."""
    store = FrameStore(address(), FRAME, retention={"1m": "1d"})
    store.append(rows(1), "w", 1)
    store.replace(rows(5), day(5))
    return store


def counted(address, number: int) -> int:
    return sum(FrameStore(address()).query("1h", within=day(number)).column("n").to_pylist())


def at_once(*works: Callable[[], object]) -> None:
    errors: list[BaseException] = []
    start = threading.Barrier(len(works))

    def run(work: Callable[[], object]) -> None:
        try:
            start.wait()
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=[work]) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_of_two_replacements_of_an_empty_range_the_last_one_counts(address):
    store_with_history(address)
    stores = [FrameStore(address()) for _ in range(2)]
    for number in range(10, 16):
        states = rows(number, 2)
        at_once(*(lambda store=store: store.replace(states, day(number)) for store in stores))  # noqa: B023
        assert counted(address, number) == 2


def test_a_replacement_that_comes_between_snapshot_and_commit_of_another_counts_once(address):
    """The second replacement is begun and ended while the first one writes."""
    store_with_history(address)
    first, other = FrameStore(address()), FrameStore(address())
    write, interrupted = first.backend.write, []

    def write_after_another(level, states):
        if not interrupted:
            interrupted.append(level)
            other.replace(rows(10, 2), day(10))
        return write(level, states)

    object.__setattr__(first.backend, "write", write_after_another)
    first.replace(rows(10, 2), day(10))
    assert interrupted
    assert counted(address, 10) == 2


def test_an_expiry_during_appends_and_replacements_is_not_forgotten(address):
    store = store_with_history(address)
    other_stores = [FrameStore(address()) for _ in range(2)]
    at_once(
        lambda: store.expire(now=day(4)[0]),
        lambda: [
            other_stores[0].append(rows(6), "v", number, recorded={f"file {number}": number}) for number in range(5)
        ],
        lambda: [other_stores[1].replace(rows(8), day(8), recorded={f"day {number}": number}) for number in range(3)],
    )
    again = FrameStore(address())
    with pytest.warns(Expired, match="1m has windows only from"):
        assert again.query("1m", within=day(1)).num_rows == 0
    assert again.query("1h", within=day(1))["n"].to_pylist() == [1]
    names = [*(f"file {number}" for number in range(5)), *(f"day {number}" for number in range(3))]
    assert again.recorded(names) == {name: int(name.split()[1]) for name in names}
    assert (counted(address, 6), counted(address, 8)) == (5, 1)


def test_a_commit_that_began_earlier_and_ended_later_is_read(address):
    """What it records has a higher revision than what was committed meanwhile."""
    backend = store_with_history(address).backend
    early = Transaction(backend.snapshot(["mine"]))
    for number in range(3):
        between = Transaction(backend.snapshot(["other"]))
        between.records("other", str(number))
        backend.commit(between)
    early.records("mine", '"late"')
    backend.commit(early)
    now = backend.snapshot(["mine", "other"])
    assert now.texts == {"mine": '"late"', "other": "2"}
    assert now.revision("mine") != now.revision("other")
