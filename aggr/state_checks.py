"""Checked states: a type for states that are known to be undamaged, and the checks that establish this.

States that a caller passes, or that were read from a file or a store, are checked once and completely, by `checked` or
by a function's merge and finish. States that are derived from `CheckedStates` are `CheckedStates` as well, and are not
checked again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from aggr.arguments import shortened, shown
from aggr.arrow import compute as pc
from aggr.arrow.bit_equality import same_bits
from aggr.arrow.constant_column import is_constant
from aggr.arrow.damaged_state import DamagedState, damaged_state
from aggr.arrow.normalize import normalize
from aggr.fields import Field
from aggr.groups.groups import type_name
from aggr.parameters import distinct_values

# the field of a state that contains the name of the state
FUNCTION = "function"
# the field of a state that contains the version of its layout
VERSION = "version"


@dataclass(frozen=True, slots=True, eq=False)
class CheckedStates:
    """States that need no check: an Arrow column of states, or a table with such columns.

    `checked` returns `CheckedStates`, and so does a function's merge if its argument is `CheckedStates`.
    `mark_as_checked` is for states that one part of a job has sent to another part as Arrow bytes. `CheckedStates`
    cannot be pickled, because a process that receives states must check them.
    """

    states: Any

    def column(self, name: str) -> CheckedStates:
        """Return a column of a table as `CheckedStates`."""
        return CheckedStates(self.states.column(name))

    def __reduce__(self) -> Any:
        """Raise ``TypeError``. A pickle could be changed before it is read, so its states would have to be checked."""
        raise TypeError(
            "checked states cannot be pickled; send their Arrow column, and check it again in the receiving process"
        )


class Layout(Protocol):
    """The part of the interface of `aggr.state.State` that the checks use."""

    @property
    def name(self) -> str:
        """The name of the state, which is stored in each row."""

    @property
    def version(self) -> int:
        """The version of the layout that is written."""

    @property
    def versions(self) -> tuple[int, ...]:
        """The versions of the layout that can be read."""

    @property
    def fields(self) -> Mapping[str, Field]:
        """The fields of the state, by name."""

    @property
    def optional_parameters(self) -> Mapping[str, pa.DataType]:
        """The parameters that are stored only if they differ from their defaults."""

    def parameter(self, name: str) -> Any:
        """Return the value of a parameter."""

    def parameter_columns(self, n: int) -> dict[str, pa.Array]:
        """Return the parameters as columns, in the form in which states store them."""

    def check_consistency(self, states: pa.StructArray) -> None:
        """Raise `DamagedState` if fields of a state contradict each other."""


class StateReader(Protocol):
    """A function or a state that reads states: the part of its interface that the checks use."""

    @property
    def name(self) -> str:
        """The name of the function or state, for errors."""

    @property
    def reads(self) -> Sequence[Layout]:
        """Other states that are accepted, because they contain the function's own state."""


class FunctionOfStates(StateReader, Protocol):
    """The part of the interface of a function that `checked` uses: a `StateReader` with a state of its own."""

    @property
    def own_state(self) -> Layout:
        """The state of the function."""


def mark_as_checked(states: Any) -> CheckedStates:
    """Return states as `CheckedStates`, without a check.

    The caller guarantees that the current job has reduced or merged the states, for example in an earlier batch, level
    or phase, and that no other program had access to them. States from a caller, a file or a store must not be passed.
    """
    return CheckedStates(states)


def arrow_of(states: Any) -> Any:
    """Return the Arrow column or table of states, checked or not."""
    return states.states if isinstance(states, CheckedStates) else states


def checked_like(states: Any, derived: Any) -> Any:
    """Return ``derived`` as `CheckedStates` if ``states`` are checked. ``derived`` are rows or columns that were
    selected from ``states``.
    """
    return CheckedStates(derived) if isinstance(states, CheckedStates) else derived


def checked(function: FunctionOfStates, states: pa.Array | pa.ChunkedArray) -> CheckedStates:
    """Check a column of a function's states completely, and return it as `CheckedStates`. Nulls are allowed.

    Raises ``TypeError`` if ``states`` is not an Arrow column, ``ValueError`` for states of another function, with other
    parameters or of a newer version, and `DamagedState` for a field that is impossible or contradicts other fields.
    """
    state = function.own_state
    column, has_expected_name = validated_column(state, states, function)
    check_states(
        state, column.drop_null() if column.null_count else column, function, has_expected_name, is_complete=True
    )
    return CheckedStates(column)


def validated_column(state: Layout, states: pa.Array | pa.ChunkedArray, reader: StateReader) -> tuple[pa.Array, bool]:
    """Return a column of states as one array, and whether all rows are known to have the name of ``state``.

    Raises ``TypeError`` if ``states`` is not an Arrow column, and `DamagedState` if offsets or indices in it are out of
    bounds.
    """
    if not isinstance(states, pa.Array | pa.ChunkedArray):
        raise TypeError(
            f"{reader.name}: states must be an Arrow column; got {type_name(states)}; pass the column that reduce or "
            "merge returned"
        )
    try:
        has_expected_name = _validate(state, states)
    except pa.ArrowException:
        raise damaged_state(reader.name, "the offsets of the column point outside its data") from None
    return states if isinstance(states, pa.StructArray) else normalize(states), has_expected_name


