"""Cases for laws. A case is a function with values of a type that the function takes, and with the groups of the
values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle, islice
from typing import Any

import numpy as np
import pyarrow as pa

from aggr.arrow.bit_equality import same_bits
from aggr.arrow.normalize import normalized_type
from aggr.function import Function, input_rule
from aggr.function_inputs import EVENT_TIME
from aggr.groups.groups import Groups
from aggr.testing.edge_cases import all_edge_cases, edge_cases, ordinary_values
from aggr.testing.harness import LawBroken

Source = Callable[[int, int], pa.Array]

TYPES = (
    *(pa.float64(), pa.float32(), pa.int64(), pa.int32(), pa.int16(), pa.int8()),
    *(pa.uint64(), pa.uint32(), pa.uint16(), pa.uint8(), pa.decimal128(10, 2), pa.decimal128(38, 10)),
    *(pa.bool_(), pa.date32(), pa.date64(), pa.time64("us"), pa.duration("us")),
    *(pa.timestamp("us", "UTC"), pa.timestamp("ns"), pa.timestamp("s", "Europe/Paris")),
    *(pa.string(), pa.large_string(), pa.binary(), pa.binary(3)),
    *(pa.list_(pa.float64()), pa.struct([("a", pa.float64()), ("b", pa.string())])),
)
_TIME = pa.timestamp("us", "UTC")
WRITE_MESSAGE = "it writes into an array that other measures of the same column also use; copy the array first"


@dataclass(frozen=True)
class Case:
    """One case for laws: a function, values of one type, and the groups of the values.

    ``rng`` is the source of random numbers for the law. ``parameters`` are the values that the caller of `check` has
    passed for parameters of the function.
    """

    function: Function
    values: pa.Array
    groups: Groups
    rng: np.random.Generator
    parameters: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    @property
    def states(self) -> pa.StructArray:
        """The states to which the function reduces the values, one per group."""
        return self.function.reduce(self.values, self.groups)

    def parts(self, count: int) -> pa.StructArray:
        """Split the rows at random into ``count`` parts, and reduce each part to one state per group.

        Return the states of all parts as one column, one part after the other.
        """
        order = self.rng.permutation(len(self.values))
        cuts = np.sort(self.rng.integers(0, len(order) + 1, count - 1))
        pieces = [
            self.function.reduce(self.values.take(pa.array(rows)), Groups(self.groups.ids[rows], self.groups.n))
            for rows in np.split(order, cuts)
        ]
        return pa.concat_arrays(pieces)

    def merge(self, states: pa.StructArray) -> pa.StructArray:
        """Return the merged states of parts, one per group. ``states`` has the form that `parts` returns."""
        n = self.groups.n
        return self.function.merge(states, Groups(np.tile(np.arange(n), len(states) // n), n))


def input_types(function: Function) -> list[pa.DataType]:
    """Return the types in `TYPES` that a function takes, or structs of them if it has several inputs.

    Parameters
    ----------
    function : Function

    Returns
    -------
    list of types
    """
    if len(function.inputs) == 1:
        return [kind for kind in TYPES if _accepts_type(function, kind)]
    types_by_input = [_types_of_input(function, name) for name in function.inputs]
    longest = max(map(len, types_by_input))
    rotated_types = [islice(cycle(kinds), place, place + longest) for place, kinds in enumerate(types_by_input)]
    structs = [pa.struct(list(zip(function.inputs, kinds, strict=True))) for kinds in zip(*rotated_types, strict=True)]
    same_type_structs = [
        pa.struct([(name, _TIME if name == EVENT_TIME else kind) for name in function.inputs]) for kind in TYPES
    ]
    return [kind for kind in structs if _accepts_type(function, kind)] or [
        kind for kind in same_type_structs if _accepts_type(function, kind)
    ]


def _types_of_input(function: Function, name: str) -> list[pa.DataType]:
    rule = input_rule(function, name)
    kinds = [kind for kind in TYPES if rule.allows(normalized_type(kind))]
    if name == EVENT_TIME:
        return [kind for kind in kinds if pa.types.is_timestamp(kind)] or [_TIME]
    return kinds or [_TIME]


def _accepts_type(function: Function, kind: pa.DataType) -> bool:
    normalized = normalized_type(kind)
    if len(function.inputs) > 1:
        normalized = pa.struct([(child.name, normalized_type(child.type)) for child in kind])
    try:
        function.check_input(normalized)
    except TypeError:
        return False
    return True


def draw_accepted(function: Function, kind: pa.DataType, size: int, seed: int) -> pa.Array | None:
    """Draw edge cases of a type, or less extreme values if the function rejects some of them.

    Parameters
    ----------
    function : Function
    kind : type
    size, seed : int

    Returns
    -------
    array of the type, shape (size,), or None
        Values from the first set that the function accepts. The sets are tried in this order: all edge cases, finite
        numbers, numbers of at least 0, small integers. None if the function rejects values from every set.
    """
    for draw in _value_sources(kind):
        if _accepts_values(function, draw(size, seed)):
            return draw(size, seed)  # drawn again, because the function may have changed the first array
    return None


def draw_ordinary(function: Function, kind: pa.DataType, size: int, seed: int) -> pa.Array | None:
    """Draw distinct values of both signs, or positive values if the function rejects negative ones.

    If the function rejects positive values as well, return the values of `draw_accepted`, which contain edge cases and
    may repeat. Return None if the function rejects all kinds of values.
    """
    for signed in (True, False):
        if _accepts_values(function, ordinary_values(kind, size, seed, signed=signed)):
            return ordinary_values(kind, size, seed, signed=signed)
    return draw_accepted(function, kind, size, seed)


def select_accepted_edge_cases(function: Function, kind: pa.DataType) -> pa.Array | None:
    """Return those edge cases of a type that the function accepts if each is the only value of a group. Return None if
    the function rejects all of them.
    """
    values = all_edge_cases(kind)
    accepted_rows = [row for row in range(len(values)) if _accepts_values(function, values.slice(row, 1))]
    return all_edge_cases(kind).take(pa.array(accepted_rows, pa.int64())) if accepted_rows else None


def _value_sources(kind: pa.DataType) -> Iterator[Source]:
    yield partial(edge_cases, kind)
    yield partial(edge_cases, kind, most=2.0**40, special=False)
    yield partial(edge_cases, kind, least=0, most=2.0**40, special=False)
    yield partial(ordinary_values, kind, max_integer=100)


def _accepts_values(function: Function, values: pa.Array) -> bool:
    """Return whether a function can reduce values to a state of one group, and compute the result.

    Raise `LawBroken` if the function writes into the array of the values.
    """
    states = None
    try:
        states = function.reduce(values, Groups.single(len(values)))
        function.finish(states)
    except (ValueError, OverflowError) as error:
        if is_write_error(error):
            raise LawBroken(f"{function.name} breaks the law 'neighbours': {WRITE_MESSAGE}") from error
        if states is not None and function.is_always_readable(states.type):
            raise LawBroken(
                f"{function.name} breaks the law 'is_always_readable': finish rejects a state of values of type "
                f"{values.type}, although is_always_readable returns True: {error}"
            ) from error
        return False
    return True


def last_rejection(function: Function, kind: pa.DataType) -> str:
    """Return a sentence with the error that a function raises for small values, or "" if it accepts them."""
    try:
        function.finish(function.reduce(ordinary_values(kind, 3, 0, max_integer=100), Groups.single(3)))
    except (ValueError, OverflowError) as error:
        return f". Small values of type {kind} raise {type(error).__name__}: {error}"
    return ""


def is_write_error(error: Exception) -> bool:
    """Return whether an error is the one that NumPy raises for a write into a read-only array."""
    return isinstance(error, ValueError) and "read-only" in str(error)


def require_same_bits(actual: pa.Array, expected: pa.Array, context: str = "") -> None:
    """Raise `LawBroken` unless two columns have the same bits.

    The message consists of ``context``, such as "after subtracting all rows", and the first row that differs.
    """
    if not same_bits(actual, expected):
        row = next(
            (
                i
                for i in range(min(len(actual), len(expected)))
                if not same_bits(actual[i : i + 1], expected[i : i + 1])
            ),
            0,
        )
        pair = [column[row].as_py() if row < len(column) else None for column in (actual, expected)]
        prefix = f"{context}: " if context else ""
        raise LawBroken(f"{prefix}row {row} is {pair[0]!r}, and should be {pair[1]!r}")


def require_refusal(call: Callable[[], Any], what: str) -> None:
    """Raise `LawBroken` unless ``call`` raises ``ValueError``. ``what`` is the subject of the message."""
    try:
        call()
    except ValueError:
        return
    raise LawBroken(f"{what} were accepted, and must raise ValueError")
