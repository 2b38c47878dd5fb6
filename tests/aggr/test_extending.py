"""Extending: declarations are checked, mistakes are named, and nothing that a plug-in does reaches other functions."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

import aggr
from aggr import Groups
from aggr.arrow.bit_equality import same_bits
from aggr.compiling import jit
from aggr.distinct import registers
from aggr.errors import with_text
from aggr.extend import COUNT, ExactSums, Function, Values
from aggr.tables.partial_aggregation import partial_states
from tiltframe import TiltFrame, rollup


@dataclass(frozen=True)
class _Plain(Function):
    keeps, returns, guarantee = "a count", "int64", "exact"
    state_fields: ClassVar = {"n": COUNT}

    def reduce_values(self, values: Values) -> dict[str, pa.Array]:
        return {"n": pa.array(values.counts)}

    def finish_states(self, states: pa.StructArray) -> pa.Array:
        return states.field("n")


def declared(**members: Any) -> type[ExactSums]:
    """Make a class of exact sums of y, x and weight, as a plug-in does."""
    own = {"inputs": ("y", "x", "weight"), "units": {"y": "y_unit", "x": "x_unit", "weight": "w_unit"}}
    own |= {"special": {"special": "y·x·weight"}, "name": "declared", "keeps": "sums", "returns": "float64"}
    return dataclass(frozen=True)(type("Declared", (ExactSums,), own | members))


DRAWS = {
    pa.float64(): lambda rng: rng.choice([rng.gauss(0, 1), 1e200 * rng.random(), 1e-200, 0.0, float(2**53 + 2)]),
    pa.int64(): lambda rng: rng.randint(-(2**63), 2**63 - 1),
    pa.decimal128(38, 10): lambda rng: Decimal(rng.randint(-(10**37), 10**37)).scaleb(-10),
}


@pytest.mark.parametrize("product", ["y·x·weight", "y·y·x", "y·x·x·weight", "y·x·weight·weight", "y·y·y", "x·x·x·x"])
def test_sums_of_products_of_different_inputs_are_exact(product):
    names = product.split("·")
    function = declared(sums={"it": product}, result=lambda self, sums: sums["it"].over_integers())()
    rng = random.Random(product)
    for _ in range(12):
        kinds = [rng.choice(list(DRAWS)) for _ in range(3)]
        rows = [[DRAWS[kind](rng) for kind in kinds] for _ in range(rng.randint(1, 9))]
        columns = [pa.array([row[i] for row in rows], kind) for i, kind in enumerate(kinds)]
        exact = [dict(zip(("y", "x", "weight"), map(Fraction, row), strict=True)) for row in rows]
        terms = [np.prod([row[name] for name in names], initial=Fraction(1)) for row in exact]
        total = sum(terms, Fraction(0))
        result = function.finish(function.reduce(columns, Groups.single(len(rows))))[0].as_py()
        try:
            expected = float(total)
        except OverflowError:
            expected = float("inf") if total > 0 else float("-inf")
        assert result == expected
        halves = [
            function.reduce([column[part] for column in columns], Groups.single(len(rows[part])))
            for part in (slice(0, 4), slice(4, None))
        ]
        unsplit = function.reduce(columns, Groups.single(len(rows)))
        assert function.merge(pa.concat_arrays(halves), Groups.single(2)).equals(unsplit)


def test_special_values_of_three_inputs_are_noted():
    function = declared(sums={"it": "y·x·weight"}, result=lambda self, sums: sums["it"].over_integers())()
    inf, nan = float("inf"), float("nan")
    for row, flag in (((inf, -2.0, 3.0), 4), ((inf, 2.0, 3.0), 2), ((inf, 0.0, 3.0), 1), ((nan, 1.0, 1.0), 1)):
        states = function.reduce([pa.array([value]) for value in row], Groups.single(1))
        assert states.field("special").to_pylist() == [flag]


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"sums": {"t": "y*x"}}, r"Declared\.sums\['t'\] is 'y\*x'; it must be a product of inputs"),
        ({"sums": {"t": "z"}}, "inputs, which are y, x, weight"),
        ({"sums": {"t": "y·y·y·x·x"}}, "at most 4 factors"),
        ({"sums": {"t": 5}}, "it must be a product of inputs"),
        ({"sums": ["y"]}, r"Declared\.sums must map names to inputs"),
        ({"sums": {"t": "y"}, "units": {"x": "x_unit"}}, "must name a field for the unit of 'y'"),
        ({"sums": {"t": "y"}, "units": {"y": "u", "q": "v"}}, "'q', which is not an input"),
        ({"sums": {"t": "y"}, "special": {"s": "y·q"}}, r"Declared\.special\['s'\]"),
        ({"sums": {"special": "y"}}, "uses the field 'special' twice"),
        ({"sums": {"t": "y·x"}, "inputs": ("y", "x"), "takes_weights": True, "units": {"y": "a", "x": "b"},
          "special": {"s": "y"}}, "takes weights"),
    ],
)  # fmt: skip
def test_a_declaration_is_checked_when_the_class_is_made(members, message):
    with pytest.raises(TypeError, match=message):
        declared(**members)


def test_shared_arrays_cannot_be_written_to():
    values = Values(pa.array([3.0, 900.0, 4.0], pa.float32()), Groups.of([0, 0, 1], 2), np.array([1, 2, 3]))
    shared = [values.floats.array, values.floats.bits, values.floats.sorted_by_group, values.counts, values.weights]
    shared += [*values.floats.extremes, values.groups.ids, values.groups.offsets, values.groups.counts()]
    shared += [part.array for part in values.parts]
    for array in shared:
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_defining_a_class_does_not_change_which_states_are_accepted():
    states = _named("stranger", frozenset({"sum"}))().reduce(pa.array([1.0]), Groups.single(1))
    with pytest.raises(ValueError, match="these are states of stranger, not of sum"):
        aggr.Sum().merge(_as_sum(states), Groups.single(1))
    stranger = aggr.register(_named("stranger", frozenset({"sum"})))
    try:
        assert len(aggr.Sum().merge(_as_sum(states), Groups.single(1))) == 1
    finally:
        aggr.unregister(stranger)
    with pytest.raises(ValueError, match="these are states of stranger"):
        aggr.Sum().merge(_as_sum(states), Groups.single(1))


def _named(name: str, answers_for: frozenset[str] = frozenset(), **members: Any) -> type[Function]:
    function_class = type(
        "Stranger", (_Plain,), {"name": name, "answers_for": answers_for, "__module__": __name__, **members}
    )
    return dataclass(frozen=True)(function_class)


def _as_sum(states: pa.StructArray) -> pa.StructArray:
    """Give a sum's state another name."""
    own = aggr.Sum().reduce(pa.array([1.0]), Groups.single(1))
    columns = {field.name: own.field(field.name) for field in own.type} | {"function": states.field("function")}
    return pa.StructArray.from_arrays(list(columns.values()), names=list(columns))


