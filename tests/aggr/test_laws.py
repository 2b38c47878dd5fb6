"""Every registered function obeys every law for every accepted type, and the laws detect broken functions."""

from __future__ import annotations

import gc
import math
import os
import statistics
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

import aggr
from aggr.arrow.bit_equality import same_bits
from aggr.arrow.normalize import normalized_type
from aggr.fields import ADD, LEAST, Field, MinOrMax
from aggr.function import Function, input_rule
from aggr.function_inputs import EVENT_TIME
from aggr.groups.numbers import Numbers
from aggr.plain_state import PlainState
from aggr.state import State
from aggr.testing.edge_cases import edge_cases, ordinary_values
from aggr.testing.laws import LAWS, LawBroken, check
from aggr.values import Values

TRIALS = int(os.environ.get("TRIALS", 4))  # of which the first three are of no row, of one and of two

NUMBERS = [
    pa.float64(), pa.float32(), pa.int64(), pa.int8(), pa.uint64(), pa.decimal128(10, 2), pa.decimal128(38, 20),
]  # fmt: skip
ORDERED = [
    *NUMBERS, pa.string(), pa.large_string(), pa.binary(), pa.bool_(), pa.date32(), pa.timestamp("us", "UTC"),
    pa.timestamp("ns"), pa.timestamp("s", "Europe/Paris"),
]  # fmt: skip
VARIANTS: dict[str, list[Function]] = {  # of which parameters; of others, the defaults
    "var": [aggr.Var(0), aggr.Var(1)],
    "stdev": [aggr.Stdev(0), aggr.Stdev(1)],
    "covar": [aggr.Covar(0), aggr.Covar(1)],
    "skewness": [aggr.Skewness(False), aggr.Skewness(True)],
    "kurtosis": [aggr.Kurtosis(False), aggr.Kurtosis(True)],
    "dds": [aggr.Dds(relative_accuracy=0.01), aggr.Dds(relative_accuracy=0.05, max_bins=20)],
    "exponential": [aggr.Exponential(), aggr.Exponential(scale=3, max_buckets=5)],
    "hdr": [aggr.Hdr(digits=2), aggr.Hdr(digits=3, unit=0.25)],
    "per": [aggr.Per(), aggr.Per(max=2, beyond="sample")],
    "frequent": [aggr.Frequent(), aggr.Frequent(1.0)],
    "bottom_k": [aggr.BottomK(), aggr.BottomK(2)],
    "top_k": [aggr.TopK(), aggr.TopK(2)],
    "histogram": [aggr.Histogram((-1.5, 0, 0.25, 1e9, 1e300))],
    "hll": [aggr.Hll(8), aggr.Hll()],
    "approx_count_distinct": [aggr.ApproxCountDistinct(16), aggr.ApproxCountDistinct()],
    "decayed_sum": [aggr.DecayedSum("1s"), aggr.DecayedSum("100d")],
    "funnel": [aggr.Funnel(("a", "ab"))],
    "lttb": [aggr.Lttb(3)],
    "collect": [aggr.Collect(), aggr.Collect(3, "earliest"), aggr.Collect(2, "latest")],
}


def kinds_of(function: Function) -> list[pa.DataType]:
    """List types that a function says it takes; of several inputs, structs, each type next to another."""
    only = {"duration_in": [pa.bool_()], "funnel": [pa.string()]}  # whose parameters are of the column's type
    first = [
        kind
        for kind in only.get(function.name, ORDERED)
        if input_rule(function, function.inputs[0]).allows(normalized_type(kind))
    ]
    if len(function.inputs) == 1:
        return first
    times, rotated = [pa.timestamp("us", "UTC")] * len(first), [*first[1:], first[0]]
    columns = [first, *(times if role == EVENT_TIME else rotated for role in function.inputs[1:])]
    return [pa.struct(list(zip(function.inputs, types, strict=True))) for types in zip(*columns, strict=True)]


def variants_of(name: str) -> list[Function]:
    return VARIANTS.get(name, [aggr.get(name)()])


