"""Pairs of operations of real stores, interleaved at each call of the backend: two processes create a store, and an
export runs during another change.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest

import aggr
from tests.store import test_interleavings as interleavings
from tests.store.test_interleavings import Schedule
from tiltframe import FrameStore, TiltFrame, rollup
from tiltframe.ranges import inside
from tiltframe.store import OtherFrame, frame_store
from tiltframe.store.testing import MemoryBackend

FRAME = TiltFrame(["1m", "1h"], "ts", {"n": aggr.count()}, ["host"])
OTHER_FRAME = TiltFrame(["1m"], "ts", {"n": aggr.count(), "first": aggr.min("ts")}, ["host"])
ROWS = pa.table({"ts": [0, 1, 60_000, 3_600_000], "host": ["a", "b", "a", "a"]})
MORE_ROWS = pa.table({"ts": [2, 60_001, 7_200_000], "host": ["a", "b", "c"]})
FIRST_DAY = ("1970-01-01", "1970-01-02")
NOW = "2000-01-01"  # all windows are complete


@dataclass(frozen=True)
class Place(MemoryBackend):
    """A backend in memory that lets another operation continue before each call. It has plain tables."""

    schedule: Schedule = None
    plain_tables: dict = field(default_factory=dict)  # level -> its rows and the parts from which they were computed

    def __post_init__(self):
        super().__post_init__()
        self.schedule.backend = self

    def create(self, manifest, schema):
        self.schedule.point("create")
        super().create(manifest, schema)

    def snapshot(self, recorded=()):
        self.schedule.point("snapshot")
        return super().snapshot(recorded)

    def commit(self, transaction):
        self.schedule.point("commit")
        return super().commit(transaction)

    def read(self, parts, columns, where=None):
        self.schedule.point("read")
        return super().read(parts, columns, where)

    def result_sources(self, level):
        self.schedule.point("result_sources")
        return self.plain_tables[level][1] if level in self.plain_tables else None

    def write_results(self, level, ranges, results, sources):
        self.schedule.point("write_results")
        tables = [results]
        if level in self.plain_tables:
            present = self.plain_tables[level][0]
            starts = present["window_start"].cast(pa.int64()).to_numpy()
            tables.append(present.filter(pa.array(~inside(starts, ranges))))
        self.plain_tables[level] = (pa.concat_tables(tables, promote_options="default"), dict(sources))


def opened(place: Place) -> FrameStore:
    return FrameStore(place, jobs=1)


def run_pairs(first: Callable, second: Callable, prepare: Callable[[Place], None], check: Callable[[Place], None]):
    """Run ``second`` as a whole before each call of ``first``, from its beginning to its end."""
    calls = 0
    is_over = False
    while not is_over:
        schedule = Schedule(0)
        place = Place(schedule=schedule)
        prepare(place)
        schedule.add("first", lambda: first(place, "first"))  # noqa: B023
        schedule.add("second", lambda: second(place, "second"))  # noqa: B023
        actor = schedule.actors[0]
        for _ in range(calls):
            if not actor.done:
                schedule.step(actor)
        is_over = actor.done
        schedule.until("second")
        schedule.until("first")
        schedule.run()
        check(place)
        calls += 1


def created(place: Place, frame: TiltFrame) -> bool:
    """Create the store, and return whether it has this frame."""
    try:
        FrameStore(place, frame, jobs=1).create_if_missing(frame.states_schema(ROWS.schema))
    except OtherFrame:
        return False
    return True


def append_first(place: Place, name: str) -> None:
    try:
        FrameStore(place, FRAME, jobs=1).append_rows(ROWS, name, 1)
    except OtherFrame:
        assert opened(place).frame == OTHER_FRAME


CREATIONS = {
    "create": lambda place, name: created(place, FRAME),
    "create with another frame": lambda place, name: created(place, OTHER_FRAME),
    "append": append_first,
}


@pytest.mark.parametrize("first", CREATIONS)
@pytest.mark.parametrize("second", CREATIONS)
def test_of_two_operations_that_create_a_store_one_chooses_its_frame(first, second):
    def check(place: Place) -> None:
        store = opened(place)
        frames = {FRAME, OTHER_FRAME} if "create with another frame" in (first, second) else {FRAME}
        assert store.frame in frames
        assert created(place, store.frame)
        assert not created(place, OTHER_FRAME if store.frame == FRAME else FRAME)
        appends = [name for name, kind in (("first", first), ("second", second)) if kind == "append"]
        expected = len(appends) * ROWS.num_rows if store.frame == FRAME else 0
        assert sum(store.query("1m")["n"].to_pylist()) == expected

    run_pairs(CREATIONS[first], CREATIONS[second], lambda place: None, check)


def evolve(place: Place, name: str) -> None:
    store = opened(place)
    measures = {**store.frame.measures, f"n_{name}": aggr.count()}
    try:
        store.evolve(TiltFrame(["1m", "1h"], "ts", measures, ["host"]))
    except OtherFrame:
        evolve(place, name)


def export(place: Place, name: str) -> None:
    try:
        opened(place).export(now=NOW)
    except OtherFrame:
        export(place, name)


EXPORT_PAIRS = {
    "export": export,
    "append": lambda place, name: change(place, lambda store: store.append_rows(MORE_ROWS, name, 1)),
    "replace": lambda place, name: change(place, lambda store: store.replace(states(store), FIRST_DAY)),
    "retract": lambda place, name: change(place, lambda store: store.retract(states(store), f"{name} r", 1)),
    "compact": lambda place, name: change(place, lambda store: store.compact()),
    "expire": lambda place, name: change(place, lambda store: store.expire("1970-01-01T02:30:00Z")),
    "evolve": evolve,
}


def states(store: FrameStore) -> pa.Table:
    return rollup(ROWS, store.frame)


def change(place: Place, work: Callable[[FrameStore], object]) -> None:
    try:
        work(opened(place))
    except OtherFrame:
        change(place, work)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:1m has windows only from")
@pytest.mark.parametrize("other", EXPORT_PAIRS)
@pytest.mark.parametrize("export_is_first", [True, False])
def test_an_export_after_two_operations_has_the_results_of_the_store(other, export_is_first):
    def prepare(place: Place) -> None:
        store = FrameStore(place, FRAME, retention={"1m": "1h"}, jobs=1)
        store.append_rows(ROWS, "past", 1)
        store.export(now=NOW)
        store.append_rows(MORE_ROWS, "past", 2)

    def check(place: Place) -> None:
        export(place, "last")
        for level in ("1m", "1h"):
            expected = opened(place).query(level, flat=True, now=NOW).drop_columns(["level"])
            exported = place.plain_tables[level][0].select(expected.column_names)
            order = [("window_start", "ascending"), ("host", "ascending")]
            assert exported.sort_by(order).to_pylist() == expected.sort_by(order).to_pylist()

    kinds = [export, EXPORT_PAIRS[other]]
    if not export_is_first:
        kinds.reverse()
    run_pairs(*kinds, prepare, check)


# Each method of `FrameStore` that changes a store and is defined in its class, with the kind of actor that runs it. The
# functions of `tiltframe.store.changes` are compared with the kinds in `test_interleavings`.
KIND_OF_METHOD = {
    "create_if_missing": "create",
    "ensure_created": "create",
    "evolve": "evolve",
    "vacuum": "compact and vacuum",
}
METHODS_THAT_READ = {
    *("ask", "at", "backend", "changes", "check_retention", "check_states", "display_uri", "inspect", "join"),
    *("key_values", "manifest", "name", "plan", "plan_join", "plot", "query", "query_schema", "query_slices"),
    *("retention", "schema", "states", "storage_options", "verify", "version", "waiting_parts", "with_open"),
    "with_stored_types",
}


def test_the_pairs_contain_every_method_that_changes_a_store():
    tree = ast.parse(Path(frame_store.__file__).read_text(encoding="utf-8"))
    (store_class,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "FrameStore")
    names = set()
    for node in store_class.body:
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        # a function of `tiltframe.store.changes` is assigned as ``append = appending.append``
        if isinstance(node, ast.Assign) and not isinstance(node.value, ast.Attribute):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    assert {name for name in names if not name.startswith("_")} == KIND_OF_METHOD.keys() | METHODS_THAT_READ
    kinds = interleavings.PAST.keys() | CREATIONS.keys() | EXPORT_PAIRS.keys()
    assert set(KIND_OF_METHOD.values()) <= kinds