def test_a_cell_that_runs_again_registers_its_class_again():
    first, second = _named("stranger"), _named("stranger")
    assert aggr.register(first) is first
    assert aggr.register(second) is second
    assert aggr.get("stranger") is second
    other = _named("stranger")
    other.__qualname__ = "Another"
    with pytest.raises(ValueError, match="the name 'stranger' is taken by"):
        aggr.register(other)
    aggr.unregister("stranger")
    with pytest.raises(ValueError, match="the name 'sum' is taken by"):
        aggr.register(_named("sum"))


@pytest.mark.parametrize(
    "inputs", [("value", "by", "time"), ("value", "where"), ("value", "x", "x"), ("v", "column"), ()]
)
def test_inputs_that_could_not_be_told_apart_are_refused(inputs):
    with pytest.raises(ValueError, match=r"stranger (has inputs|needs inputs)"):
        aggr.register(_named("stranger", inputs=inputs))


def test_help_of_a_docstring_of_one_line():
    plain = aggr.register(_named("stranger", __doc__="The greatest value less the least."))
    try:
        assert aggr.caller("stranger").__doc__.startswith(
            "The greatest value less the least.\n\nParameters\n----------"
        )
    finally:
        aggr.unregister(plain)
    assert "\n\nParameters\n" in aggr.sum.__doc__