TAKES: dict[str, list[tuple[Function, pa.DataType]]] = {
    name: [(function, kind) for kind in kinds_of(aggr.get(name)()) for function in variants_of(name)]
    for name in aggr.names()
}


def chosen_cases() -> list[Any]:
    """Return each state with each type, by one of its functions, and other functions with each twentieth type.

    Types are read alike by all parameters, and functions of one state differ in `finish` alone.
    """
    states_with_all_types = set()
    chosen = []
    for name, cases in TAKES.items():
        variant_count = len(variants_of(name))
        state_name = cases[0][0].own_state.name
        all_types = state_name not in states_with_all_types
        states_with_all_types.add(state_name)
        for i, (function, kind) in enumerate(cases):
            kind_number, variant = divmod(i, variant_count)
            of_all_types = all_types and variant == kind_number % variant_count
            if of_all_types or kind_number % 20 == 0:
                marks = [pytest.mark.long] if i else []
                chosen.append(pytest.param(function, kind, marks=marks, id=f"{name}-{kind}-{i}"[:60]))
    return chosen


CASES = chosen_cases()


def source_of(function: Function, kind: pa.DataType):
    """Draw what the function takes: whole numbers of at least 0 for hdr, sums within int64 and decimal range."""
    if function.name == "hdr":

        def random_integers(size: int, seed: int) -> pa.Array:
            drawn = edge_cases(pa.float64(), size, seed, least=0, special=False)
            small = pa.array([None if v is None else float(int(v) % 2**40) for v in drawn.to_pylist()])
            if pa.types.is_decimal(kind) or pa.types.is_integer(kind):
                small = [None if v is None else Decimal(int(v) % 100) for v in small.to_pylist()]
                return pa.array(small, pa.decimal128(38, 20)).cast(kind)
            return small.cast(kind)

        return random_integers
    if function.name in ("sum", "sum_distinct", "avg", "var", "stdev", "dds", "exponential", "range") and (
        pa.types.is_integer(kind) or pa.types.is_decimal(kind)
    ):

        def bounded(size: int, seed: int) -> pa.Array:
            drawn = edge_cases(kind, size, seed)
            bound = 2**56 if pa.types.is_integer(kind) else 10**15
            return pa.array([None if v is None or abs(v) > bound else v for v in drawn.to_pylist()], kind)

        return bounded
    return None


def test_every_function_is_tried_on_what_it_says_it_takes():
    tried = {name: {str(kind) for _, kind in cases} for name, cases in TAKES.items()}
    assert {"double", "string", "bool"} <= tried["min"] == tried["count"] == tried["collect_set"]
    assert tried["sum"] == tried["dds"] == {str(kind) for kind in NUMBERS}
    assert len(tried["avg"]) == len(tried["sum"]) + 3  # timestamps
    assert all(tried.values())


@pytest.mark.slow
@pytest.mark.parametrize(("function", "kind"), CASES)
def test_laws(function, kind):
    check(function, kind, source=source_of(function, kind), rounds=TRIALS)


@pytest.mark.long
@pytest.mark.slow
def test_rows_are_free_once_they_are_reduced():
    """What refers to itself waits for the garbage collector, and there may be gigabytes until it comes."""

    def live_objects() -> dict[int, object]:
        return {
            id(instance): instance
            for instance in gc.get_objects()
            if isinstance(instance, Values | Numbers | aggr.Groups)
        }

    gc.collect()
    gc.disable()
    before = live_objects()
    try:
        for function, kind in [case for cases in TAKES.values() for case in cases]:
            draw = source_of(function, kind) or (lambda size, seed, kind=kind: edge_cases(kind, size, seed))
            for values in (draw(20, 1), draw(20, 1).drop_null()):
                function.reduce(values, aggr.Groups.single(len(values)))
        assert live_objects().keys() <= before.keys()
    finally:
        gc.enable()


NAN = np.array([0xFFFFFFFFFFFFFFFF, 0x7FF8000000000123, 0x7FF0000000000001], np.uint64).view(np.float64)


