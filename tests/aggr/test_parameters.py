"""Parameters of any Arrow type are packed, checked, merged, finished, described and typed like the built-in ones."""

from __future__ import annotations

import datetime as dt
import io
import json
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import aggr
from aggr.arrow.bit_equality import same_bits
from aggr.fields import ADD, GREATEST
from aggr.function import Function
from aggr.groups.groups import Groups
from aggr.parameters import describe_parameter, restore_parameter
from aggr.state import State
from aggr.tables.accessors import count
from aggr.tables.identify import function_of
from aggr.testing.laws import check
from tiltframe import TiltFrame, finish, rollup
from tiltframe.text.measures import measure_from


@dataclass(frozen=True)
class BetweenState(State):
    """A count for each bucket."""

    edges: tuple[float, ...]

    name = "between"
    parameters: ClassVar[Mapping[str, pa.DataType]] = {"edges": pa.list_(pa.float64())}

    @property
    def fields(self):
        return {f"bucket_{i}": ADD for i in range(len(self.edges) + 1)}

    def reduce_values(self, values):
        bucket = np.searchsorted(self.edges, values.array.to_numpy(), side="right")
        return {f"bucket_{i}": pa.array(values.filter(bucket == i).counts) for i in range(len(self.edges) + 1)}


@dataclass(frozen=True)
class Between(Function):
    """How many values lie between edges, and how many outside: a histogram of fixed buckets."""

    edges: tuple[float, ...] = (0.0, 1.0)

    name, keeps, returns, guarantee = "between", "a count a bucket", "list of int64", "exact"

    def __post_init__(self) -> None:
        object.__setattr__(self, "edges", tuple(float(edge) for edge in self.edges))

    @property
    def own_state(self):
        return BetweenState(self.edges)

    def finish_states(self, states):
        counts = np.stack([states.field(name).to_numpy() for name in self.own_state.fields], axis=1)
        return pa.array(list(counts), pa.list_(pa.int64()))


@dataclass(frozen=True)
class ShapedState(State):
    """The greatest value, shaped by parameters of any types."""

    shape: tuple[tuple[str, pa.DataType, Any], ...]
    name: str = "loudest"

    @property
    def parameters(self):
        return {name: kind for name, kind, _ in self.shape}

    @property
    def fields(self):
        return {"greatest": GREATEST}

    def __getattr__(self, name):
        for each, _, value in self.shape:
            if each == name:
                return value
        raise AttributeError(name)


@dataclass(frozen=True)
class Loudest(Function):
    """The greatest value: a function with one parameter of any type, which only shapes its state."""

    given: Any = None

    name, keeps, returns, guarantee = "loudest", "the greatest value", "the input's type", "exact"
    shaping: ClassVar[Mapping[str, pa.DataType]] = {}

    @property
    def own_state(self):
        return ShapedState(tuple((name, kind, getattr(self, name)) for name, kind in self.shaping.items()), self.name)

    def finish_states(self, states):
        return states.field("greatest")


