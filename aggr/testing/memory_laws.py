"""Laws of memory: a function does not change the arrays that it shares with other functions, and does not read rows
outside its input.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa

from aggr.arrow.bit_equality import digest
from aggr.arrow.normalize import is_number
from aggr.groups.groups import Groups
from aggr.testing.cases import WRITE_MESSAGE, Case, is_write_error, require_same_bits
from aggr.testing.harness import LawBroken, require
from aggr.values import Values

_THREADS = 4
# the number of times that each set of rows is reduced
_REPEATS = 6
# the interval in seconds after which Python switches threads; Python's default is 5 ms
_SHORT_INTERVAL = 1e-5


def neighbours(case: Case) -> None:
    """Reducing does not change the arrays that other measures share: values, values as doubles, groups and weights."""
    _check_unchanged(case, case.function.grouped(case.values, case.groups))
    without_nulls = case.function.drop_null(case.function.grouped(case.values, case.groups))
    # The check is repeated with a column without nulls. If a column has nulls, the function receives a filtered copy. A
    # function that writes into this copy does not change the column, so the first check passes.
    _check_unchanged(case, without_nulls)
    if case.function.takes_weights:
        weights = pa.array(case.rng.integers(1, 2**10, len(case.values)))
        _check_unchanged(case, case.function.drop_null(case.function.grouped(case.values, case.groups, weights)))


def _check_unchanged(case: Case, shared: Values) -> None:
    """Raise `LawBroken` if reducing ``shared`` changes the values, the values as doubles, the groups or the weights."""
    before = digest(shared.array)
    ids = shared.groups.ids.copy()
    counts = np.bincount(ids, minlength=shared.groups.n)
    numeric = len(case.function.inputs) == 1 and is_number(shared.array.type)
    doubles = _doubles(shared) if numeric else None
    weights = None if shared.weights is None else shared.weights.copy()
    try:
        case.function.reduce(shared)
    except ValueError as error:
        if is_write_error(error):
            raise LawBroken(WRITE_MESSAGE) from error
        raise
    require(
        np.array_equal(shared.groups.ids, ids),
        "reduce changed the group ids, which other measures also read; copy them first",
    )
    require(
        np.array_equal(shared.groups.counts(), counts),
        "reduce changed the rows per group, which other measures also read; copy them first",
    )
    require(
        digest(shared.array) == before,
        "reduce changed the values of the column, which other measures also read; copy them first",
    )
    if weights is not None and shared.weights is not None:
        require(
            np.array_equal(shared.weights, weights),
            "reduce changed the weights, which other measures also read; copy them first",
        )
    if doubles is not None:
        require(
            np.array_equal(_doubles(shared), doubles, equal_nan=True),
            "reduce changed the converted values of the column, which other measures also read; copy them first",
        )


def _doubles(values: Values) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return values.present.floats.array.copy()


def slices(case: Case) -> None:
    """A slice of a longer array gives the same state as a copy of its rows, with and without nulls."""
    plain = case.function.grouped(case.values, case.groups)
    for values in (plain, case.function.drop_null(plain)):
        longer = pa.concat_arrays([values.array[::-1], values.array])
        sliced = Values(longer.slice(len(values.array)), values.groups)
        require_same_bits(
            case.function.reduce(sliced), case.function.reduce(Values(values.array, values.groups)), "a slice"
        )


def threads(case: Case) -> None:
    """Threads that reduce different rows at the same time do not affect each other's states and results."""
    halves = [case.values, case.values[: len(case.values) // 2], case.values[len(case.values) // 2 :]]
    groups = [Groups(np.arange(len(rows), dtype=np.intp) % case.groups.n, case.groups.n) for rows in halves]
    # Threads that run at the same time have different rows, because an array that is overwritten by the same rows does
    # not change.
    work = [*zip(halves, groups, strict=True)] * _REPEATS

    def reduce_and_finish(rows: pa.Array, row_groups: Groups) -> tuple[str, str]:
        states = case.function.reduce(rows, Groups(row_groups.ids.copy(), row_groups.n))
        return digest(states), digest(case.function.finish(states))

    expected = [reduce_and_finish(rows, row_groups) for rows, row_groups in work]
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SHORT_INTERVAL)
    try:
        with ThreadPoolExecutor(_THREADS) as pool:
            actual = list(pool.map(reduce_and_finish, *zip(*work, strict=True)))
    finally:
        sys.setswitchinterval(before)
    require(actual == expected, "rows that several threads reduce at the same time give other states than alone")


def repeats(case: Case) -> None:
    """The same rows always give the same state, independent of clocks, random numbers and earlier calls."""
    states = case.states
    for _ in range(3):
        require_same_bits(case.states, states, "reducing the same rows again")
    require_same_bits(
        case.function.reduce(case.values, Groups(case.groups.ids.copy(), case.groups.n)), states, "a copy of groups"
    )
