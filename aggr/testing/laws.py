"""The laws: what every function must obey, as checks that anyone can run on a function of their own.

>>> from aggr import Sum
>>> check(Sum(), pa.float64(), rounds=5)

Equality is equality of bits, never a tolerance. Every law is checked on edge cases (`aggr.testing.edge_cases`), on
empty input, nulls only, one row, and groups without rows. A broken law raises `LawBroken`, which names the law.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from aggr.arrow.bit_equality import digest, same_bits
from aggr.arrow.normalize import is_number
from aggr.fields import CannotSubtract
from aggr.function import EVENT_TIME, Function
from aggr.groups.groups import Groups
from aggr.parameters import some
from aggr.state_checks import FUNCTION, VERSION
from aggr.testing.edge_cases import edge_cases
from aggr.testing.harness import LawBroken, holds, obey
from aggr.testing.other_process import digest_elsewhere
from aggr.values import Values

__all__ = ["LAWS", "TYPES", "LawBroken", "check"]

Oracle = Callable[[list[Any]], Any]
Source = Callable[[int, int], pa.Array]


@dataclass(frozen=True)
class Case:
    """One round: a function, values, their groups, and the states they reduce to."""

    function: Function
    values: pa.Array
    groups: Groups
    rng: np.random.Generator
    parameters: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    @property
    def states(self) -> pa.StructArray:
        """The states of the values."""
        return self.function.reduce(self.values, self.groups)

    def parts(self, count: int) -> pa.StructArray:
        """Split the rows at random, in random order, into parts reduced on their own; end to end."""
        order = self.rng.permutation(len(self.values))
        cuts = np.sort(self.rng.integers(0, len(order) + 1, count - 1))
        pieces = [
            self.function.reduce(self.values.take(pa.array(rows)), Groups(self.groups.ids[rows], self.groups.n))
            for rows in np.split(order, cuts)
        ]
        return pa.concat_arrays(pieces)

    def merge(self, states: pa.StructArray) -> pa.StructArray:
        """Merge parts, each of which has one state a group."""
        n = self.groups.n
        return self.function.merge(states, Groups(np.tile(np.arange(n), len(states) // n), n))


def neighbours(case: Case) -> None:
    """Reducing changes nothing that other measures of the same column read, such as its numbers as doubles."""
    shared = case.function.grouped(case.values, case.groups)
    alone = Values(shared.array, shared.groups)
    try:
        case.function.reduce(shared)
    except ValueError as error:
        if "read-only" in str(error):
            raise LawBroken("it writes into an array that other measures of the column read; copy it first") from error
        raise
    if len(case.function.inputs) > 1:
        return
    present, untouched = shared.present, alone.present
    if is_number(present.array.type):
        holds(
            np.array_equal(present.floats.array, untouched.floats.array, equal_nan=True),
            "the numbers that other measures of the column read have changed",
        )


def tower(case: Case) -> None:
    """Merging the states of fine windows gives the state of the coarse window's rows."""
    coarse = Groups(case.groups.ids // 3, (case.groups.n + 2) // 3)
    climbed = case.function.merge(case.states, Groups(np.arange(case.groups.n) // 3, coarse.n))
    _same(climbed, case.function.reduce(case.values, coarse))


def identity(case: Case) -> None:
    """Merging with zero states changes nothing, and so does merging a state alone."""
    states, zero = case.states, case.function.zero(case.groups.n, case.values.type)
    _same(case.merge(states), states)
    _same(case.merge(pa.concat_arrays([states, zero])), states)
    _same(case.merge(pa.concat_arrays([zero, states])), states)
    none = pa.array([], case.values.type)
    _same(zero, case.function.reduce(none, Groups.of([], case.groups.n)))


def any_order(case: Case) -> None:
    """The order of rows and the order of states do not show."""
    _same(case.merge(case.parts(4)), case.states)


def any_tree(case: Case) -> None:
    """The tree of merges does not show: left to right, in pairs, or all at once."""
    n, parts = case.groups.n, case.parts(4)
    pieces = [parts.slice(i * n, n) for i in range(4)]
    left = pieces[0]
    for piece in pieces[1:]:
        left = case.merge(pa.concat_arrays([left, piece]))
    pairs = [case.merge(pa.concat_arrays(pieces[i : i + 2])) for i in (0, 2)]
    _same(left, case.merge(parts))
    _same(case.merge(pa.concat_arrays(pairs)), case.merge(parts))


def single_rows(case: Case) -> None:
    """Reducing rows gives the merge of the states of single rows."""
    singles = case.function.reduce(case.values, Groups.each(len(case.values)))
    _same(case.function.merge(singles, case.groups), case.states)


def null_is_identity(case: Case) -> None:
    """A null value, or a null state, adds nothing."""
    nulls = pa.nulls(case.groups.n, case.values.type)
    everyone = Groups(np.concatenate([case.groups.ids, np.arange(case.groups.n)]), case.groups.n)
    _same(case.function.reduce(pa.concat_arrays([case.values, nulls]), everyone), case.states)
    states = case.states
    for none in (pa.nulls(len(states), states.type), pa.array([None] * len(states), states.type)):
        _same(case.merge(pa.concat_arrays([states, none])), states)
        holds(case.function.finish(none).null_count == len(none), "a null state has a result")


def isolation(case: Case) -> None:
    """A group's state depends on its own rows alone."""
    states = case.states
    for group in range(case.groups.n):
        rows = case.groups.ids == group
        alone = case.function.reduce(case.values.filter(pa.array(rows)), Groups.single(int(rows.sum())))
        _same(alone, states.slice(group, 1))


def purity(case: Case) -> None:
    """Inputs never change, reading never changes a state, and reading twice gives the same."""
    values, states = digest(case.values), case.states
    before = digest(states)
    results = digest(case.function.finish(states))
    case.merge(states)
    holds(digest(case.function.finish(states)) == results, "finishing twice gives two results")
    holds(digest(states) == before, "a state changed while it was read or merged")
    holds(digest(case.values) == values, "the input changed while it was reduced")


def exact_type(case: Case) -> None:
    """There is one state and one result per group, of the types announced."""
    states = case.states
    results = case.function.finish(states)
    dtype = case.function.state_type(case.values.type)
    for what, given, wanted in (
        ("state", states.type, dtype),
        ("merged state", case.merge(states).type, dtype),
        ("result", results.type, case.function.result_type(dtype)),
    ):
        holds(given == wanted, f"a {what} has type {given}, announced as {wanted}")
    holds(len(states) == len(results) == case.groups.n, "there is not one state and one result per group")


def travel(case: Case) -> None:
    """States come back the same from Arrow IPC, Parquet and pickle, and from slices of larger columns."""
    states = case.states
    table = pa.table({"state": states})
    sink, file = io.BytesIO(), io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    pq.write_table(table, file)
    trips = {
        "Arrow IPC": pa.ipc.open_stream(sink.getvalue()).read_all()["state"],
        "Parquet": pq.read_table(file)["state"],
        "pickle": pickle.loads(pickle.dumps(states)),
        "a slice": pa.concat_arrays([states, states]).slice(len(states)),
    }
    for name, back in trips.items():
        back = back.combine_chunks() if isinstance(back, pa.ChunkedArray) else back
        _same(back, states, name)
        _same(case.merge(back), case.merge(states), name)
        _same(case.function.finish(back), case.function.finish(states), name)


def refusal(case: Case) -> None:
    """States of unequal parameters, of another function, or of something else, are refused."""
    states, n = case.states, case.groups.n
    for name, dtype in case.function.own_state.parameters.items():
        other = None if case.function.own_state.parameter(name) is not None else some(dtype)
        if pa.types.is_null(dtype):  # there is only one
            continue
        spoilt = pa.repeat(pa.scalar(other, dtype), n)
        fields = {f.name: states.field(f.name) for f in states.type} | {name: spoilt}
        spoilt = pa.StructArray.from_arrays(list(fields.values()), names=list(fields))
        _refuses(partial(case.merge, spoilt), f"states of another {name}")
    named = {f.name: states.field(f.name) for f in states.type} | {FUNCTION: pa.array(["another"] * n, pa.string())}
    if n:
        other = pa.StructArray.from_arrays(list(named.values()), names=list(named))
        _refuses(partial(case.merge, other), "states that name another function")
        _refuses(partial(case.function.finish, other), "states that name another function")
    strange = pa.StructArray.from_arrays([pa.array([1] * n)], names=["strange"])
    _refuses(partial(case.merge, strange), "states that are not its own")


def isolated_results(case: Case) -> None:
    """A state's result depends on that state alone."""
    states = case.states
    results = case.function.finish(states)
    for group in range(case.groups.n):
        _same(case.function.finish(states.slice(group, 1)), results.slice(group, 1), "the result of a state alone")


def versions(case: Case) -> None:
    """States of a later version are refused, and so are those of an earlier one that is not said to be read."""
    states, version = case.states, case.function.own_state.version
    unread = set(range(1, version)) - set(case.function.own_state.versions)
    for other in [version + 1, *unread] if len(states) else []:
        fields = {f.name: states.field(f.name) for f in states.type}
        fields[VERSION] = pa.array([other] * len(states), fields[VERSION].type)
        of_other = pa.StructArray.from_arrays(list(fields.values()), names=list(fields))
        _refuses(partial(case.merge, of_other), f"states of version {other}")
        _refuses(partial(case.function.finish, of_other), f"states of version {other}")


def reading_parameters(case: Case) -> None:
    """A parameter that is not in the parameters of the state only reads: it shows in no state."""
    for parameter in fields(case.function):
        if parameter.init and parameter.name not in case.function.own_state.parameters:
            for value, other in _readers(case.function, parameter.name, case.parameters):
                where = f"with {parameter.name}={value!r}, which is not a parameter of the state"
                _same(other.reduce(case.values, case.groups), case.states, where)


def _others(value: Any) -> list[Any]:
    """Give other values of the kind of a parameter."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int | float):
        return [value + 1, value * 2, value / 2, 0, 1]
    if isinstance(value, tuple):
        return [value[:1], (0.25, 0.75)]
    return [None, "a", 1, 0.5, True] if value is None or isinstance(value, str) else []


def weights(case: Case) -> None:
    """A row of a weight gives what so many rows give; one of weight 0, or null, nothing."""
    if not case.function.takes_weights:
        return
    counts = case.rng.integers(0, 4, len(case.values))
    rows = np.repeat(np.arange(len(counts)), counts)
    repeated = case.function.reduce(case.values.take(pa.array(rows)), Groups(case.groups.ids[rows], case.groups.n))
    missing = pa.array(counts, mask=(counts == 0) & (case.rng.random(len(counts)) < 0.5))
    _same(case.function.reduce(case.values, case.groups, missing), repeated)


def subtraction(case: Case) -> None:
    """Taking states out of what they were merged into gives those that were there before; in doubt it is refused."""
    if not case.function.own_state.counted_by:
        return
    n, parts = case.groups.n, case.parts(2)
    mine, gone, merged = parts.slice(0, n), parts.slice(n), case.merge(parts)
    zero = case.function.zero(n, case.values.type)
    _same(case.function.subtract(merged, zero), merged, "nothing taken out")
    _same(case.function.subtract(merged, merged), zero, "everything taken out")
    for group in range(n):  # one may be in doubt
        row = slice(group, group + 1)
        with suppress(CannotSubtract):
            _same(case.function.subtract(merged[row], gone[row]), mine[row])


LAWS: dict[str, Callable[[Case], None]] = {
    law.__name__: law
    for law in (
        neighbours, tower, identity, any_order, any_tree, single_rows, null_is_identity, isolation, purity, exact_type,
        travel, refusal, isolated_results, versions, reading_parameters, weights, subtraction,
    )
}  # fmt: skip


def check(
    function: Function,
    input_type: pa.DataType | None = None,
    *,
    oracle: Oracle | None = None,
    source: Source | None = None,
    rounds: int = 30,
    seed: int = 0,
    parameters: Mapping[str, Sequence[Any]] = MappingProxyType({}),
) -> None:
    """Check every law for a function on a type of input, or on every type that it takes.

    Parameters
    ----------
    function : Function
    input_type : type, optional
        What `reduce` gets; a struct of value and time for functions of events. Without it, every type of `TYPES` that
        the function takes is tried, with one case of thousands of rows, and in a second process with another seed of
        hashes.
    oracle : function of a list of values, optional
        The exact answer from one group's values without nulls, for example by `fractions`; compared with the
        result by ``==``, also inside lists and structs; NaN equals NaN, and the sign of zero counts.
    source : function of (size, seed), optional
        Draws the values; by default `aggr.testing.edge_cases.edge_cases` of the type.
    rounds, seed : int
        The number of cases, and the seed that they are drawn from.
    parameters : name -> values, optional
        Other values of parameters that only read, to try that no state depends on them. Without an ``input_type``, each
        such parameter needs one value that the function allows, from here or from a few numbers that are tried.

    Raises
    ------
    LawBroken
        If a law does not hold; the message names it, and the seed of the case.
    ValueError
        If the function takes none of the types, or no value of a parameter that only reads could be tried.
    """
    if input_type is not None:
        _check_type(function, input_type, oracle, source, rounds, seed, parameters, most=60)
        return
    types = [kind for kind in map(partial(_input_of, function), TYPES) if _takes(function, kind)]
    if not types:
        raise ValueError(f"{function.name} takes none of the types that are tried; name an input_type")
    _check_parameters(function, parameters)
    for kind in types:
        _check_type(function, kind, oracle, source, max(4, rounds // len(types)), seed, parameters, most=60)
    _check_type(function, types[0], oracle, source, 4, seed + 1, parameters, most=_MANY_ROWS)
    for kind in (types[0], types[-1]):
        _check_elsewhere(function, kind, source, seed)


TYPES = (
    *(pa.float64(), pa.float32(), pa.int64(), pa.int8(), pa.uint64(), pa.decimal128(10, 2), pa.decimal128(38, 10)),
    *(pa.bool_(), pa.date32(), pa.timestamp("us", "UTC"), pa.binary(), pa.string()),
)
_MANY_ROWS = 4_000


def _input_of(function: Function, kind: pa.DataType) -> pa.DataType:
    """Return the type of what `reduce` gets, if each input but the event time is of a type."""
    if len(function.inputs) == 1:
        return kind
    time = pa.timestamp("us", "UTC")
    return pa.struct([(name, time if name == EVENT_TIME else kind) for name in function.inputs])


def _takes(function: Function, kind: pa.DataType) -> bool:
    try:
        function.check_input(kind)
    except TypeError:
        return False
    return True


def _check_parameters(function: Function, parameters: Mapping[str, Sequence[Any]]) -> None:
    """Refuse a parameter that only reads and of which no other value could be tried."""
    reading = (p.name for p in fields(function) if p.init and p.name not in function.own_state.parameters)
    for name in reading:
        if not _readers(function, name, parameters):
            raise ValueError(
                f"no other value of {function.name}'s parameter {name!r} could be tried; name some: "
                f"check(…, parameters={{{name!r}: […]}})"
            )


def _readers(function: Function, name: str, parameters: Mapping[str, Sequence[Any]]) -> list[tuple[Any, Function]]:
    """Make the function with other values of a parameter, those that it allows."""
    own, made = getattr(function, name), []
    for value in [*parameters.get(name, ()), *_others(own)]:
        with suppress(TypeError, ValueError):
            other = replace(function, **{name: value})
            if other != function:
                made.append((value, other))
    return made


def _check_elsewhere(function: Function, kind: pa.DataType, source: Source | None, seed: int) -> None:
    values = source(50, seed) if source else edge_cases(kind, 50, seed)
    groups = Groups(np.arange(len(values)) % 3, 3)
    found = digest_elsewhere(function, values, groups)
    if found is not None and found != digest(function.reduce(values, groups)):
        raise LawBroken(
            f"{function.name} breaks the law 'other_process': another process, with another PYTHONHASHSEED, reduces "
            "the same rows to other states"
        )


def _check_type(
    function: Function,
    input_type: pa.DataType,
    oracle: Oracle | None,
    source: Source | None,
    rounds: int,
    seed: int,
    parameters: Mapping[str, Sequence[Any]],
    *,
    most: int,
) -> None:
    draw = source or (lambda size, seed: edge_cases(input_type, size, seed))
    for number in range(rounds):
        rng = np.random.default_rng((seed, number))
        size = [0, 1, 2][number] if number < 3 else int(rng.integers(most // 2 if most > 60 else 1, most))
        n = int(rng.integers(1, 8))
        groups = Groups(rng.integers(0, max(1, n - 1), size).astype(np.intp), n)  # the last often has no rows
        case = Case(function, draw(size, seed * 1000 + number), groups, rng, parameters)
        fresh = partial(_with_new_draws, case, (seed, number, 1))
        obey(function.name, LAWS.values(), fresh, f" (seed {seed}, round {number})")
        if oracle is not None:
            _consult(oracle, case)


def _with_new_draws(case: Case, seed: tuple[int, ...]) -> Case:
    return replace(case, rng=np.random.default_rng(seed))


def _consult(oracle: Oracle, case: Case) -> None:
    results = case.function.finish(case.states).to_pylist()
    for group, result in enumerate(results):
        rows = case.values.filter(pa.array(case.groups.ids == group)).to_pylist()
        expected = oracle([row for row in rows if not _is_skipped(case.function, row, case.values.type)])
        if not _equal(result, expected):
            raise LawBroken(f"{case.function.name} breaks the law 'oracle': {result!r} where {expected!r} is exact")


def _is_skipped(function: Function, row: Any, dtype: pa.DataType) -> bool:
    """Return whether a row is null, or null in an input that has to be there."""
    if row is None or len(function.inputs) == 1:
        return row is None
    return len(function.drop_null(Values(pa.array([row], dtype), Groups.single(1)))) == 0


def _equal(result: Any, expected: Any) -> bool:
    """Compare by ``==``; NaN equals NaN, and the sign of zero counts, also inside lists, tuples and structs."""
    if isinstance(result, dict) and isinstance(expected, dict):
        return result.keys() == expected.keys() and all(_equal(result[key], expected[key]) for key in result)
    if isinstance(result, list | tuple) and isinstance(expected, list | tuple):
        return len(result) == len(expected) and all(map(_equal, result, expected))
    if isinstance(result, float) and isinstance(expected, float):
        return repr(result) == repr(expected)
    return bool(result == expected)


def _same(given: pa.Array, wanted: pa.Array, where: str = "") -> None:
    if not same_bits(given, wanted):
        row = next(
            (i for i in range(min(len(given), len(wanted))) if not same_bits(given[i : i + 1], wanted[i : i + 1])), 0
        )
        pair = [column[row].as_py() if row < len(column) else None for column in (given, wanted)]
        raise LawBroken(f"{where + ': ' if where else ''}row {row} is {pair[0]!r}, and should be {pair[1]!r}")


def _refuses(call: Callable[[], Any], what: str) -> None:
    try:
        call()
    except ValueError:
        return
    raise LawBroken(f"{what} were merged instead of refused")