NOON = dt.datetime(2024, 5, 1, 12, 30, tzinfo=dt.UTC)
KINDS: dict[str, tuple[pa.DataType, Any, Any]] = {
    "list": (pa.list_(pa.float64()), (1.0, 2.5), (1.0, 2.0)),
    "empty list": (pa.list_(pa.float64()), (), (1.0,)),
    "list of lists": (pa.list_(pa.list_(pa.int64())), ((1,), ()), ((1,), (2,))),
    "large list": (pa.large_list(pa.string()), ("a", "b"), ("a",)),
    "list of two": (pa.list_(pa.int8(), 2), (1, 2), (2, 1)),
    "list with a null": (pa.list_(pa.int64()), (1, None), (1, 2)),
    "list of decimals": (pa.list_(pa.decimal128(5, 2)), (Decimal("0.50"),), (Decimal("0.51"),)),
    "struct": (pa.struct([("a", pa.int32()), ("b", pa.string())]), {"a": 1, "b": "x"}, {"a": 1, "b": "y"}),
    "struct of a list": (pa.struct([("a", pa.list_(pa.int32()))]), {"a": (1, 2)}, {"a": (1,)}),
    "decimal": (pa.decimal128(10, 2), Decimal("1.50"), Decimal("1.51")),
    "timestamp": (pa.timestamp("us", "UTC"), NOON, NOON + dt.timedelta(microseconds=1)),
    "local timestamp": (pa.timestamp("us"), NOON.replace(tzinfo=None), None),
    "date": (pa.date32(), dt.date(2024, 5, 1), dt.date(2024, 5, 2)),
    "time": (pa.time64("us"), dt.time(1, 2, 3), dt.time(1, 2, 4)),
    "duration": (pa.duration("us"), dt.timedelta(hours=1), dt.timedelta(hours=2)),
    "string": (pa.string(), "it's", "its"),
    "bytes": (pa.binary(), b"\0\xff", b""),
    "bool": (pa.bool_(), True, False),
    "no bool": (pa.bool_(), None, False),
    "float32": (pa.float32(), 0.1, 0.2),
    "NaN": (pa.float64(), float("nan"), 0.0),
    "int8": (pa.int8(), -3, 3),
    "null": (pa.null(), None, None),
    "no list": (pa.list_(pa.float64()), None, (1.0,)),
    "no string": (pa.string(), None, "a"),
    "no decimal": (pa.decimal128(10, 2), None, Decimal("1.00")),
    "no time": (pa.timestamp("us"), None, dt.datetime(2024, 5, 1)),
    "no date": (pa.date32(), None, dt.date(2024, 5, 1)),
}


def loudest(kind: pa.DataType, parameter: Any) -> Loudest:
    function_class = dataclass(frozen=True)(type("Loudest", (Loudest,), {"shaping": {"given": kind}}))
    return function_class(parameter)


@pytest.fixture
def registered():
    """Register a class for a test."""
    names = []

    def register(function: type[Function]) -> None:
        names.append(aggr.register(function).name)

    yield register
    for name in names:
        aggr.unregister(name)


@pytest.mark.parametrize(("kind", "value", "other"), KINDS.values(), ids=KINDS)
def test_every_type_shapes_a_state(kind, value, other, registered):
    function = loudest(kind, value)
    check(function, pa.int64(), rounds=4)
    states = function.reduce(pa.array([3, 5, 4]), Groups.of([0, 1, 0], 2))
    assert function.finish(function.merge(states, Groups.single(2))).to_pylist() == [5]
    if not pa.types.is_null(kind):
        for changed in (other, None) if value is not None else (other,):
            with pytest.raises(ValueError, match=r"states of loudest with given=.* cannot be merged or read as given="):
                loudest(kind, changed).merge(states, Groups.single(2))
            mixed = pa.concat_arrays([states, loudest(kind, changed).zero(1, pa.int64())])
            with pytest.raises(ValueError, match="use the same value of 'given' everywhere"):
                function.merge(mixed, Groups.single(3))
    registered(type(function))
    restored = function_of(states)
    assert same_bits(restored.merge(states, Groups.single(2)), function.merge(states, Groups.single(2)))
    # as a measure: described, in JSON too, typed and pickled
    measure = aggr.Measure(function, "x")
    if value == value:
        assert aggr.from_description(json.loads(json.dumps(measure.describe()))) == measure
        assert measure_from(repr(measure)) == measure
        assert measure_from(repr(measure)).function.finish(states).to_pylist() == [4, 5]


@pytest.mark.parametrize(("kind", "value", "other"), KINDS.values(), ids=KINDS)
def test_states_travel(kind, value, other):
    function = loudest(kind, value)
    states = function.reduce(pa.array([3, 5, 4]), Groups.of([0, 1, 0], 3))
    table, file, sink = pa.table({"s": states}), io.BytesIO(), io.BytesIO()
    pq.write_table(table, file)
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    for back in (pq.read_table(file), pa.ipc.open_file(sink).read_all(), pickle.loads(pickle.dumps(table))):
        both = pa.concat_arrays([states, back["s"].combine_chunks().cast(states.type)])
        assert same_bits(function.merge(back["s"], Groups.each(3)), states)
        assert same_bits(function.merge(both, Groups.of([0, 1, 2] * 2, 3)), states)