@pytest.mark.parametrize("name", sorted(set(TAKES) - {"hdr"}))
def test_all_nan_are_one_whatever_their_bits(name):
    def column(kind: pa.DataType, nan: np.ndarray) -> pa.Array:
        if pa.types.is_struct(kind):
            return pa.StructArray.from_arrays([column(field.type, nan) for field in kind], fields=list(kind))
        return pa.array(np.array([*nan, 1.0, -0.0, *nan, 2.5])) if kind == pa.float64() else edge_cases(kind, 9, 3)

    for function, kind in TAKES[name]:
        states = [function.reduce(column(kind, nan), aggr.Groups.single(9)) for nan in (NAN, np.full(3, math.nan))]
        assert same_bits(*states), (function, kind)
        function.finish(states[0])


def fraction_of(x):
    return Fraction(x)


def rounded(x: Fraction) -> float:
    try:
        return x.numerator / x.denominator
    except OverflowError:
        return math.inf if x > 0 else -math.inf


def special(values: list[float]) -> float | None:
    bad = {repr(v) for v in values if not math.isfinite(v)}
    if not bad:
        return None
    return float(bad.pop()) if len(bad) == 1 else math.nan


def exact_sum(values):
    if not values:
        return None
    return special(values) if special(values) is not None else rounded(sum(map(Fraction, values)))


def exact_avg(values):
    if not values:
        return None
    return special(values) if special(values) is not None else rounded(sum(map(Fraction, values)) / len(values))


def exact_var(values, ddof=1):
    if len(values) <= ddof:
        return None
    if special(values) is not None:
        return math.nan
    exact = [Fraction(v) for v in values]
    mean = sum(exact) / len(exact)
    return rounded(sum((v - mean) ** 2 for v in exact) / (len(exact) - ddof))


ORACLE_ROUNDS = 12  # each also checks all laws, which is most of its time; tests/aggr/test_exactness.py has more sums


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "oracle"),
    [
        (aggr.Count(), len),
        (aggr.Sum(), exact_sum),
        (aggr.Avg(), exact_avg),
        (aggr.Var(), exact_var),
        (aggr.Var(0), lambda v: exact_var(v, 0)),
    ],
    ids=["count", "sum", "avg", "var", "var0"],
)
def test_oracle_floats(function, oracle):
    check(function, pa.float64(), oracle=oracle, rounds=ORACLE_ROUNDS, seed=7)


def exact_stdev(values):
    if len(values) < 2 or special(values) is not None:
        return None if len(values) < 2 else math.nan
    return statistics.stdev([Fraction(v) for v in values])  # correctly rounded since Python 3.11


@pytest.mark.long
@pytest.mark.slow
def test_oracle_stdev():
    check(
        aggr.Stdev(),
        pa.float64(),
        oracle=exact_stdev,
        rounds=ORACLE_ROUNDS,
        seed=3,
        source=lambda size, seed: edge_cases(pa.float64(), size, seed, special=True),
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    [pa.int64(), pytest.param(pa.decimal128(20, 3), marks=pytest.mark.long), pa.decimal128(38, 20)],
    ids=str,
)
def test_oracle_whole_numbers(kind):
    source = source_of(aggr.Sum(), kind)
    with localcontext(prec=60):
        check(aggr.Sum(), kind, oracle=lambda v: sum(v) if v else None, source=source, rounds=ORACLE_ROUNDS)
    check(aggr.Avg(), kind, oracle=exact_avg_of_whole, source=source, rounds=ORACLE_ROUNDS)
    check(aggr.Var(), kind, oracle=exact_var_of_whole, source=source, rounds=ORACLE_ROUNDS)


def exact_avg_of_whole(values):
    return rounded(sum(map(Fraction, values)) / len(values)) if values else None


def exact_var_of_whole(values):
    if len(values) < 2:
        return None
    exact = [Fraction(v) for v in values]
    mean = sum(exact) / len(exact)
    return rounded(sum((v - mean) ** 2 for v in exact) / (len(exact) - 1))


def spark_order(v: float) -> tuple[bool, float, float]:
    return (v != v, 0.0 if v != v else v, math.copysign(1, v))


