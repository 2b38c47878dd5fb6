"""Functions of plug-ins: declarations are checked, errors name the cause, and a plug-in does not affect other
functions.
"""

from __future__ import annotations

import inspect
import json
import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import aggr
from aggr import Groups
from aggr.arrow.bit_equality import same_bits
from aggr.compiling import jit
from aggr.distinct import registers
from aggr.errors import with_text
from aggr.extend import (
    COUNT,
    GREATEST,
    LEAST,
    ExactSums,
    Function,
    PlainState,
    State,
    SumsState,
    Values,
    accessor,
)
from aggr.tables import accessors
from aggr.tables.accessors import accessors_of, read_accessor
from aggr.tables.identify import function_of
from aggr.tables.partial_aggregation import partial_states
from aggr.tables.state_plan import plan_state_columns
from tiltframe import TiltFrame, rollup


@dataclass(frozen=True)
class _Plain(Function):
    keeps, returns, guarantee = "a count", "int64", "exact"
    own_state: ClassVar[State] = PlainState("plain", {"n": COUNT})

    def finish_states(self, states: pa.StructArray) -> pa.Array:
        return states.field("n")


def declared(result: Any = None, inputs: tuple[str, ...] = ("y", "x", "weight"), **members: Any) -> type[ExactSums]:
    """Make a class of exact sums of y, x and weight, as a plug-in does."""
    own = {"units": {"y": "y_unit", "x": "x_unit", "weight": "w_unit"}, "special": {"special": "y·x·weight"}}
    takes_weights = members.pop("takes_weights", False)
    words = {"name": "declared", "keeps": "sums", "returns": "float64", "takes_weights": takes_weights}
    state = SumsState("declared", **(own | members))
    return dataclass(frozen=True)(
        type("Declared", (ExactSums,), {"own_state": state, "inputs": inputs, "result": result, **words})
    )


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
        ({"sums": {"t": "y*x"}}, r"declared\.sums\['t'\] is 'y\*x'; it must be an input that has a unit, or a product"),
        ({"sums": {"t": "z"}}, "the inputs with units are y, x, weight"),
        ({"sums": {"t": "y·y·y·x·x"}}, "at most 4 factors"),
        ({"sums": {"t": 5}}, "it must be an input that has a unit, or a product"),
        ({"sums": ["y"]}, r"declared\.sums must be a dict of names to inputs"),
        ({"sums": {"t": "y"}, "units": {"x": "x_unit"}}, "the inputs with units are x$"),
        ({"sums": {"t": "y"}, "units": {"y": "u", "q": "v"}, "special": {"s": "y"}}, "'q', which is not an input"),
        ({"sums": {"t": "y"}, "special": {"s": "y·q"}}, r"declared\.special\['s'\]"),
        ({"sums": {"special": "y"}}, "uses the field 'special' twice"),
        ({"sums": {"t": "y·x"}, "inputs": ("y", "x"), "takes_weights": True, "units": {"y": "a", "x": "b"},
          "special": {"s": "y"}}, "has takes_weights"),
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


def test_an_author_needs_few_members_of_a_function():
    """The class has few members, and its documentation lists those that most authors need."""
    members = {name for name in dir(aggr.Function) if not name.startswith("__")}
    assert len(members) <= 25, sorted(members)
    section = inspect.getdoc(aggr.Function).split("What a function sets")[1].split("More, for a few functions")[0]
    needed = {name for line in re.findall(r"^([\w, ]+) : ", section, re.MULTILINE) for name in line.split(", ")}
    assert {"own_state", "takes", "finish_states"} <= needed <= members | set(aggr.Function.__annotations__)
    assert len(needed) <= 12, sorted(needed)


def test_neither_defining_nor_registering_a_class_changes_which_states_are_accepted():
    stranger = _named("stranger")
    states = stranger().reduce(pa.array([1.0]), Groups.single(1))
    aggr.register(stranger)
    try:
        with pytest.raises(ValueError, match="these are states of stranger, not of sum"):
            aggr.Sum().merge(_as_sum(states), Groups.single(1))
    finally:
        aggr.unregister(stranger)


def _named(name: str, **members: Any) -> type[Function]:
    own = {"name": name, "own_state": PlainState(name, {"n": COUNT}), "__module__": __name__}
    function_class = type("Stranger", (_Plain,), own | members)
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
    with pytest.raises(ValueError, match="the name 'stranger' is already used by"):
        aggr.register(other)
    aggr.unregister("stranger")
    with pytest.raises(ValueError, match="the name 'sum' is already used by"):
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
    with pytest.raises(ValueError, match=r"^hdr\('x'\): hdr accepts only numbers of at least 0; got -1") as caught:
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
    with pytest.raises(TypeError, match="total: dtype='decimal' works only for integers and decimals"):
        rollup(pa.RecordBatchReader.from_batches(schema, batches()), frame)