@pytest.mark.long
@pytest.mark.slow
def test_a_histogram_of_ones_own(registered):
    registered(Between)
    check(
        Between((-1.0, 0.25, 3.0)),
        pa.float64(),
        source=lambda n, seed: aggr.edge_cases(pa.float64(), n, seed, special=False),
    )
    edges = [0.5, 10]
    frame = TiltFrame(["1s", "1m"], "ts", {"h": aggr.between("x", edges), "n": aggr.between("x", edges=(0.5, 10.0))})
    assert len(frame.states) == 1
    rows = pa.table({"ts": [0, 1500, 61_000], "x": [0.5, 11.0, -2.0]})
    states = rollup(rows, frame)
    assert finish(states, frame).filter(pa.compute.field("level") == "1m")["h"].to_pylist() == [[0, 1, 1], [1, 0, 0]]
    measure = measure_from("between(x, edges=[0.5, 10], where='x < 100')")
    assert repr(measure) == "between('x', edges=[0.5, 10.0], where='x < 100')"
    assert aggr.from_description(measure.describe()) == measure
    assert function_of(states["h"]) == Between((0.5, 10.0))
    with pytest.raises(TypeError, match="states of between have no count"):
        count(states["h"])


def test_text_of_times_and_decimals_in_calls(registered):
    @dataclass(frozen=True)
    class Since(Loudest):
        name = "since"
        shaping: ClassVar = {"given": pa.timestamp("us", "UTC"), "steps": pa.list_(pa.decimal128(4, 1))}
        steps: tuple[Decimal, ...] = ()

    registered(Since)
    measure = measure_from("since(x, '2024-05-01 12:30:00Z', steps=['0.5', '2'])")
    assert measure.function == Since(NOON, (Decimal("0.5"), Decimal("2.0")))
    assert measure_from(repr(measure)) == measure
    with pytest.raises(ValueError, match=r"given must be of type timestamp\[us, tz=UTC\]; got 'noon'"):
        aggr.caller("since")("x", "noon")
    with pytest.raises(TypeError, match="since: too many positional arguments; it takes column, given, steps, where"):
        aggr.caller("since")("x", NOON, (), 1, 2)


@dataclass(frozen=True)
class Opening(aggr.First):
    """The first value: a timed function from outside."""

    name = "opening"


def test_a_timed_function_of_ones_own_takes_by(registered):
    registered(Opening)
    measure = aggr.opening("x", by="y")
    assert measure == aggr.Measure(Opening(), "x", others=("y",))
    assert measure_from("opening(x, by=y)") == measure == measure_from(repr(measure))
    table = pa.table({"x": [1, 2], "y": [9, 3]})
    assert measure.function.finish(measure.reduce(table, Groups.single(2))).to_pylist() == [2]
    registered(Between)
    with pytest.raises(TypeError, match="there is no parameter 'by'"):
        aggr.between("x", by="y")


def test_a_wrong_parameter_is_refused_before_a_row_is_read():
    with pytest.raises(TypeError, match=r"given must be of type list<item: double>; got 'x'"):
        aggr.Measure(loudest(pa.list_(pa.float64()), "x"), "x")
    with pytest.raises(TypeError, match=r"given must be of type int8; got 300"):
        aggr.Measure(loudest(pa.int8(), 300), "x")


def test_a_default_that_is_made_anew_is_a_default():
    @dataclass(frozen=True)
    class Tagged(Loudest):
        tags: list[str] = field(default_factory=list)

    measure = aggr.Measure(Tagged(), "x")
    assert repr(measure) == "loudest('x')"
    assert aggr.Measure(replace(Tagged(), tags=["a"]), "x").of_states().function == Tagged()


def test_what_cannot_be_described_is_refused():
    assert restore_parameter(describe_parameter((1, {"a": b"\1"}, np.float64(0.5)))) == (1, {"a": b"\1"}, 0.5)
    with pytest.raises(ValueError, match="which cannot be stored"):
        describe_parameter({1, 2})