@pytest.mark.slow
@pytest.mark.parametrize(("function", "choose"), [(aggr.Min(), min), (aggr.Max(), max)], ids=["min", "max"])
def test_oracle_extremes(function, choose):
    def oracle(values):
        return choose(values, key=spark_order) if values else None

    check(function, pa.float64(), oracle=oracle, rounds=ORACLE_ROUNDS)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("kind", [pa.string(), pa.int64(), pa.uint64(), pa.decimal128(10, 2), pa.date32()], ids=str)
def test_oracle_extremes_of_other_types(kind):
    for function, choose in ((aggr.Min(), min), (aggr.Max(), max)):
        check(function, kind, oracle=lambda v, choose=choose: choose(v) if v else None, rounds=ORACLE_ROUNDS)


@pytest.mark.long
@pytest.mark.slow
def test_oracle_first_and_last():
    kind = pa.struct([("value", pa.int64()), ("time", pa.timestamp("us", "UTC"))])
    for function, choose in ((aggr.First(), min), (aggr.Last(), max)):

        def oracle(events, choose=choose):
            complete = [(e["time"], e["value"]) for e in events if e["time"] is not None and e["value"] is not None]
            return choose(complete)[1] if complete else None

        check(function, kind, oracle=oracle, rounds=ORACLE_ROUNDS)


def test_ugly_values_appear():
    drawn = [v for seed in range(80) for v in edge_cases(pa.float64(), 60, seed).to_pylist()]
    numbers = [v for v in drawn if v is not None]
    assert None in drawn
    assert any(math.isnan(v) for v in numbers)
    assert {math.inf, -math.inf} <= set(numbers)
    assert any(v == 0 and math.copysign(1, v) < 0 for v in numbers)
    assert any(0 < abs(v) < 2.3e-308 for v in numbers)
    assert any(abs(v) >= 1e308 and math.isfinite(v) for v in numbers)
    assert any(abs(v - 1e9) < 5 for v in numbers)
    assert any(edge_cases(pa.float64(), 60, seed).null_count == 60 for seed in range(80))
    integers = [v for seed in range(40) for v in edge_cases(pa.int64(), 60, seed).to_pylist()]
    assert {2**63 - 1, -(2**63)} <= set(integers)


# Functions that are broken, each in a way that happened somewhere.


class BrokenState(State):
    name = "broken"
    fields: ClassVar = {"count": ADD, "value": LEAST}

    def reduce_values(self, values):
        return {"count": pa.array(values.counts), "value": LEAST.reduce(values)}


@dataclass(frozen=True)
class Broken(Function):
    name = "broken"
    keeps = returns = guarantee = "nothing"
    own_state: ClassVar = BrokenState()

    def finish_states(self, states):
        return states.field("value")


class AddFloats(Field):
    def merge(self, column, groups):
        return pa.array(np.bincount(groups.ids, column.to_numpy(), minlength=groups.n).astype(np.float64))


class FloatSum(Broken):
    """Adds floats as they come."""

    own_state = PlainState("broken", {"total": AddFloats()})

    def finish_states(self, states):
        return states.field("total")


class MeanOfMeans(Field):
    def merge(self, column, groups):
        total = np.bincount(groups.ids, column.to_numpy(), minlength=groups.n)
        return pa.array(total / np.maximum(groups.counts(), 1))


class FinishedMean(FloatSum):
    """Keeps a finished number: the mean of means."""

    own_state = PlainState("broken", {"mean": MeanOfMeans()})

    def finish_states(self, states):
        return states.field("mean")


class FirstArrival(Field):
    def merge(self, column, groups):
        rows = np.full(groups.n, -1)
        rows[groups.ids[::-1]] = np.arange(len(groups.ids))[::-1]
        return column.take(pa.array(rows, mask=rows < 0))


class ByArrival(Broken):
    """Takes whichever row came first."""

    own_state = PlainState("broken", {"value": FirstArrival()})