def test_errors_of_any_class_keep_their_text():
    with pytest.raises(json.JSONDecodeError) as of_json:
        json.loads("{")
    with pytest.raises(UnicodeDecodeError) as of_unicode:
        b"\xff".decode()
    for caught in (of_json, of_unicode):
        named = with_text(caught.value, f"here: {caught.value}")
        assert (type(named), named.__cause__) == (ValueError, caught.value)
        assert str(named) == f"here: {caught.value}"
    measure = aggr.Measure(aggr.Hdr(), "x")
    with pytest.raises(ValueError, match=r"^hdr\('x'\): hdr takes numbers from 0; got -1") as caught:
        measure.reduce(pa.table({"x": [-1]}), Groups.single(1))
    assert caught.value.__cause__ is None


def _rows(values: list[Any], hosts: list[str]) -> pa.Table:
    return pa.table({"ts": pa.array(range(len(values)), pa.timestamp("s", "UTC")), "host": hosts, "v": values})


@pytest.mark.parametrize(
    ("measure", "values", "hosts", "host"),
    [
        (aggr.hdr("v"), [1, 2, -1, 4], ["a", "b", "c", "d"], "c"),
        (aggr.collect("v", max=2), [1, 2, 3, 4], ["a", "b", "a", "a"], "a"),
        (aggr.count_distinct("v", max=1), [1, 2, 2, 3], ["a", "b", "c", "c"], "c"),
        (aggr.rate("v", max=1), [1, 2, 2, 3], ["a", "b", "c", "b"], "b"),
    ],
)
def test_a_refused_value_or_group_is_named_by_measure_window_and_key(measure, values, hosts, host):
    frame = TiltFrame(["1m"], "ts", {"n": aggr.count(), "m": measure}, ["host"])
    place = rf"\(at window_start=1970-01-01T00:00:00\+00:00, host='{host}'\)$"
    with pytest.raises(ValueError, match=rf"^{measure.function.name}.*{place}"):
        rollup(_rows(values, hosts), frame)


def test_a_group_that_grows_too_large_in_a_merge_is_named():
    frame = TiltFrame(["1s", "1m"], "ts", {"m": aggr.collect("v", max=2)}, ["host"])
    with pytest.raises(ValueError, match=r"m, collect: .*\(at window_start=1970-01-01T00:00:00\+00:00, host='b'\)"):
        rollup(_rows([1, 2, 3, 4], ["a", "b", "b", "b"]), frame)


def test_a_result_that_the_type_does_not_have_is_refused_before_the_rows():
    frame = TiltFrame(["1m"], "ts", {"total": aggr.sum("v", dtype="decimal")})

    def batches() -> Iterator[pa.RecordBatch]:
        yield from _rows([1.5], ["a"]).to_batches()
        raise AssertionError("the second batch was read")

    schema = _rows([1.5], ["a"]).schema
    with pytest.raises(TypeError, match="total: sums of floats are read as float64"):
        rollup(pa.RecordBatchReader.from_batches(schema, batches()), frame)


def test_an_error_does_not_wait_for_the_source():
    release = threading.Event()

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"x": np.zeros(1 << 20)})
        release.wait(30)
        yield pa.record_batch({"x": np.zeros(1)})

    def refuse(table: pa.Table) -> pa.Table:
        raise ValueError("refused")

    begun = time.monotonic()
    with pytest.raises(ValueError, match="refused"):
        list(partial_states(batches(), refuse, lambda states: states))
    assert time.monotonic() - begun < 10
    release.set()


def test_loops_compile_at_once_for_two_threads_whose_contexts_overlap():
    first, second = jit.compile_at_once(), jit.compile_at_once()
    interpreter = jit._interpreter
    before, interpreter.most = interpreter.most, 1 << 13
    try:
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert interpreter.forbidden == 1
        second.__exit__(None, None, None)
        assert (interpreter.forbidden, interpreter.most) == (0, 1 << 13)
    finally:
        interpreter.most = before


def test_registers_are_estimated_some_at_a_time(monkeypatch):
    function = aggr.Hll(8)
    states = function.reduce(pa.array(np.arange(40_000)), Groups.of(np.arange(40_000) % 9, 9))
    estimates = function.finish(states)
    monkeypatch.setattr(registers, "_CELLS", 512)  # two states at once
    assert function.finish(states).equals(estimates)


def test_slices_of_maps_have_their_own_bits():
    maps = pa.array([[("a", 1)], None, [("b", 2)]], pa.map_(pa.string(), pa.int64()))
    assert same_bits(maps[1:], pa.array([None, [("b", 2)]], maps.type))
    assert not same_bits(maps[:1], maps[2:])