def _validate(state: Layout, states: pa.Array | pa.ChunkedArray) -> bool:
    """Validate the buffers of a column of states; return whether all rows have the name of ``state``.

    Columns with offsets, such as lists and texts, are validated completely. Numbers have no offsets, and a column of
    names that are all equal to the name of ``state`` is known to be valid, so these columns are not validated.
    """
    if not isinstance(states, pa.StructArray):
        states.validate(full=True)
        return False
    states.validate()
    has_expected_name = states.type.get_field_index(FUNCTION) >= 0 and is_constant(
        states.field(FUNCTION), name_array(state.name)
    )
    for i, field in enumerate(states.type):
        if not pa.types.is_primitive(field.type) and not (has_expected_name and field.name == FUNCTION):
            states.field(i).validate(full=True)
    return has_expected_name


def check_states(
    state: Layout, states: pa.StructArray, reader: StateReader, has_expected_name: bool, *, is_complete: bool
) -> None:
    """Raise an error if states cannot be merged and read. ``states`` must not contain nulls.

    Names are checked unless ``has_expected_name`` is true. If ``is_complete`` is true, each field is checked completely
    by `Field.check`. Otherwise, only `Field.check_before_merge` is called here. The remaining checks are made when the
    caller merges the fields with `Field.merge_checked`, or computes results from them.
    """
    fields = state.fields
    parameters = state.parameter_columns(1)
    is_struct = pa.types.is_struct(states.type)
    if state.optional_parameters and is_struct:
        _check_optional(state, states, parameters, reader.name)
    for name in (FUNCTION, VERSION, *parameters, *fields):
        if not is_struct or states.type.get_field_index(name) < 0:
            raise ValueError(
                f"these are not states of {reader.name}: they have no field {name!r}, and their type is "
                f"{shown(states.type)}; pass states that {reader.name} has reduced or merged"
            )
    if not has_expected_name:
        _check_names(state, states.field(FUNCTION), reader)
    _check_versions(state, states.field(VERSION), reader.name)
    for name, value in parameters.items():
        _check_parameter(reader.name, name, states.field(name), value)
    for name, field in fields.items():
        try:
            (field.check if is_complete else field.check_before_merge)(states.field(name))
        except DamagedState as damage:
            raise damaged_field(reader.name, name, damage) from None
    try:
        state.check_consistency(states)
    except DamagedState as damage:
        raise damaged_state(reader.name, damage) from None


def damaged_field(function: str, field: str, damage: DamagedState) -> DamagedState:
    """Return the error for a damaged field, with the names of the function and the field."""
    return damaged_state(function, f"its field {field!r} {damage}")


def _check_names(state: Layout, names: pa.Array, reader: StateReader) -> None:
    """Raise ``ValueError`` for a name that is neither the name of ``state`` nor of a state in ``reader.reads``."""
    # Usually all names are equal to the name of ``state``. This comparison is faster than listing the distinct names.
    if is_constant(names, name_array(state.name)):
        return
    for name in pc.unique(names).to_pylist():
        if name != state.name and name not in [state_in_reads.name for state_in_reads in reader.reads]:
            raise ValueError(f"these are states of {name}, not of {reader.name}; read them with {name}")


def _check_versions(state: Layout, versions: pa.Array, reader_name: str) -> None:
    """Raise `DamagedState` for versions that no release has written, and ``ValueError`` for versions that this release
    cannot read.
    """
    if not pa.types.is_integer(versions.type) or versions.null_count:
        raise damaged_state(reader_name, "it has no version")
    numbers = versions.to_numpy()
    if (numbers == state.version).all():
        return
    if numbers.min() < 1:
        raise damaged_state(reader_name, f"its version is {numbers.min()}, and versions begin with 1")
    if numbers.max() > state.version:
        raise ValueError(
            f"a {reader_name} state has version {numbers.max()}, and this release can read versions up to "
            f"{state.version}; upgrade tiltframe"
        )
    if unreadable := set(np.unique(numbers).tolist()) - set(state.versions):
        raise ValueError(
            f"a {reader_name} state has version {min(unreadable)}, and this release can read only version "
            f"{state.version}; roll up the rows again, or read the states with the release that wrote them"
        )


def _check_parameter(reader_name: str, name: str, column: pa.Array, expected: pa.Array) -> None:
    """Raise ``ValueError`` for states whose parameter ``name`` differs from ``expected``, an array with one row.

    ``column`` has the parameter of each state, and ``reader_name`` is the name of the function in the message.
    """
    if is_constant(column, expected):
        return
    try:
        values = distinct_values(name, column, expected.type)
    except ValueError as error:
        raise ValueError(
            f"these are not states of {reader_name}: {error}; pass states that {reader_name} has reduced or merged"
        ) from None
    for value in values:
        if not same_bits(pa.repeat(value, 1), expected):
            raise ValueError(
                f"states of {reader_name} with {name}={shortened(str(value))} cannot be merged or read as "
                f"{name}={shortened(str(expected[0]))}; "
                f"use the same value of {name!r} everywhere"
            )


def _check_optional(
    state: Layout, states: pa.StructArray, parameters: Mapping[str, pa.Array], reader_name: str
) -> None:
    """Raise ``ValueError`` if states lack an optional parameter of ``state``, or store one that ``state`` does not
    have.
    """
    for name in state.optional_parameters:
        is_stored = states.type.get_field_index(name) >= 0
        if is_stored == (name in parameters) or (is_stored and not len(states)):
            continue
        stored_value = shortened(str(states.field(name)[0])) if is_stored else getattr(type(state), name)
        raise ValueError(
            f"states of {reader_name} with {name}={stored_value} cannot be merged or read as "
            f"{name}={state.parameter(name)}; use the same value of {name!r} everywhere"
        )


@lru_cache(maxsize=512)
def name_array(name: str) -> pa.Array:
    """Return the name of a state as an array with one row."""
    return pa.array([name])