class FilledState(BrokenState):
    def reduce_values(self, values):
        minimum = LEAST.reduce(values)
        return {"count": pa.array(values.counts), "value": minimum.fill_null(0.0)}


class ZeroForNothing(Broken):
    """Starts from 0 if there are no values, as tremor's min does."""

    own_state = FilledState()


class LeakingState(BrokenState):
    def reduce_values(self, values):
        counts = values.counts
        return {"count": pa.array(counts + np.roll(counts, 1)), "value": LEAST.reduce(values)}


class NextDoor(Broken):
    """Leaks a group's rows into its neighbour."""

    own_state = LeakingState()


class NullsState(BrokenState):
    def reduce_values(self, values):
        return {"count": pa.array(values.counts), "value": LEAST.merge(values.array, values.groups)}


class CountsNulls(Broken):
    """Counts nulls as values."""

    own_state = NullsState()

    def drop_null(self, values):
        return values


class Overwrites(Broken):
    """Divides the state in place when it is read, as flox's finalize does."""

    def finish_states(self, states):
        np.frombuffer(memoryview(states.field("count").buffers()[1]), np.int64)
        address = states.field("count").buffers()[1].address
        import ctypes

        for i in range(len(states)):
            ctypes.c_int64.from_address(address + 8 * i).value += 1
        return states.field("value")


class WrongType(Broken):
    """Announces a float and returns a whole number when there is one."""

    def finish_states(self, states):
        values = states.field("value")
        return values if not len(values) else pa.array([0] * len(values))


class Latest(Field):
    def merge(self, column, groups):
        latest = np.zeros(groups.n, np.int64)
        latest[groups.ids] = column.to_numpy()
        return pa.array(latest)


class LastBatch(BrokenState):
    fields: ClassVar = {"count": Latest(), "value": LEAST}


class ForgetsState(Broken):
    """Keeps the last batch only."""

    own_state = LastBatch()


@dataclass(frozen=True)
class UnsaidSize(BrokenState):
    size: int
    parameters: ClassVar = {"size": pa.int32()}

    def parameter_columns(self, n):
        return {}


@dataclass(frozen=True)
class AnyParameter(Broken):
    """Merges states of unequal parameters."""

    size: int = 5

    @property
    def own_state(self):
        return UnsaidSize(self.size)


class LooksAround(Broken):
    """Reads results as shares of all groups."""

    def finish_states(self, states):
        counts = states.field("count").to_numpy().astype(float)
        return pa.array(counts / max(counts.sum(), 1.0))


@dataclass(frozen=True)
class InSteps(BrokenState):
    step: int

    def reduce_values(self, values):
        return {"count": pa.array(values.counts * self.step), "value": LEAST.reduce(values)}


@dataclass(frozen=True)
class ForgetsToSay(Broken):
    """Has a parameter that shapes the state, and does not name it among the state's parameters."""

    step: int = 1

    @property
    def own_state(self):
        return InSteps(self.step)


class SecondState(BrokenState):
    versions = (2,)


class ReadsTheOld(Broken):
    """Changed its layout, and takes states of the old one for its own."""

    own_state = SecondState()

    def _of_this_version(self, states):
        columns = {f.name: states.field(f.name) for f in states.type}
        columns["version"] = pa.array([2] * len(states), pa.int8())
        return pa.StructArray.from_arrays(list(columns.values()), names=list(columns), mask=states.is_null())

    def merge(self, states, groups):
        return super().merge(
            states if states.type.get_field_index("version") < 0 else self._of_this_version(states), groups
        )

    def finish(self, states):
        return super().finish(self._of_this_version(states))


class UnweightedState(BrokenState):
    def reduce_values(self, values):
        return super().reduce_values(Values(values.array, values.groups))


class WeighsOnce(Broken):
    """Counts a row once, whatever its weight."""

    takes_weights = True
    own_state = UnweightedState()


class KeptLeast(MinOrMax):
    def subtract(self, column, removed):
        return column


class SubtractedLeast(BrokenState):
    counted_by = ("count",)
    fields: ClassVar = {"count": ADD, "value": KeptLeast(greatest=False)}


