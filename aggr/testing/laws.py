"""The laws that every function must obey, as checks for built-in and user-defined functions.

>>> from aggr import Sum
>>> check(Sum(), pa.float64(), rounds=5)

Equality means equality of bits. Every law is checked with edge cases (`aggr.testing.edge_cases`), with empty input,
with nulls only, with one row, and with groups without rows. A broken law raises `LawBroken`, which names the law. The
laws themselves are in `state_laws`, `result_laws`, `memory_laws` and `declaration_laws`. The comparisons with exact
results are in `oracles`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from aggr.arrow.bit_equality import digest
from aggr.function import Function
from aggr.groups.groups import Groups
from aggr.testing.cases import (
    TYPES,
    Case,
    Source,
    draw_accepted,
    draw_ordinary,
    input_types,
    last_rejection,
    require_same_bits,
    select_accepted_edge_cases,
)
from aggr.testing.declaration_laws import (
    copies,
    reading_parameters,
    refusal,
    state_parameters,
    subtraction,
    versions,
    weights,
)
from aggr.testing.harness import LawBroken, check_laws
from aggr.testing.kept_states import check_kept_states
from aggr.testing.memory_laws import neighbours, repeats, slices, threads
from aggr.testing.oracles import Oracle, compare_with_exact, compare_with_oracle, has_exact
from aggr.testing.other_process import digests_of_other_process, is_importable
from aggr.testing.parameter_laws import other_parameters
from aggr.testing.parameter_values import check_parameters
from aggr.testing.result_laws import accessors, edges
from aggr.testing.state_laws import (
    any_order,
    any_tree,
    exact_type,
    identity,
    isolated_results,
    isolation,
    no_groups,
    null_is_identity,
    purity,
    single_rows,
    tower,
    travel,
)

__all__ = ["LAWS", "TYPES", "LawBroken", "check"]

LAWS: dict[str, Callable[[Case], None]] = {
    law.__name__: law
    for law in (
        neighbours, repeats, slices, no_groups, tower, identity, any_order, any_tree, single_rows, null_is_identity,
        isolation, purity, exact_type, travel, refusal, isolated_results, versions, reading_parameters,
        state_parameters, other_parameters, copies, weights, subtraction, accessors, edges,
    )
}  # fmt: skip
_LAWS_OF_MANY_ROWS = (
    repeats, tower, identity, any_order, any_tree, single_rows, isolation, isolated_results, reading_parameters,
)  # fmt: skip
_FEW_ROWS = 60
_MANY_ROWS = 4_000
# more rows than a number of 16 bits can count
_MAX_ROWS = 70_000
# A parameter that is an integer may be a limit of rows. If the value of the parameter is at most this number, a group
# with more rows than this value is also tried.
_MAX_TRIED_LIMIT = 10_000
# more groups than a number of 16 bits can count
_MANY_GROUPS = 66_000
# the number of randomly drawn groups that are also reduced separately
_SEPARATE_GROUPS = 8


@dataclass(frozen=True)
class _Trial:
    """The arguments of `check`, and a count of the comparisons with exact results."""

    function: Function
    oracle: Oracle | None
    source: Source | None
    seed: int
    parameters: Mapping[str, Sequence[Any]]
    # the number of groups that were compared with ``exact``; in a list, because the dataclass is frozen
    compared: list[int] = field(default_factory=lambda: [0])

    def draw(self, kind: pa.DataType, size: int, seed: int) -> pa.Array | None:
        """Draw values from ``source``. Without ``source``, draw edge cases that the function accepts, or return None if
        the function rejects all kinds of values.
        """
        if self.source is not None:
            return self.source(size, seed)
        return draw_accepted(self.function, kind, size, seed)


def check(
    function: Function,
    input_type: pa.DataType | None = None,
    *,
    oracle: Oracle | None = None,
    source: Source | None = None,
    rounds: int = 30,
    seed: int = 0,
    parameters: Mapping[str, Sequence[Any]] = MappingProxyType({}),
    kept_states: str | Path | None = None,
) -> None:
    """Check all laws for a function with one type of input, or with every type that it takes.

    Parameters
    ----------
    function : Function
        A function may declare ``exact(rows)``, the exact result for one group's values without nulls (an array, or a
        struct array for several inputs). If so, results are compared with it by ``==``, or within the class attribute
        ``relative_error`` if the function declares one.
    input_type : type, optional
        The type of the values that `reduce` receives; a struct for several inputs. Without it, `check` tries every type
        in `TYPES` that the function takes, and also 70,000 distinct rows in a group, 66,000 groups, several threads,
        and a second process with another seed of hashes and another time zone.
    oracle : function of a list of values, optional
        A function that returns the exact result for one group's values without nulls, in Python. The result is compared
        with it by ``==``, also inside lists and structs. NaN equals NaN, and zeros of different signs differ.
    source : function of (size, seed), optional
        A function that draws the values. The default is `aggr.testing.edge_cases.edge_cases` of the type, with less
        extreme values if the function rejects some of them by ``ValueError`` or ``OverflowError``.
    rounds, seed : int
        The number of cases, and the seed of their random values.
    parameters : name -> values, optional
        Values of parameters, by name, with which laws are also checked. Without an ``input_type``, each parameter that
        affects only results needs at least one such value, other than its value in ``function``. For numbers, flags and
        parameters that are annotated with ``typing.Literal``, a guess of `check` suffices. For other texts and for
        tuples, pass a value.
    kept_states : str or Path, optional
        A file that `aggr.testing.kept_states.keep_states` wrote in an earlier release.

    Raises
    ------
    LawBroken
        If a law does not hold. The message names the law and the seed of the case.
    ValueError
        If the function takes none of the types, rejects all values, or has a parameter that affects only results and
        for which no other value can be tried. Also if ``exact`` fails for all groups.

    Guarantee
    ---------
    `check` compares bits. It can detect wrong results only with ``exact`` or an oracle. Without them, a function that
    loses NaN, or rounds integers to doubles, passes. An accessor with a parameter is called with values of the rows,
    and with 0.5, 1 and "a"; arguments that it rejects are left out.
    """
    trial = _Trial(function, oracle, source=source, seed=seed, parameters=parameters)
    if kept_states is not None:
        check_kept_states(function, kept_states)
    if input_type is not None:
        _check_type(trial, input_type, rounds)
    else:
        _check_all(trial, rounds)
    if has_exact(function) and not trial.compared[0]:
        raise ValueError(
            f"{function.name}.exact(rows) raises an error for all tested rows; correct exact, or pass source, a "
            "function of (size, seed) that returns rows that exact accepts"
        )


def _check_all(trial: _Trial, rounds: int) -> None:
    """Check all laws with every type that the function takes, and with many rows, many groups and another process."""
    check_parameters(trial.function, trial.parameters)
    types = input_types(trial.function)
    if trial.source is not None:
        types = [trial.source(0, trial.seed).type]
    if not types:
        raise ValueError(
            f"{trial.function.name} accepts none of the tested types; pass input_type, the Arrow type of its input"
        )
    accepted = [kind for kind in types if _check_type(trial, kind, max(5, rounds // len(types)))]
    rejected = [kind for kind in types if kind not in accepted]
    if accepted and rejected:
        raise ValueError(
            f"{trial.function.name} takes values of the types {', '.join(map(str, rejected))}, but rejects all that "
            "were tested; leave the types out of takes, or pass input_type or source, a function of (size, seed) that "
            f"returns accepted values{last_rejection(trial.function, rejected[0])}"
        )
    if not accepted:
        function = trial.function
        raise ValueError(
            f"{function.name} rejects all tested values, which had the types {', '.join(map(str, types))}; "
            f"pass source, a function of (size, seed) that returns accepted values{last_rejection(function, types[0])}"
        )
    for kind in dict.fromkeys([accepted[0], accepted[-1]]):
        _check_many_rows(trial, kind)
    _check_max_rows(trial, accepted[0])
    _check_many_groups(trial, accepted[0])
    _check_in_other_process(trial, list(dict.fromkeys([accepted[0], accepted[-1]])))


def _check_type(trial: _Trial, kind: pa.DataType, rounds: int) -> bool:
    """Check every law with values of one type. Return whether the function accepted any of the values."""
    accepted = False
    for number in range(rounds):
        rng = np.random.default_rng((trial.seed, number))
        if number < 3:
            size = number
        else:
            smallest_size = 1 if number % 2 else _FEW_ROWS // 2
            size = int(rng.integers(smallest_size, _FEW_ROWS))
        values = trial.draw(kind, size, trial.seed * 1000 + number)
        if values is None:
            continue
        accepted = accepted or number > 2
        n = int(rng.integers(1, 8))
        # if there are several groups, the last group has no rows
        groups = Groups(rng.integers(0, max(1, n - 1), size).astype(np.intp), n)
        case = Case(trial.function, values, groups, rng=rng, parameters=trial.parameters)
        case_description = f" (seed {trial.seed}, round {number}, type {kind})"
        _check_case(trial, case, laws=tuple(LAWS.values()), case_description=case_description, number=number)
    _check_single_edge_cases(trial, kind)
    return accepted


def _check_single_edge_cases(trial: _Trial, kind: pa.DataType) -> None:
    """Check each edge case of a type as a group of one row."""
    values = select_accepted_edge_cases(trial.function, kind) if trial.source is None else None
    if values is not None:
        case = Case(trial.function, values, Groups.each(len(values)), np.random.default_rng(trial.seed))
        _check_case(
            trial, case, laws=(exact_type, travel), case_description=f" (single edge cases of type {kind})", number=0
        )


def _check_many_rows(trial: _Trial, kind: pa.DataType) -> None:
    """Check thousands of rows in one group and in three groups.

    If a parameter is a number that may be a limit of rows, more rows than this number are also checked.
    """
    numbers = [getattr(trial.function, parameter.name) for parameter in fields(trial.function) if parameter.init]
    limits = [limit for limit in numbers if type(limit) is int and _MANY_ROWS <= 2 * limit <= 2 * _MAX_TRIED_LIMIT]
    for number, size in enumerate([_MANY_ROWS, *(2 * limit + 1 for limit in limits)]):
        for n in (1, 3):
            values = trial.source and trial.source(size, trial.seed + n)
            values = values if values is not None else draw_ordinary(trial.function, kind, size, trial.seed + n)
            if values is None:
                continue
            rng = np.random.default_rng((trial.seed, n))
            groups = Groups(rng.integers(0, n, size).astype(np.intp), n)
            case = Case(trial.function, values, groups, rng=rng, parameters=trial.parameters)
            _check_case(
                trial, case, laws=_LAWS_OF_MANY_ROWS, case_description=f" ({size:,} rows of type {kind})", number=number
            )


def _check_max_rows(trial: _Trial, kind: pa.DataType) -> None:
    """Check the laws `any_order` and `threads` with more than 2^16 rows in one group."""
    values = trial.source and trial.source(_MAX_ROWS, trial.seed)
    values = values if values is not None else draw_ordinary(trial.function, kind, _MAX_ROWS, trial.seed)
    if values is None:
        values = trial.draw(kind, _FEW_ROWS, trial.seed)
    if values is not None:
        case = Case(trial.function, values, Groups.single(len(values)), np.random.default_rng(trial.seed))
        case_description = f" ({len(values):,} rows of type {kind})"
        _check_case(trial, case, laws=(any_order, threads), case_description=case_description, number=0)


def _check_case(
    trial: _Trial, case: Case, *, laws: Sequence[Callable[[Case], None]], case_description: str, number: int
) -> None:
    """Check laws with a case, and compare its results with ``exact`` and with the oracle, if they exist.

    Each law begins with the same random numbers, which depend on the seed and ``number``.
    """
    new_case = partial(_with_new_draws, case, (trial.seed, number, 1))
    check_laws(trial.function.name, laws, new_case, case_description)
    trial.compared[0] += compare_with_exact(case, case_description)
    if trial.oracle is not None:
        compare_with_oracle(trial.oracle, case)


def _with_new_draws(case: Case, seed: tuple[int, ...]) -> Case:
    return replace(case, rng=np.random.default_rng(seed))


def _check_many_groups(trial: _Trial, kind: pa.DataType) -> None:
    """Check that states and results do not depend on the number of groups.

    Some of 66,000 groups are also reduced, merged and finished separately.
    """
    function = trial.function
    name = trial.function.name
    row_values = trial.draw(kind, _FEW_ROWS, trial.seed)
    if row_values is None:
        return
    rng = np.random.default_rng(trial.seed)
    values = row_values.take(pa.array(rng.integers(0, _FEW_ROWS, _MANY_GROUPS)))
    groups = Groups(rng.permutation(_MANY_GROUPS).astype(np.intp), _MANY_GROUPS)
    states = function.reduce(values, groups)
    tested_groups = [0, 255, 256, groups.n - 1, *rng.integers(257, groups.n - 1, _SEPARATE_GROUPS).tolist()]
    repeated_groups = pa.array(np.unique(tested_groups))
    groups_of_both = Groups(np.append(np.arange(groups.n), repeated_groups.to_numpy()), groups.n)
    merged = function.merge(pa.concat_arrays([states, states.take(repeated_groups)]), groups_of_both)
    results = function.finish(states)
    for group in tested_groups:
        row = int(np.flatnonzero(groups.ids == group)[0])
        separate_state = function.reduce(values.slice(row, 1), Groups.single(1))
        try:
            require_same_bits(states.slice(group, 1), separate_state, f"group {group} of {groups.n:,}")
            doubled_state = function.merge(pa.concat_arrays([separate_state, separate_state]), Groups.single(2))
            require_same_bits(
                merged.slice(group, 1), doubled_state, f"group {group} of {groups.n:,}, merged with itself"
            )
            require_same_bits(
                results.slice(group, 1), function.finish(separate_state), f"the result of group {group} of {groups.n:,}"
            )
        except LawBroken as broken:
            raise LawBroken(f"{name} breaks the law 'many_groups': {broken}") from None


def _check_in_other_process(trial: _Trial, kinds: Sequence[pa.DataType]) -> None:
    """Check that another process reduces the same rows to the same states and computes the same results.

    The process has another seed of hashes and another time zone.
    """
    function = trial.function
    if not is_importable(function):
        return
    # A fault, such as a state that depends on the order of a set, changes only some groups. With only a few groups, the
    # states of both processes could be equal by chance.
    rows = 400
    group_count = 25
    candidates = [trial.draw(kind, rows, trial.seed + number) for kind in kinds for number in range(2)]
    if trial.source is None:
        # Ordinary values are added, because all the edge cases above may be null.
        candidates += [draw_ordinary(function, kind, rows, trial.seed) for kind in kinds]
    columns = [values for values in candidates if values is not None]
    groups = Groups(np.arange(rows) % group_count, group_count)
    own_digests = []
    for values in columns:
        states = function.reduce(values, groups)
        own_digests.append([digest(states), digest(function.finish(states))])
    if digests_of_other_process(function, columns, groups) != own_digests:
        raise LawBroken(
            f"{function.name} breaks the law 'other_process': another process, with another PYTHONHASHSEED and "
            "another time zone, reduces the same rows to other states; use neither hash() nor the local time"
        )
