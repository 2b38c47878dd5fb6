"""Checks of a backend: what `tiltframe.store.core.backend.Backend` promises, tried on one that anybody wrote."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

import aggr
from aggr.kernels.digest import digest
from tiltframe.frame import LEVEL, START, TiltFrame
from tiltframe.level_chain import rollup
from tiltframe.store.core.backend import Backend, Conflict, Part, Snapshot
from tiltframe.store.core.buckets import bucket_of
from tiltframe.store.core.manifest import Manifest, schema_of
from tiltframe.store.core.ranges import EVER
from tiltframe.store.core.retry import retry_on_conflict
from tiltframe.store.core.writers import FRAME as FRAME_NUMBER

SECOND = 1_000_000
HOUR = 3600 * SECOND
FRAME = TiltFrame(["1s", "1h"], "ts", {"n": aggr.count(), "s": aggr.sum("x"), "low": aggr.min("x")}, ["host"])
FINE, COARSE = (level.name for level in FRAME.levels)


def check_backend(make_backend: Callable[[], Backend]) -> None:
    """Check that a backend does what the protocol promises.

    Parameters
    ----------
    make_backend : callable
        Returns a backend of an empty place, a new one at each call; some ten are made.

    Raises
    ------
    AssertionError
        For the first promise that is broken, in one sentence. Errors that the backend raises pass through.

    Examples
    --------
    >>> from tiltframe.store.testing import MemoryBackend
    >>> check_backend(MemoryBackend)
    """
    _check_manifest(make_backend())
    for check in _CHECKS:
        check(_Tried.made(make_backend()))


@dataclass
class _Tried:
    """A backend with a store that is empty."""

    backend: Backend
    schema: pa.Schema

    @classmethod
    def made(cls, backend: Backend) -> _Tried:
        manifest = _manifest()
        backend = backend.named(manifest.name)
        backend.create(manifest.to_dict(), manifest.schema)
        return cls(backend, manifest.schema)

    def snapshot(self, level: str = FINE, *writers: str) -> Snapshot:
        (snapshot,) = self.backend.view([level], writers)
        _expect(snapshot.level == level, "a snapshot says which level it is of")
        return snapshot

    def add(self, writer: str, commit: int, states: pa.Table, level: str = FINE) -> list[Part]:
        parts = self.backend.write(level, states, writer, commit)
        self.backend.commit(level, parts, (), {writer: commit})
        return parts

    def rows(self, level: str = FINE) -> pa.Table:
        parts = self.snapshot(level).parts
        return self.backend.read([(part, EVER) for part in parts], self.schema.names[1:])

    def expect_rows(self, states: pa.Table, why: str, level: str = FINE) -> None:
        _expect(_same(self.rows(level), states), why)

    def expect_conflict(self, why: str, *commit: object) -> None:
        """Expect that a commit is refused, and that nothing is changed by it."""
        names = ("w", "other", "note")
        before, rows = self.snapshot(FINE, *names), self.rows()
        try:
            self.backend.commit(FINE, *commit)  # type: ignore[arg-type]
        except Conflict:
            pass
        else:
            raise AssertionError(f"the backend breaks a promise: {why} is a Conflict")
        after = self.snapshot(FINE, *names)
        same = set(before.parts) == set(after.parts) and all(_number(before, n) == _number(after, n) for n in names)
        _expect(same and _same(rows, self.rows()), "a commit that raises Conflict changes nothing")


def _check_manifest(backend: Backend) -> None:
    _expect(backend.describe() is None, "describe() is None where there is no store")
    manifest = _manifest()
    backend, described = backend.named(manifest.name), manifest.to_dict()
    backend.create(described, manifest.schema)
    _expect(backend.describe() == described, "describe() returns what create() was given")
    other = replace(manifest, retention={FINE: "1d"}).to_dict()
    backend.create(other, manifest.schema)
    _expect(backend.describe() == described, "a second create() changes nothing")
    backend.alter(other, manifest.schema, described)
    _expect(backend.describe() == other, "alter() replaces the manifest")
    try:
        backend.alter(described, manifest.schema, described)
    except Conflict:
        pass
    else:
        raise AssertionError("the backend breaks a promise: alter() of a manifest that is another by now is a Conflict")
    _expect(backend.describe() == other, "alter() that raises Conflict changes nothing")
    moved = pickle.loads(pickle.dumps(backend))
    _expect(moved.describe() == other, "a backend that was pickled finds its store")
    _expect(isinstance(backend.uri, str) and isinstance(backend.place, str), "uri and place are text")


def _check_empty(tried: _Tried) -> None:
    snapshots = tried.backend.view([FINE, COARSE], ["w"])
    _expect([s.level for s in snapshots] == [FINE, COARSE], "snapshots come in the order of the levels")
    nothing = all(not s.parts and not s.txn_versions for s in snapshots)
    _expect(nothing, "levels that nothing was committed to have no parts and no numbers")
    none = tried.backend.read([], tried.schema.names[1:])
    _expect(none.schema.equals(tried.schema) and not none.num_rows, "read of no parts has the schema, and no rows")
    _expect(tried.backend.check([FINE, COARSE]) == [], "check() of a whole store finds nothing")


def _check_commit(tried: _Tried) -> None:
    states = _states(range(3))
    more = states.add_column(0, LEVEL, pa.repeat(pa.scalar(FINE), states.num_rows))  # as a store writes them
    parts = tried.backend.write(FINE, more, "w", 1)
    _expect(not tried.snapshot().parts, "what was written is not readable before it is committed")
    tried.backend.commit(FINE, parts, (), {"w": 1}, None, {"note": 7})
    seen = tried.snapshot(FINE, "note")
    _expect(set(seen.parts) == set(parts), "a snapshot has the parts that were committed, as write() returned them")
    _expect(_number(seen, "w") == 1, "a snapshot has the last number of a writer of its parts")
    _expect(_number(seen, "note") == 7, "a snapshot has the notes that are asked for")
    tried.expect_rows(states, "read() returns the same bits as were written")
    _expect(not tried.snapshot(COARSE).parts, "a commit to one level changes no other")
    tried.backend.commit(FINE, [], (), {"other": 4}, None, {"note": 3})
    _expect(_number(tried.snapshot(FINE, "note"), "note") == 3, "a note may shrink")
    _expect(_number(tried.snapshot(FINE, "other"), "other") == 4, "a commit without parts records its numbers")
    coarser = tried.backend.view([FINE, COARSE])[1]
    _expect("w" not in coarser.txn_versions, "a level has the numbers of its own commits only")
    tried.backend.commit(COARSE, [], (), {"w": 1})
    coarser = tried.backend.view([FINE, COARSE])[1]
    _expect(_number(coarser, "w") == 1, "each snapshot has the numbers of the writers of the parts of all of them")
    _expect(tried.backend.size(FINE) >= 0 and tried.backend.check([FINE, COARSE]) == [], "check() finds no damage")


def _check_parts(tried: _Tried) -> None:
    states = _states(range(3))
    bucket = bucket_of(FRAME.levels[0])
    parts = tried.add("w", 5, states)
    _expect(len(parts) == 3, "write() makes one part for each bucket")
    _expect(len({part.name for part in parts}) == 3, "parts have names of their own")
    for part in parts:
        _expect((part.level, part.writer, part.commit) == (FINE, "w", 5), "a part has its level, writer and number")
        found = tried.backend.read([(part, EVER)], [])
        _expect(found.column_names == [START], "read() returns window_start and the columns asked for")
        starts = found.column(START).cast(pa.int64()).to_numpy()
        edges = (int(starts.min()), int(starts.max()), len(starts))
        _expect(edges == (part.least, part.greatest, part.rows), "a part has its least and greatest start, and rows")
        _expect(len({*bucket.starts(starts).tolist()}) == 1, "a part lies in one bucket")
    first = min(parts, key=lambda part: part.least)
    some = tried.backend.read([(first, (first.least, first.least + 1))], ["n", "host"])
    _expect(some.column_names == [START, "n", "host"], "read() returns the columns in the order asked for")
    _expect(
        _same(some, _between(states, first.least, first.least + 1).select(some.column_names)), "read() keeps ranges"
    )
    found = tried.backend.read([(part, EVER) for part in parts], tried.schema.names[1:], "host = 'a'")
    _expect(_same(_of_host(found), _of_host(states)), "a condition leaves out no row for which it is true")
    empty = tried.backend.write(FINE, states.slice(0, 0), "nothing", 1)
    _expect([part.rows for part in empty] == [0], "write() of no states makes one part without rows")
    tried.backend.commit(FINE, empty, (), {"nothing": 1})
    held = [part for part in tried.snapshot().parts if part.writer == "nothing"]
    _expect([part.commit for part in held] == [1], "a part without rows is in snapshots")
    tried.expect_rows(states, "a part without rows adds none")


def _check_written_twice(tried: _Tried) -> None:
    states = _states(range(2))
    tried.backend.write(FINE, states, "w", 1)
    tried.add("w", 1, states)
    tried.backend.write(FINE, states, "w", 1)
    tried.expect_rows(states, "states that were written several times are readable once")
    tried.backend.discard(tried.backend.write(FINE, states, "w", 1))
    tried.expect_rows(states, "what is discarded takes nothing with it that was committed")


def _check_cut(tried: _Tried) -> None:
    states = _states(range(2))
    first, second = sorted(tried.add("w", 1, states), key=lambda part: part.least)
    before = tried.snapshot()
    span = (first.least + 2 * SECOND, first.least + 4 * SECOND)
    added = _states([5])
    new = tried.backend.write(FINE, added, "other", 1)
    tried.backend.commit(FINE, new, [(first, span)], {"other": 1})
    low, high = _between(states, 0, span[0]), _between(states, span[1], EVER[1])
    tried.expect_rows(pa.concat_tables([low, high, added]), "a cut removes the windows of its range, and no others")
    after = tried.snapshot()
    left = [part for part in after.parts if part.writer == "w" and part.least < second.least]
    _expect({(part.writer, part.commit) for part in left} == {("w", 1)}, "what is left of a part keeps its writer")
    _expect(second in after.parts, "a part that is not cut stays as it is")
    tried.expect_conflict("a cut of a part that was cut before", [], [(first, span)], {"other": 2}, None, {"note": 1})
    try:  # as an older snapshot has it
        old = tried.backend.read([(part, EVER) for part in before.parts], tried.schema.names[1:])
    except Conflict:
        pass
    else:
        _expect(_same(old, states), "an older snapshot reads the rows that it had, or raises Conflict")
    whole = [(part, (part.least, part.greatest + 1)) for part in after.parts if part.writer == "w"]
    tried.backend.commit(FINE, [], whole)
    tried.expect_rows(added, "parts that are cut whole are gone")
    _expect(_number(tried.snapshot(FINE, "w"), "w") == 1, "numbers stay when the parts of their commits go")


def _check_conflicts(tried: _Tried) -> None:
    tried.add("w", 3, _states([0]))
    new = tried.backend.write(FINE, _states([1]), "w", 4)
    seen = tried.snapshot(FINE, "w", "other")
    tried.expect_conflict("a number that its writer has reached", new, (), {"w": 3}, None, {"note": 1})
    tried.expect_conflict("a number below its writer's last", new, (), {"w": 2, "other": 9})
    tried.backend.commit(FINE, [], (), {"other": 1})
    tried.expect_conflict("a number that has changed since the snapshot", new, (), {"w": 4, "other": 2}, seen)
    tried.backend.commit(FINE, new, (), {"w": 4}, seen)  # of w nothing has changed
    _expect(_number(tried.snapshot(FINE, "w"), "w") == 4, "only writers that a commit names are compared")
    seen = tried.snapshot()
    tried.backend.commit(FINE, [], (), {FRAME_NUMBER: 1})
    _expect(_number(tried.snapshot(), FRAME_NUMBER) == 1, f"snapshots have the number of {FRAME_NUMBER}")
    tried.expect_conflict(f"another number of {FRAME_NUMBER} than in the snapshot", [], (), {"w": 5}, seen)


def _check_evolving(tried: _Tried) -> None:
    """Check that states, and a level, are added to a store that holds some; by a backend that was open before, too."""
    before, seen = _states([0]), tried.backend.describe()
    opened: Backend = pickle.loads(pickle.dumps(tried.backend))
    tried.add("w", 1, before)
    opened.view([FINE])
    frame = TiltFrame(
        [*FRAME.levels, "1d"], FRAME.time, {**FRAME.measures, "more": aggr.min("x", where="x > 0")}, FRAME.keys
    )
    more = before.append_column("more", before.column("low"))
    schema = pa.schema([*tried.schema, pa.field("more", before.schema.field("low").type)])
    described = replace(_manifest(), frame=frame, schema=schema, generation=1).to_dict()
    tried.backend.alter(described, schema, seen or {})
    _expect(tried.backend.describe() == described, "alter() replaces the manifest by one with more states")
    lacking = before.append_column(schema.field("more"), pa.nulls(before.num_rows, schema.field("more").type))
    tried.schema = schema
    tried.expect_rows(lacking, "rows that lack a column have null in it")
    parts = tried.backend.write(FINE, _moved(more, HOUR), "w", 2)
    tried.backend.commit(FINE, parts, (), {"w": 2}, tried.snapshot(FINE, "w"))
    tried.expect_rows(pa.concat_tables([lacking, _moved(more, HOUR)]), "rows of before and after come back")
    parts = opened.write(FINE, _moved(before, 2 * HOUR), "w", 3)
    opened.commit(FINE, parts, (), {"w": 3})
    tried.expect_rows(
        pa.concat_tables([lacking, _moved(more, HOUR), _moved(lacking, 2 * HOUR)]),
        "write() takes states that lack a column",
    )
    tried.add("w", 1, tried.backend.read([], schema.names[1:]), "1d")
    _expect(_number(tried.snapshot("1d", "w"), "w") == 1, "a level that was added takes commits")


def _moved(states: pa.Table, by: int) -> pa.Table:
    starts = pa.array(states.column(START).cast(pa.int64()).to_numpy() + by).cast(states.schema.field(START).type)
    return states.set_column(0, states.schema.field(0), starts)


def _check_clean(tried: _Tried) -> None:
    states = _states([0])
    tried.add("w", 1, states)
    tried.backend.write(FINE, _states([1]), "lost", 1)
    (part,) = tried.snapshot().parts
    tried.backend.commit(FINE, [], [(part, (part.least, part.least + SECOND))])
    _expect(tried.backend.clean(0.0) >= 0, "clean() returns how much it has removed")
    tried.expect_rows(_between(states, part.least + SECOND, EVER[1]), "clean() leaves what is readable")


def _check_together(tried: _Tried) -> None:
    """Check commits of several threads, through pickled copies."""
    errors: list[BaseException] = []
    winners: list[int] = []
    seen = tried.snapshot(FINE, "race")

    def work(i: int) -> None:
        try:
            backend: Backend = pickle.loads(pickle.dumps(tried.backend))
            for commit in range(3):
                parts = backend.write(FINE, _states([4 * i + commit]), f"w{i}", commit)
                retry_on_conflict(lambda: backend.commit(FINE, parts, (), {f"w{i}": commit}))  # noqa: B023
            retry_on_conflict(lambda: _race(backend, i))
        except BaseException as error:
            errors.append(error)

    def _race(backend: Backend, i: int) -> None:
        if "race" in backend.view([FINE], ["race"])[0].txn_versions:
            return
        backend.commit(FINE, [], (), {"race": i + 1}, seen)
        winners.append(i + 1)

    threads = [threading.Thread(target=work, args=[i]) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    states = pa.concat_tables([_states([4 * i + commit]) for i in range(4) for commit in range(3)])
    tried.expect_rows(states, "commits of several writers at once are all there, once each")
    _expect([_number(tried.snapshot(FINE, "race"), "race")] == winners, "of commits on one snapshot one is accepted")


_CHECKS: Sequence[Callable[[_Tried], None]] = (
    _check_empty,
    _check_commit,
    _check_parts,
    _check_written_twice,
    _check_cut,
    _check_conflicts,
    _check_evolving,
    _check_clean,
    _check_together,
)


def _expect(holds: bool, promise: str) -> None:
    if not holds:
        raise AssertionError(f"the backend breaks a promise: {promise}")


def _number(snapshot: Snapshot, writer: str) -> int:
    return snapshot.txn_versions.get(writer, -1)


def _manifest() -> Manifest:
    return Manifest("checked", FRAME, schema_of(_states([0]).schema, FRAME))


def _states(hours: Sequence[int]) -> pa.Table:
    """Make states of the finest level: five seconds in each of some hours, of three hosts, with awkward values."""
    hosts, values = ["a", 'ü"\\', None], [0.1, -0.0, float("inf"), 5e-324, float("nan")]
    events = [
        {"ts": (hour * HOUR + second * SECOND) // 1000, "host": host, "x": values[(second + i) % 5]}
        for hour in hours
        for second in range(5)
        for i, host in enumerate(hosts)
    ]
    schema = pa.schema([("ts", pa.int64()), ("host", pa.string()), ("x", pa.float64())])
    states = rollup(pa.Table.from_pylist(events, schema), FRAME)
    finest = states.filter(pc.equal(states.column(LEVEL), FINE))
    return finest.select(schema_of(states.schema, FRAME).names)


def _between(states: pa.Table, low: int, high: int) -> pa.Table:
    starts = states.column(START).cast(pa.int64()).to_numpy()
    return states.filter(pa.array((starts >= low) & (starts < high)))


def _of_host(states: pa.Table) -> pa.Table:
    return states.filter(pc.equal(states.column("host"), "a"))


def _same(one: pa.Table, other: pa.Table) -> bool:
    """Compare tables bit by bit, in the order of window and host."""
    if one.column_names != other.column_names or one.schema.types != other.schema.types:
        return False
    by = [(name, "ascending") for name in (START, "host") if name in one.column_names]
    one, other = one.sort_by(by), other.sort_by(by)
    return one.num_rows == other.num_rows and all(digest(one[name]) == digest(other[name]) for name in one.column_names)