class WithoutDoubt(Broken):
    """Keeps a least value when it was among the rows that are taken out."""

    own_state = SubtractedLeast()


class KeptCount(Field):
    def merge(self, column, groups):
        return ADD.merge(column, groups)

    def subtract(self, column, removed):
        return column


class UnsubtractedCount(BrokenState):
    counted_by = ("count",)
    fields: ClassVar = {"count": KeptCount(), "value": LEAST}


class Doubtful(Broken):
    """Takes nothing out of a count."""

    own_state = UnsubtractedCount()


class CountedState(BrokenState):
    counted_by = ("count",)


@dataclass(frozen=True)
class TakenOut(Broken):
    """Says what counts its rows, and is sound."""

    own_state = CountedState()


BROKEN = {
    WithoutDoubt: {"subtraction"},
    Doubtful: {"subtraction"},
    LooksAround: {"isolated_results"},
    ForgetsToSay: {"reading_parameters"},
    ReadsTheOld: {"versions"},
    WeighsOnce: {"weights"},
    FloatSum: {"any_order", "any_tree", "tower", "single_rows"},
    FinishedMean: {"tower", "any_order", "any_tree", "identity"},
    ByArrival: {"any_order", "tower"},
    ZeroForNothing: {"tower", "identity", "any_order", "single_rows"},
    NextDoor: {"tower", "isolation", "single_rows", "any_order"},
    CountsNulls: {"null_is_identity"},
    Overwrites: {"purity"},
    WrongType: {"exact_type"},
    ForgetsState: {"tower", "identity", "any_order"},
    AnyParameter: {"refusal"},
}


@pytest.mark.parametrize("broken", BROKEN, ids=lambda b: b.__name__)
def test_broken_functions_are_refused(broken):
    with pytest.raises(LawBroken) as caught:
        check(broken(), pa.float64(), rounds=20)
    assert any(f"law {law!r}" in str(caught.value) for law in BROKEN[broken]), caught.value


@dataclass(frozen=True)
class Newer(Broken):
    own_state = SecondState()


class BothVersions(BrokenState):
    versions = (1, 2)


@dataclass(frozen=True)
class ReadsBoth(Broken):
    own_state = BothVersions()


@pytest.mark.slow
@pytest.mark.parametrize("sound", [Broken(), Newer(), ReadsBoth(), TakenOut()], ids=repr)
def test_a_sound_function_of_the_same_make_passes(sound):
    check(sound, pa.float64(), rounds=20)


def test_states_of_an_earlier_version_are_refused_unless_they_are_said_to_be_read():
    old = Broken().reduce(pa.array([1.0, 2.0]), aggr.Groups.single(2))
    for read in (Newer().finish, lambda states: Newer().merge(states, aggr.Groups.single(1))):
        with pytest.raises(ValueError, match="a broken state has version 1, and this release can read only version 2"):
            read(old)
    assert ReadsBoth().finish(old).to_pylist() == [1.0]


def test_a_wrong_oracle_is_noticed():
    with pytest.raises(LawBroken, match="oracle"):
        check(aggr.Count(), pa.float64(), oracle=lambda v: len(v) + 1)


def test_there_are_the_laws_of_the_design():
    assert set(LAWS) == {
        "neighbours", "no_groups",
        "tower", "identity", "any_order", "any_tree", "single_rows", "null_is_identity", "isolation", "purity",
        "exact_type", "travel", "refusal", "isolated_results", "versions", "reading_parameters",
        "state_parameters", "weights", "subtraction", "repeats", "slices", "copies", "other_parameters",
        "accessors", "edges",
    }  # fmt: skip


@pytest.mark.parametrize("dtype", [pa.decimal128(10, 2), pa.decimal128(5, 3), pa.int16(), pa.float64()], ids=str)
def test_ordinary_numbers_have_small_magnitudes(dtype):
    numbers = ordinary_values(dtype, 6, signed=True).to_pylist()
    assert len(set(numbers)) == 6
    assert sorted(math.floor(number) for number in numbers) == [-2, -1, 0, 1, 2, 3]
