"""Oracles: functions that compute the exact result of one group independently, and the comparison with results."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from aggr.function import Function
from aggr.groups.groups import Groups
from aggr.testing.cases import Case
from aggr.testing.harness import LawBroken

Oracle = Callable[[list[Any]], Any]


def compare_with_oracle(oracle: Oracle, case: Case) -> None:
    """Compare the result of each group with that of the oracle.

    Parameters
    ----------
    oracle : function of a list of values
    case : Case

    Raises
    ------
    LawBroken
        For the first result that differs.
    """
    for group, result in enumerate(case.function.finish(case.states).to_pylist()):
        expected = oracle(_rows_of(case, group).to_pylist())
        if not _agree(result, expected, error=0.0):
            raise LawBroken(
                f"{case.function.name} breaks the law 'oracle': the result is {result!r}, and the exact "
                f"result is {expected!r}"
            )


def compare_with_exact(case: Case, case_description: str = "") -> int:
    """Compare the result of each group with ``function.exact(rows)``, if the function declares it.

    Parameters
    ----------
    case : Case
        If the function declares ``relative_error``, numbers may differ by that share of the exact number.
    case_description : str
        A description of the case, for the error message.

    Returns
    -------
    int
        The number of groups with rows that were compared. Groups for which ``exact`` raises ``ArithmeticError`` or
        ``ValueError``, such as the mean of no rows, are left out.

    Raises
    ------
    LawBroken
        For the first result that differs.
    """
    exact = getattr(case.function, "exact", None)
    if exact is None:
        return 0
    compared = 0
    error = getattr(case.function, "relative_error", 0.0)
    for group, result in enumerate(case.function.finish(case.states).to_pylist()):
        rows = _rows_of(case, group)
        try:
            expected = exact(rows)
        except (ArithmeticError, ValueError):
            continue
        compared += bool(len(rows))
        if not _agree(result, expected, error):
            within = f", with a relative error of at most {error:g}" if error else ""
            raise LawBroken(
                f"{case.function.name} breaks the law 'exact'{case_description}: the result is {result!r}, and must be "
                f"that of exact(rows), {expected!r}{within}"
            )
    return compared


def _rows_of(case: Case, group: int) -> pa.Array:
    """Return the rows of a group, without the rows that the function skips because they contain null."""
    rows = case.values.filter(pa.array(case.groups.ids == group))
    return case.function.drop_null(case.function.grouped(rows, Groups.single(len(rows)))).array


def _agree(result: Any, expected: Any, error: float) -> bool:
    """Return whether a result equals the expected value.

    If ``error`` is not 0, finite numbers may differ by this share of the expected number. Other floats are compared by
    their ``repr``, so that NaN equals NaN and zeros of different signs differ. All other values are compared by ``==``.
    The elements of lists, tuples, structs and maps are compared in the same way.
    """
    if isinstance(result, dict) and isinstance(expected, dict):
        return result.keys() == expected.keys() and all(_agree(result[key], expected[key], error) for key in result)
    if _is_sequence(result) and _is_sequence(expected):
        pairs = zip(result, expected, strict=False)
        return len(result) == len(expected) and all(_agree(left, right, error) for left, right in pairs)
    if error and _is_real(result) and _is_real(expected):
        return bool(abs(result - expected) <= error * abs(expected))
    if isinstance(result, float) and isinstance(expected, float):
        return repr(result) == repr(expected)
    return bool(result == expected)


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _is_real(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def has_exact(function: Function) -> bool:
    """Return whether a function declares ``exact(rows)``."""
    return getattr(function, "exact", None) is not None