def test_an_error_does_not_wait_for_the_source():
    release = threading.Event()

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"x": pa.array(np.zeros(1 << 20))})
        release.wait(30)
        yield pa.RecordBatch.from_pydict({"x": pa.array(np.zeros(1))})

    def refuse(table: pa.Table) -> pa.Table:
        raise ValueError("refused")

    begun = time.monotonic()
    with pytest.raises(ValueError, match="refused"):
        list(partial_states(batches(), refuse, lambda states: states))
    assert time.monotonic() - begun < 10
    release.set()


def test_loops_compile_at_once_for_two_threads_whose_contexts_overlap(monkeypatch):
    interpreter = jit._Interpreter()
    monkeypatch.setattr(jit, "_interpreter", interpreter)
    first, second = jit.compile_at_first_call(), jit.compile_at_first_call()
    for context in (first, second):
        context.__enter__()
    first.__exit__(None, None, None)
    assert interpreter.compile_contexts == 1
    second.__exit__(None, None, None)
    assert interpreter.compile_contexts == 0


def test_registers_are_estimated_some_at_a_time(monkeypatch):
    function = aggr.Hll(8)
    states = function.reduce(pa.array(np.arange(40_000)), Groups.of(np.arange(40_000) % 9, 9))
    estimates = function.finish(states)
    monkeypatch.setattr(registers, "_REGISTERS_PER_BLOCK", 512)  # two states at once
    assert function.finish(states).equals(estimates)


def test_slices_of_maps_have_their_own_bits():
    maps = pa.array([[("a", 1)], None, [("b", 2)]], pa.map_(pa.string(), pa.int64()))
    assert same_bits(maps[1:], pa.array([None, [("b", 2)]], maps.type))
    assert not same_bits(maps[:1], maps[2:])


@dataclass(frozen=True)
class LeastValue(Function):
    """The least value, with accessors of its own: one without a parameter, one in the place of a usual one."""

    name, keeps, returns, guarantee = "ends", "least and greatest value", "the input's type", "exact"
    own_state = PlainState("ends", {"low": LEAST, "high": GREATEST})

    def finish_states(self, states: pa.StructArray) -> pa.Array:
        return states.field("low")

    @accessor(pa.bool_())
    def covers(self, states: pa.StructArray, value: float) -> pa.Array:
        return pc.and_(pc.less_equal(states.field("low"), value), pc.greater_equal(states.field("high"), value))

    @accessor(pa.float64())
    def quantile(self, states: pa.StructArray, q: float = 0.5) -> pa.Array:
        low, high = (states.field(name).cast(pa.float64()) for name in ("low", "high"))
        return pc.add(low, pc.multiply(pc.subtract(high, low), q))

    @accessor(pa.int64())
    def broken(self, states: pa.StructArray) -> pa.Array:
        return pa.array([1.0] * len(states))


def test_accessors_that_a_function_declares_read_its_states():
    aggr.register(LeastValue)
    try:
        states = LeastValue().reduce(pa.array([1, 9, 5]), Groups.of([0, 0, 2], 4))
        states = pc.if_else(pa.array([True, True, True, False]), states, None)
        assert accessors_of(LeastValue) == ["broken", "covers", "quantile"]
        assert read_accessor(states, "covers", 5).to_pylist() == [True, None, True, None]
        assert read_accessor(states, "quantile").to_pylist() == [5.0, None, 5.0, None]
        assert accessors.quantile(states, 0.25).to_pylist() == [3.0, None, 5.0, None]
        for arguments, message in {
            ("covers",): "covers takes these arguments after the states: value; got 0 arguments",
            ("covers", 1, 2): "covers takes these arguments after the states: value; got 2 arguments",
            ("broken", 1): "broken takes these arguments after the states: none; got 1 arguments",
            ("broken",): "must return 3 values of int64, one per state; it returned 3 values of double",
            ("mean",): "states of ends have no mean; they have broken, covers, quantile",
        }.items():
            with pytest.raises(TypeError, match=message):
                read_accessor(states, *arguments)
        assert accessors.functions_with("covers") == ["ends"]
        with pytest.raises(ValueError, match="no registered function has the accessor 'cover'; did you mean 'covers'"):
            accessors.functions_with("cover")
    finally:
        aggr.unregister(LeastValue)


def _with_accessor(method: Callable[..., pa.Array]) -> type[Function]:
    method.__name__ = method.__name__.strip("_")
    declared = accessor(pa.bool_())(method)
    return type("Named", (LeastValue,), {"name": "named", method.__name__: declared})


def test_accessors_that_could_not_be_called_are_refused_at_registration():
    def state(self: Function, states: pa.StructArray) -> pa.Array: ...
    def within(self: Function, states: pa.StructArray, low: float, high: float) -> pa.Array: ...
    def among(self: Function, states: pa.StructArray, *values: float) -> pa.Array: ...

    with pytest.raises(ValueError, match="accessor 'state'; choose a name other than state, merge, finish, list"):
        aggr.register(_with_accessor(state))
    with pytest.raises(ValueError, match=r"'within' of Named has 2 parameters after the states: low.*, high"):
        aggr.register(_with_accessor(within))
    with pytest.raises(ValueError, match=r"'among' of Named has 1 parameters after the states: \*values"):
        aggr.register(_with_accessor(among))
    with pytest.raises(
        TypeError, match=r"accessor takes the Arrow type of its values, such as pa.bool_\(\); got 'bool'"
    ):
        accessor("bool")
    assert "named" not in aggr.names()


