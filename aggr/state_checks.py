"""Checked states: a type for states that are known to be sound, and the checks that tell.

A state from outside is checked once, in full: by `checked`, or by a function's merge and finish. What comes of checked
states is a `CheckedStates` again, and is not looked at a second time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Protocol

import numpy as np
import pyarrow as pa

from aggr.arguments import shortened
from aggr.arrow import compute as pc
from aggr.arrow.bit_equality import same_bits
from aggr.arrow.constant_column import is_constant
from aggr.arrow.damaged_state import DamagedState
from aggr.arrow.normalize import normalize
from aggr.fields import Field
from aggr.groups.groups import type_name
from aggr.parameters import distinct

FUNCTION, VERSION = "function", "version"  # the fields of a state that say whose it is, and in which layout
_READERS: dict[str, tuple[str, frozenset[str]]] = {}  # registered function -> name in its states, and who reads them


@dataclass(frozen=True, slots=True, eq=False)
class CheckedStates:
    """States that need no check: an Arrow column of them, or a table with such columns.

    `checked` gives it, and so does a function's merge of such states. `made_here` is for what Arrow's own bytes have
    carried from one place of a job to the next. It does not travel itself: whoever receives states checks them.
    """

    states: Any

    def column(self, name: str) -> CheckedStates:
        """Choose a column of a table."""
        return CheckedStates(self.states.column(name))

    def __reduce__(self) -> Any:
        """Refuse to be pickled: what comes out of a pickle comes from outside."""
        raise TypeError("checked states do not travel; send their Arrow column, and check it where it comes in")


class Layout(Protocol):
    """What the checks ask of a function."""

    name: ClassVar[str]
    state_name: ClassVar[str]
    version: ClassVar[int]
    earlier_versions: ClassVar[frozenset[int]]

    @property
    def state_fields(self) -> Mapping[str, Field]:
        """The fields of its states."""

    def parameter_columns(self, n: int) -> dict[str, pa.Array]:
        """Repeat the parameters that travel in its states."""

    def check_consistency(self, states: pa.StructArray) -> None:
        """Refuse states whose fields contradict each other."""


def made_here(states: Any) -> CheckedStates:
    """Take states that this very job has reduced or merged with these functions, and that nobody else could change.

    They come from a batch, a level or a phase of the same job; never from a caller, a file or a store.
    """
    return CheckedStates(states)


def arrow_of(states: Any) -> Any:
    """Return the Arrow column or table of states, checked or not."""
    return states.states if isinstance(states, CheckedStates) else states


def checked_like(states: Any, derived: Any) -> Any:
    """Take rows or columns chosen from these very states, an Arrow column or table, for as checked as they are."""
    return CheckedStates(derived) if isinstance(states, CheckedStates) else derived


def checked(function: Layout, states: pa.Array | pa.ChunkedArray) -> CheckedStates:
    """Check a column of states of a function in full; a null is sound.

    Raises ``TypeError`` for what is no Arrow column, ``ValueError`` for states of another function, of unequal
    parameters or of a newer version, `DamagedState` for a field that is impossible or contradicts others.
    """
    column, named = received(function, states)
    check_states(function, column.drop_null() if column.null_count else column, named, in_full=True)
    return CheckedStates(column)


def note_readers(function: str, state_name: str, readers: Iterable[str]) -> None:
    """Note which functions read the states of a registered function, by their names."""
    _READERS[function] = state_name, frozenset(readers)


def forget_readers(function: str) -> None:
    """Forget what `note_readers` has noted of a function that is no longer registered."""
    _READERS.pop(function, None)


def _reads(function: str, state_name: str) -> bool:
    return any(name == state_name and function in readers for name, readers in _READERS.values())


def received(function: Layout, states: pa.Array | pa.ChunkedArray) -> tuple[pa.Array, bool]:
    """Take a column of states as one array; refuse what is none, or whose buffers lead out of bounds.

    Say also whether each state is known to name this function: it was looked at on the way.
    """
    if not isinstance(states, pa.Array | pa.ChunkedArray):
        raise TypeError(f"{function.name}: states are an Arrow column; got {type_name(states)}")
    try:
        named = _validate(function, states)
    except pa.ArrowException:
        raise DamagedState(f"a damaged state of {function.name}: the column leads out of its bounds") from None
    return states if isinstance(states, pa.StructArray) else normalize(states), named


def _validate(function: Layout, states: pa.Array | pa.ChunkedArray) -> bool:
    """Validate in full what has offsets; numbers, and the function's own name in each row, need no second look."""
    if not isinstance(states, pa.StructArray):
        states.validate(full=True)
        return False
    states.validate()
    named = states.type.get_field_index(FUNCTION) >= 0 and is_constant(
        states.field(FUNCTION), name_array(function.state_name)
    )
    for i, field in enumerate(states.type):
        if not pa.types.is_primitive(field.type) and not (named and field.name == FUNCTION):
            states.field(i).validate(full=True)
    return named


