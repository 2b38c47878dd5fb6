"""Functions broken on purpose: ``check(f)`` without a type detects each by the expected law."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

from aggr.extend import ADD, COUNT, Function, State, Values
from aggr.groups.groups import Groups
from aggr.input_types import NUMBERS, ORDERED
from aggr.testing.laws import LawBroken, check


class CountingState(State):
    """The state of a sound count, which the others spoil."""

    name = "counting"
    fields: ClassVar = {"n": COUNT}

    def reduce_values(self, values: Values) -> dict[str, pa.Array]:
        return {"n": pa.array(values.counts)}


@dataclass(frozen=True)
class Counting(Function):
    """A sound count."""

    name, keeps, returns, guarantee = "counting", "a count", "int64", "exact"
    takes = NUMBERS
    own_state: ClassVar[State] = CountingState()

    def finish_states(self, states: pa.StructArray) -> pa.Array:
        return states.field("n")


class ClippedFloats(CountingState):
    def reduce_values(self, values: Values) -> dict[str, pa.Array]:
        np.clip(values.floats.array, 0.0, 1.0, out=values.floats.array)
        return super().reduce_values(values)


@dataclass(frozen=True)
class WritesIntoFloats(Counting):
    own_state = ClippedFloats()


class SortedInPlace(CountingState):
    def reduce_values(self, values: Values) -> dict[str, pa.Array]:
        values.floats.sorted_by_group.sort()
        return super().reduce_values(values)


@dataclass(frozen=True)
class WritesIntoSorted(Counting):
    own_state = SortedInPlace()


class SaltedHashes(CountingState):
    fields: ClassVar = {"n": ADD}

    def reduce_values(self, values: Values) -> dict[str, pa.Array]:
        hashes = [hash(str(value)) % 1000 for value in values.array.to_pylist()]
        return {"n": pa.array(np.bincount(values.groups.ids, hashes, minlength=values.groups.n).astype(np.int64))}


@dataclass(frozen=True)
class Salted(Counting):
    """Adds up hashes of text, which are other numbers in every process."""

    takes = ORDERED
    own_state = SaltedHashes()


class UpToAHundred(CountingState):
    def reduce_values(self, values: Values) -> dict[str, pa.Array]:
        return {"n": pa.array(np.minimum(values.counts, 100))}


@dataclass(frozen=True)
class BoundedSketch(Counting):
    """Goes wrong beyond 100 rows at once, as a buffer that is full."""

    own_state = UpToAHundred()


@dataclass(frozen=True)
class ByWord(CountingState):
    edge: str

    def reduce_values(self, values: Values) -> dict[str, pa.Array]:
        return {"n": pa.array(values.counts + (values.counts if self.edge == "upper" else 0))}


@dataclass(frozen=True)
class ShapedByWord(Counting):
    """Its word shapes the state, and is not declared to."""

    edge: str = "lower"

    def __post_init__(self) -> None:
        if self.edge not in ("lower", "upper"):
            raise ValueError("edge must be 'lower' or 'upper'")

    @property
    def own_state(self) -> State:
        return ByWord(self.edge)


class FloatSums(CountingState):
    fields: ClassVar = {"n": ADD}

    def reduce_values(self, values: Values) -> dict[str, pa.Array]:
        sums = np.bincount(values.groups.ids, values.floats.array, minlength=values.groups.n)
        finite = np.nan_to_num(sums).clip(-(2.0**53), 2.0**53)
        return {"n": pa.array(finite.astype(np.int64))}


@dataclass(frozen=True)
class FloatSumOfSmallNumbers(Counting):
    """Sound of int8 alone: sums of doubles depend on the order of rows."""

    own_state = FloatSums()


BROKEN: dict[type[Function], tuple[str, dict[str, Any]]] = {
    WritesIntoFloats: ("neighbours", {}),
    WritesIntoSorted: ("neighbours", {}),
    Salted: ("other_process", {}),
    BoundedSketch: ("any_order", {}),
    ShapedByWord: ("reading_parameters", {"edge": ["upper"]}),
    FloatSumOfSmallNumbers: ("tower", {}),
}


@pytest.mark.long
@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.__name__)
def test_each_is_caught_by_its_law(broken):
    law, parameters = BROKEN[broken]
    with pytest.raises(LawBroken) as caught:
        check(broken(), rounds=12, parameters=parameters)
    assert f"law {law!r}" in str(caught.value)


@pytest.mark.parametrize("kind", [pa.float32(), pa.int8(), pa.decimal128(9, 2), pa.float64()], ids=str)
def test_writing_into_shared_numbers_is_noticed_on_every_type(kind):
    with pytest.raises(LawBroken, match="neighbours"):
        check(WritesIntoFloats(), kind, rounds=8)


@pytest.mark.long
def test_the_sound_one_passes():
    check(Counting(), rounds=4)


def test_a_parameter_of_which_no_value_can_be_tried_is_refused():
    with pytest.raises(ValueError, match=r"a value of the parameter 'edge' of counting that differs from"):
        check(ShapedByWord(), rounds=4)


def test_a_sum_of_doubles_is_not_noticed_on_int8_alone():
    """The reason for which `check` without a type tries them all."""
    check(FloatSumOfSmallNumbers(), pa.int8(), rounds=3)


@dataclass(frozen=True)
class Record(Counting):
    """Returns a record with NaN and a negative zero in it."""

    def finish_states(self, states: pa.StructArray) -> pa.Array:
        n = len(states)
        return pa.StructArray.from_arrays([pa.array(np.full(n, value)) for value in (np.nan, -0.0)], names=["a", "b"])


def _oracle(zero: float) -> Callable[[list[Any]], Any]:
    return lambda rows: {"a": float("nan"), "b": zero}


def test_oracles_compare_inside_records():
    check(Record(), pa.float64(), rounds=4, oracle=_oracle(-0.0))
    with pytest.raises(LawBroken, match="oracle"):
        check(Record(), pa.float64(), rounds=4, oracle=_oracle(0.0))


@dataclass(frozen=True)
class Pairs(Counting):
    inputs = ("y", "x")


def test_oracles_get_rows_without_nulls_of_several_inputs():
    kind = pa.struct([("y", pa.float64()), ("x", pa.float64())])

    def oracle(rows: list[Any]) -> int:
        assert all(row["y"] is not None and row["x"] is not None for row in rows)
        return len(rows)

    check(Pairs(), kind, rounds=8, oracle=oracle)
    assert Pairs().reduce([pa.array([1.0]), pa.array([2.0])], Groups.single(1)).field("n").to_pylist() == [1]