def test_a_state_under_the_name_of_another_is_refused():
    with pytest.raises(ValueError, match="the state of stranger is called 'sum', which is the name of another state"):
        aggr.register(_named("stranger", own_state=PlainState("sum", {"n": COUNT})))
    assert "stranger" not in aggr.names()


def test_a_frame_keeps_the_columns_that_stored_frames_have():
    def served(**measures: aggr.Measure) -> list[tuple[str, ...]]:
        return [column.serves for column in plan_state_columns(measures)]

    x = "x"
    assert served(n=aggr.count(x), s=aggr.sum(x), v=aggr.var(x), k=aggr.skewness(x)) == [("n", "s", "v"), ("k",)]
    assert served(k=aggr.kurtosis(x), v=aggr.var(x), q=aggr.rms(x)) == [("k", "v"), ("q",)]
    assert served(a=aggr.any_value(x), f=aggr.first(x)) == [("a",), ("f",)]
    assert served(a=aggr.any_value(x), f=aggr.first(x), m=aggr.m4(x)) == [("a", "f", "m")]
    assert served(least=aggr.min(x), every=aggr.bool_and(x), span=aggr.range(x)) == [("least", "span"), ("every",)]


@dataclass(frozen=True)
class PowerSum(aggr.PerGroup):
    """A sum of powers; the exponent shapes the state, and the divisor only reads."""

    exponent: int = 2
    divisor: int = 1

    name, keeps, returns, guarantee = "power_sum", "a sum of powers", "int64", "exact"
    state_kind = result_kind = pa.int64()
    shaping: ClassVar = {"exponent": pa.int8()}

    def start(self) -> int:
        return 0

    def add(self, state: int, value: int) -> int:
        return state + value**self.exponent

    def combine(self, a: int, b: int) -> int:
        return a + b

    def result(self, state: int) -> int:
        return state // self.divisor


def test_parameters_of_a_function_in_plain_python_shape_its_states():
    aggr.register(PowerSum)
    try:
        call = aggr.caller("power_sum")
        measures = {"a": call("v"), "half": call("v", divisor=2), "cubes": call("v", exponent=3)}
        assert [column.serves for column in plan_state_columns(measures)] == [("a", "half"), ("cubes",)]
        states = PowerSum(3).reduce(pa.array([1, 2, 3]), Groups.single(3))
        assert function_of(states) == PowerSum(3)
        assert PowerSum(3, divisor=2).finish(states).to_pylist() == [18]
        with pytest.raises(
            ValueError, match="states of power_sum with exponent=3 cannot be merged or read as exponent=2"
        ):
            PowerSum().finish(states)
    finally:
        aggr.unregister(PowerSum)


@dataclass(frozen=True)
class _Returns(State):
    """A state that declares the fields ``low`` and ``n``, and returns a value of its own for them."""

    returned: Any = None
    name = "returns"
    fields: ClassVar = {"low": LEAST, "n": COUNT}

    def reduce_values(self, values: Values) -> Any:
        return self.returned


@pytest.mark.parametrize(
    ("returned", "text"),
    [
        (None, "reduce_values returned None; it must return a dict with the fields low, n"),
        ((1, 2), "it must return a dict with the fields low, n"),
        ({"low": pa.array([1])}, "returned the fields low, but the state declares low, n; return exactly these"),
        (
            {"low": pa.array([1]), "n": pa.array([1]), "m": pa.array([1])},
            "returned the fields low, n, m, but the state",
        ),
        ({"low": pa.array([1]), "n": [1]}, "for the field 'n'; it must be an Arrow array with a row for each group"),
        ({"low": pa.array([1]), "n": pa.array([1, 2])}, "returned 2 rows for the field 'n', but there are 1 groups"),
    ],
)
def test_fields_that_the_state_does_not_declare_are_refused(returned, text):
    values = Values(pa.array([1, 2]), Groups.single(2))
    with pytest.raises(TypeError, match=f"^returns: .*{text}"):
        _Returns(returned).reduce(values)
    assert _Returns({"low": pa.array([1]), "n": np.array([2])}).reduce(values).field("n").to_pylist() == [2]


def test_a_module_that_is_not_imported_is_named():
    with pytest.raises(AttributeError, match=r"the module aggr\.warming is not imported; add 'import aggr\.warming'"):
        vars(aggr)["__getattr__"]("warming")
    with pytest.raises(AttributeError, match="there is no function 'warmings'"):
        vars(aggr)["__getattr__"]("warmings")