def check_states(function: Layout, states: pa.StructArray, named: bool, *, in_full: bool) -> None:
    """Refuse states, none null, that a function cannot merge and finish; their names only if they are not known.

    Without ``in_full``, fields are checked as far as their checked merge, or reader, leaves it to others.
    """
    fields, mine = function.state_fields, function.parameter_columns(1)
    is_struct = pa.types.is_struct(states.type)
    for name in (FUNCTION, VERSION, *mine, *fields):
        if not is_struct or states.type.get_field_index(name) < 0:
            raise ValueError(f"these are not states of {function.name}: no field {name!r} in {states.type}")
    if not named:
        _check_names(function, states.field(FUNCTION))
    _check_versions(function, states.field(VERSION))
    for name, value in mine.items():
        _check_parameter(function, name, states.field(name), value)
    for name, field in fields.items():
        try:
            (field.check if in_full else field.check_first)(states.field(name))
        except DamagedState as damage:
            raise damaged_field(function.name, name, damage) from None
    try:
        function.check_consistency(states)
    except DamagedState as damage:
        raise DamagedState(f"a damaged state of {function.name}: {damage}") from None


def damaged_field(function: str, field: str, damage: DamagedState) -> DamagedState:
    """Make the error for a damaged field, by the names of the function and the field."""
    return DamagedState(f"a damaged state of {function}: its field {field!r} {damage}")


def _check_names(function: Layout, names: pa.Array) -> None:
    """Comparing all names with the one expected costs less than telling them apart."""
    for other in [] if is_constant(names, name_array(function.state_name)) else pc.unique(names).to_pylist():
        if other != function.state_name and not _reads(function.name, other):
            raise ValueError(f"these are states of {other}, not of {function.name}; read them with {other}")


def _check_versions(function: Layout, versions: pa.Array) -> None:
    if not pa.types.is_integer(versions.type) or versions.null_count:
        raise DamagedState(f"a damaged state of {function.name}: it has no version")
    numbers = versions.to_numpy()
    if (numbers == function.version).all():
        return
    if numbers.min() < 1:
        raise DamagedState(f"a damaged state of {function.name}: its version is {numbers.min()}")
    if numbers.max() > function.version:
        raise ValueError(
            f"a {function.name} state has version {numbers.max()}, and this release reads up to {function.version}; "
            "upgrade tiltframe"
        )
    if unread := set(np.unique(numbers).tolist()) - {function.version, *function.earlier_versions}:
        raise ValueError(
            f"a {function.name} state has version {min(unread)}, and this one reads version {function.version}; "
            "roll the rows up again, or read the states with the release that wrote them"
        )


def _check_parameter(function: Layout, name: str, column: pa.Array, mine: pa.Array) -> None:
    """Refuse states of another value of a parameter; ``mine`` is one row."""
    if is_constant(column, mine):
        return
    try:
        values = distinct(name, column, mine.type)
    except ValueError as error:
        raise ValueError(f"these are not states of {function.name}: {error}") from None
    for other in values:
        if not same_bits(pa.repeat(other, 1), mine):
            raise ValueError(
                f"states of {function.name} with {name}={shortened(str(other))} cannot be merged or read as "
                f"{name}={shortened(str(mine[0]))}; "
                f"use the same {name} everywhere"
            )


@lru_cache(maxsize=512)
def name_array(name: str) -> pa.Array:
    """Return the name of a function as an array of one."""
    return pa.array([name])
