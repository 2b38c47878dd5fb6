"""States of groups of rows: how they are reduced, merged, subtracted, checked and stored in columns.

A state is one row of an Arrow struct column. A `State` defines the fields of such a row, each with the operation that
merges it (`aggr.fields`), the parameters that the row depends on, and the version of its layout. Functions compute
results from states. A row consists of the name of the state (``function``), the version of its layout, its parameters
(here ``max``) and its fields (here ``values``):

    function   version   max     values
    "collect…"     1     10000   [1, 4, 9]
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, ClassVar, overload

import numpy as np
import pyarrow as pa

from aggr.arguments import shown
from aggr.arrays import Flags, Ids, Whole
from aggr.arrow import compute as pc
from aggr.arrow.bit_equality import same_bits
from aggr.arrow.constant_column import repeat_value
from aggr.arrow.damaged_state import DamagedState, damaged_state
from aggr.arrow.normalize import one_array
from aggr.excluded_counts import ExcludedCounts
from aggr.fields import ROWS_NOT_IN_STATE, CannotSubtract, Field, refuse_where
from aggr.groups.groups import Groups, check_groups
from aggr.parameters import repeated
from aggr.state_checks import (
    FUNCTION,
    VERSION,
    CheckedStates,
    StateReader,
    check_states,
    damaged_field,
    mark_as_checked,
    name_array,
    validated_column,
)
from aggr.values import Values

CANNOT_SUBTRACT = (
    "rows cannot be subtracted from {}, because these states lack the data for a subtraction; reduce the remaining rows"
)
# The maximum number of rows that are reduced together. Each row adds less than 2^36 to a digit of an exact sum, and
# digits are int64, so more than 2^27 rows could overflow.
_MAX_ROWS = 1 << 24


class State(ABC):
    """The layout and the operations of states: a frozen dataclass whose fields are the parameters that states depend
    on.

    Two functions share a column of states if their states are equal. A `PlainState` has no parameters.

    Attributes that a state sets
    ----------------------------
    name : the name of the function that defines the state; each row contains this name
    fields : name -> the field, which merges its part of the states
    parameters : name -> Arrow type, for the dataclass fields. Each row contains their values, and stored states with
        other values raise an error
    optional_parameters : name -> Arrow type, for dataclass fields that are stored, and are among ``parameters``, only
        if they differ from their default; a stored state without such a parameter has the default
    optional_fields : names of the fields that only states with optional parameters have
    versions : the versions of layouts that can be read, ascending; the last one is written. Stored states of other
        versions raise an error
    counted_by : names of the fields that together count a state's rows, each row in exactly one field; rows can be
        subtracted from a state only if it has such fields and each field implements ``subtract``
    merges_by_field : whether each field is merged separately; False if `align` must convert several fields first
    rank : if a measure can be read from several states, a frame keeps the one with the highest rank, and the first
        one of equal ranks; the rank must not change, because stored frames depend on it

    Guarantee
    ---------
    ``merge`` returns the state that ``reduce`` would return for all rows, bit for bit, in any order and any tree of
    merges, provided that the same is true for each field.
    """

    name: str
    optional_parameters: ClassVar[Mapping[str, pa.DataType]] = {}
    optional_fields: ClassVar[tuple[str, ...]] = ()
    versions: ClassVar[tuple[int, ...]] = (1,)
    merges_by_field: ClassVar[bool] = True
    # Other states that contain the fields of this state, and are accepted in place of it; see `aggr.Function.reads`.
    reads: ClassVar[tuple[State, ...]] = ()

    # The attributes and methods that a state declares.

    @property
    def parameters(self) -> Mapping[str, pa.DataType]:
        """The Arrow types of the parameters that are stored in each row, by name.

        Stored states whose parameters have other values raise an error.
        """
        return {}

    @property
    @abstractmethod
    def fields(self) -> Mapping[str, Field]:
        """The fields of the state, by name."""

    @property
    def counted_by(self) -> tuple[str, ...]:
        """The names of the fields that together count the rows; empty if rows cannot be subtracted from a state."""
        return ()

    @property
    def rank(self) -> int:
        """The preference for this state, if a measure can be read from several states.

        A frame keeps the state with the highest rank.
        """
        return 0

    def reduce_values(self, values: Values) -> Mapping[str, pa.Array]:
        """Reduce grouped values to the fields of one state per group. By default, each field reduces the values
        separately.

            values.array         5   2  13   4        four rows, none null
            values.groups.ids    0   1   0   1        of values.groups.n = 3 groups

            low                  5   2  null          a row for each group; the identity for a group without rows
            high                13   4  null

        `reduce` calls this method after types and lengths were checked, dictionaries decoded, chunks joined and nulls
        removed. Implementations should not loop over rows or groups in Python, but use fields, numpy or
        `aggr.extend.compiled`, which process all rows at once.

        Parameters
        ----------
        values : Values
            ``values.array`` has a plain type. For a function with several inputs it is a struct, whose fields are
            ``values.field(name)``. ``values.floats``, ``values.counts`` and ``values.exact_sum`` are computed only
            once, even if several states are reduced from the same column. If the function ``takes_weights``,
            ``values.weights`` may contain the number of rows that each row represents, as int64 from 1. The state must
            then have the same bits as for the repeated rows.

        Returns
        -------
        name -> array, shape (values.groups.n,)
            The fields, with the names in `fields`.

        Raises
        ------
        ValueError
            If a value is invalid; the message contains the value, the allowed values, and how to correct it.
        OverflowError
            If the sum of a group's weights exceeds int64.
        """
        return {name: field.reduce(values) for name, field in self.fields.items()}

    def beyond_limit(self, states: pa.StructArray) -> Flags | None:
        """Return a mask of the states whose group has more values than an absorbing limit allows. By default, a state
        has no such limit.

        If a group exceeds an absorbing limit, its state and all states that are merged from it are marked as beyond the
        limit, and have a null result. Other limits raise an error instead.

        Parameters
        ----------
        states : column of states, shape (rows,)
            States without nulls, which have been checked.

        Returns
        -------
        array of bool, shape (rows,), or None
            None if no state exceeds a limit.
        """
        return None

    def excluded_counts(self, states: pa.StructArray) -> ExcludedCounts:
        """Return the numbers of groups and values that are missing in the result of each state, for reports.

        By default, a state counts as one missing group if `beyond_limit` marks it, and no values are missing. A state
        that contains states of other functions adds up their numbers.

        Parameters
        ----------
        states : column of states, shape (rows,)
            States without nulls, which have been checked.

        Returns
        -------
        ExcludedCounts
        """
        is_beyond_limit = self.beyond_limit(states)
        return ExcludedCounts(None if is_beyond_limit is None else is_beyond_limit.astype(np.int64), None)

    def check_consistency(self, states: pa.StructArray) -> None:
        """Raise `DamagedState` if fields of a state contradict each other. Each field was checked before.

        Parameters
        ----------
        states : column of states, shape (rows,)
            States without nulls.

        Raises
        ------
        DamagedState
            If fields contradict each other; the message names them and their values.
        """
        return

    def align(self, states: pa.StructArray, groups: Groups) -> pa.StructArray:
        """Convert the states of each group to a common form before their fields are merged. The method is called only
        if `merges_by_field` is False.

        Parameters
        ----------
        states : column of states, shape (rows,)
            States without nulls.
        groups : Groups
            The groups, with as many rows as ``states``.

        Returns
        -------
        column of states, shape (rows,)

        Raises
        ------
        DamagedState
            If a state is damaged.
        """
        return states

    # The methods that every state inherits.

    def __eq__(self, other: object) -> bool:
        """Return whether two states have the same class, name and parameters."""
        return isinstance(other, State) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    @property
    def _identity(self) -> tuple[Any, ...]:
        return type(self), self.name, *map(self.parameter, self.parameters)

    @property
    def version(self) -> int:
        """The version of the layout that is written."""
        return self.versions[-1]

    def reduce(self, values: Values) -> pa.StructArray:
        """Reduce grouped values to one state per group.

        Parameters
        ----------
        values : Values
            Values without nulls, of a type that the function takes.

        Returns
        -------
        column of states, shape (values.groups.n,)

        Raises
        ------
        ValueError, OverflowError
            For the same reasons as `reduce_values`.
        """
        n = values.groups.n
        if len(values) <= _MAX_ROWS:
            fields = self.reduce_values(values)
            self._check_reduced(fields, n)
            return self.pack(fields, n)
        starts = range(0, len(values), _MAX_ROWS)
        parts = [self.reduce(values.slice(slice(start, start + _MAX_ROWS))) for start in starts]
        groups = Groups(np.tile(np.arange(n), len(parts)), n)
        return self.merge(mark_as_checked(pa.concat_arrays(parts)), groups).states

    @overload
    def merge(self, states: CheckedStates, groups: Groups, reading: StateReader | None = None) -> CheckedStates: ...

    @overload
    def merge(
        self, states: pa.Array | pa.ChunkedArray, groups: Groups, reading: StateReader | None = None
    ) -> pa.StructArray: ...

    def merge(
        self, states: pa.Array | pa.ChunkedArray | CheckedStates, groups: Groups, reading: StateReader | None = None
    ) -> pa.StructArray | CheckedStates:
        """Merge grouped states into one state per group.

        Parameters
        ----------
        states : column of states, shape (rows,)
            States, in which a null counts as an identity. `CheckedStates` are not checked again.
        groups : Groups
            The groups, with as many rows as ``states``.
        reading : Function, optional
            The function to which the states belong. Errors name it, and states in its ``reads`` are accepted.

        Returns
        -------
        column of states, shape (groups.n,)
            The result is `CheckedStates` if ``states`` are.

        Raises
        ------
        TypeError
            If ``states`` is not an Arrow column, or ``groups`` not `Groups`.
        ValueError
            If the lengths differ, or the states have another name, other parameters or a version that cannot be read.
            `DamagedState` if a state is damaged.
        """
        reading = reading or self
        is_checked = isinstance(states, CheckedStates)
        column, has_expected_name = (
            (one_array(states.states), True) if is_checked else validated_column(self, states, reading)
        )
        check_groups(reading.name, groups)
        if len(column) != len(groups):
            raise ValueError(
                f"{reading.name}: each state must have one group id; got {len(column)} states and {len(groups)} group "
                "ids"
            )
        if column.null_count:
            groups = groups.filter(column.is_valid().to_numpy(zero_copy_only=False))
            column = column.drop_null()
        # If each group has exactly one state, no fields need to be merged, and the states are only sorted by group.
        is_single = len(groups) == groups.n and bool((groups.counts() == 1).all())
        if not is_checked:
            check_states(self, column, reading, has_expected_name, is_complete=is_single)
        if is_single and (is_checked or self.is_current(column)):
            is_ordered = bool((np.diff(groups.ids) > 0).all())
            merged = column if is_ordered else column.take(pa.array(np.argsort(groups.ids)))
        else:
            merged = self._merge_fields(column, groups, reading.name, is_checked)
        return CheckedStates(merged) if is_checked else merged

    def _merge_fields(self, states: pa.StructArray, groups: Groups, reader: str, is_checked: bool) -> pa.StructArray:
        """Merge the states of each group field by field. The states must have passed `check_states`, or come from
        `CheckedStates`.

        ``is_checked`` is true if the states were `CheckedStates`, whose fields need no further checks. ``reader`` is
        the name of the function in errors.
        """
        merged = {}
        if not self.merges_by_field:
            try:
                states = self.align(states, groups)
            except DamagedState as damage:
                raise damaged_state(reader, damage) from None
        for name, field in self.fields.items():
            try:
                merged[name] = (field.merge if is_checked else field.merge_checked)(states.field(name), groups)
            except DamagedState as damage:
                raise damaged_field(reader, name, damage) from None
        return self.pack(merged, groups.n)

    def is_current(self, states: pa.StructArray) -> bool:
        """Return whether all states have the layout of this release.

        A merge converts states of earlier layouts to this one. If all states are current, and each group has exactly
        one state, `merge` returns the states unchanged.

        Parameters
        ----------
        states : column of states, shape (rows,)
            States without nulls.

        Returns
        -------
        bool
        """
        try:
            merged_type = _merged_type(self, states.type)
        except TypeError:  # a parameter is not hashable, such as a dict, so the type cannot be cached
            merged_type = _merged_type.__wrapped__(self, states.type)
        if states.type != merged_type:
            return False
        versions = states.field(VERSION)
        return pc.all(pc.equal(versions, pa.scalar(self.version, versions.type))).as_py() is not False

    def subtract(
        self,
        states: pa.Array | pa.ChunkedArray,
        subtracted: pa.Array | pa.ChunkedArray,
        reading: StateReader | None = None,
    ) -> pa.StructArray:
        """Subtract states from other states, pair by pair. The results are the states of the remaining input rows.

        Parameters
        ----------
        states : column of states, shape (rows,)
            States, in which a null counts as an identity.
        subtracted : column of states, shape (rows,)
            The states to subtract. At each index, the state in ``states`` must contain all input rows of the state in
            ``subtracted``.
        reading : Function, optional
            See `merge`.

        Returns
        -------
        column of states, shape (rows,)
            The states are bit-for-bit those of the remaining rows.

        Raises
        ------
        TypeError
            If the states have no field that counts their rows. States of min, max, first, last, sets and lists, for
            example, have no such field.
        CannotSubtract
            If a state evidently does not contain the rows to subtract, or the difference cannot be computed.
        ValueError
            For the same reasons as `merge`.
        """
        reading = reading or self
        if not self.counted_by:
            raise TypeError(CANNOT_SUBTRACT.format(f"states of {reading!r}"))
        minuends, subtrahends = (
            self.merge(column, Groups.each(len(column)), reading=reading) for column in (states, subtracted)
        )
        if len(minuends) != len(subtrahends) or minuends.type != subtrahends.type:
            columns = (minuends, subtrahends)
            kinds = " and ".join(f"{len(column)} of type {shown(str(column.type))}" for column in columns)
            raise ValueError(
                f"{reading.name}: subtract needs two columns of states of the same length and type; got {kinds}"
            )
        remaining_counts = self.row_counts(minuends) - self.row_counts(subtrahends)
        refuse_where(remaining_counts < 0, ROWS_NOT_IN_STATE)
        nonempty_rows = np.flatnonzero(remaining_counts)
        empty_rows = np.flatnonzero(remaining_counts == 0)
        _check_equal(minuends.take(pa.array(empty_rows)), subtrahends.take(pa.array(empty_rows)), empty_rows)
        differences = self._subtract_fields(
            minuends.take(pa.array(nonempty_rows)), subtrahends.take(pa.array(nonempty_rows)), nonempty_rows
        )
        zero = self.merge(minuends.slice(0, 0), Groups.of([], 1), reading=reading)
        positions = np.full(len(remaining_counts), len(differences))
        positions[nonempty_rows] = np.arange(len(differences))
        return pa.concat_arrays([differences, zero]).take(pa.array(positions))

    def row_counts(self, states: pa.StructArray) -> Whole:
        """Return the number of rows of each state.

        Parameters
        ----------
        states : column of states, shape (rows,)
            States without nulls.

        Returns
        -------
        array of int64, shape (rows,)
        """
        fields = self.fields
        counts = (fields[name].row_counts(states.field(name)) for name in self.counted_by)
        return sum(counts, np.zeros(len(states), np.int64))

    def _subtract_fields(self, states: pa.StructArray, subtracted: pa.StructArray, rows: Ids) -> pa.StructArray:
        """Subtract states field by field. At least one row must remain in each state after the subtraction.

        ``rows`` contains the row number of each state in the original column, for error messages.
        """
        try:
            fields = {
                name: field.subtract(states.field(name), subtracted.field(name)) for name, field in self.fields.items()
            }
        except CannotSubtract as error:
            raise CannotSubtract(int(rows[error.row]), error.reason) from None
        differences = self.pack(fields, len(states))
        if not self.is_sound(differences):
            first_invalid = next(i for i in range(len(differences)) if not self.is_sound(differences.slice(i, 1)))
            raise CannotSubtract(int(rows[first_invalid]), ROWS_NOT_IN_STATE)
        return differences

    def is_sound(self, states: pa.StructArray) -> bool:
        """Return whether states without nulls pass all checks.

        Parameters
        ----------
        states : column of states, shape (rows,)

        Returns
        -------
        bool
            False if a check raises `DamagedState`.

        Raises
        ------
        ValueError
            If the states have other parameters, or a version that cannot be read.
        """
        try:
            check_states(self, states, self, True, is_complete=True)
        except DamagedState:
            return False
        return True

    def parameter_columns(self, n: int) -> dict[str, pa.Array]:
        """Return the parameters as columns, in the form in which states store them.

        Parameters
        ----------
        n : int
            The number of states.

        Returns
        -------
        dict of name -> array, shape (n,)
            The columns have the types in `parameters`.

        Raises
        ------
        TypeError
            If a parameter has another type.
        """
        return {name: repeated(name, self.parameter(name), dtype, n) for name, dtype in self.parameters.items()}

    def parameter(self, name: str) -> Any:
        """Return the value of a parameter.

        Parameters
        ----------
        name : str
            The name of one of the `parameters`.

        Returns
        -------
        value of its type
        """
        return getattr(self, name)

    def _check_reduced(self, fields: Mapping[str, pa.Array], n: int) -> None:
        """Raise ``TypeError`` unless `reduce_values` has returned the declared fields, each as an array of n rows."""
        names = ", ".join(self.fields)
        if not isinstance(fields, Mapping):
            raise TypeError(
                f"{self.name}: reduce_values returned {shown(fields)}; it must return a dict with the fields {names}"
            )
        if fields.keys() != self.fields.keys():
            raise TypeError(
                f"{self.name}: reduce_values returned the fields {', '.join(fields) or 'none'}, but the state declares "
                f"{names}; return exactly these, or change 'fields' of the state"
            )
        for name, column in fields.items():
            if not isinstance(column, pa.Array | pa.ChunkedArray | np.ndarray):
                raise TypeError(
                    f"{self.name}: reduce_values returned {shown(column)} for the field {name!r}; it must be an Arrow "
                    "array with a row for each group"
                )
            if len(column) != n:
                raise TypeError(
                    f"{self.name}: reduce_values returned {len(column)} rows for the field {name!r}, but there are {n} "
                    "groups; return a row for each group, also for groups without values (numpy.bincount(values."
                    "groups.ids, minlength=values.groups.n))"
                )

    def pack(self, parts: Mapping[str, pa.Array], n: int) -> pa.StructArray:
        """Return a column of states with the fields ``parts``, and with the state's name, version and parameters.

        Parameters
        ----------
        parts : name -> array, shape (n,)
            The fields, with the names in `fields`.
        n : int
            The number of states.

        Returns
        -------
        column of states, shape (n,)
        """
        columns = {
            FUNCTION: repeat_value(name_array(self.name), n),
            VERSION: repeat_value(_one_version(self.version), n),
            **self.parameter_columns(n),
            **{name: parts[name] for name in self.fields},
        }
        return pa.StructArray.from_arrays(list(columns.values()), names=list(columns))


def _check_equal(states: pa.StructArray, subtracted: pa.StructArray, rows: Ids) -> None:
    """Raise `CannotSubtract` if a state differs from the state that is subtracted from it.

    The caller passes only pairs of states with equal row counts, so no row remains after the subtraction. If the two
    states of a pair differ, the rows to subtract are not the rows of the state. ``rows`` contains the row number of
    each state in the original column, for error messages.
    """
    if not same_bits(states, subtracted):
        first = next(i for i in range(len(rows)) if not same_bits(states.slice(i, 1), subtracted.slice(i, 1)))
        raise CannotSubtract(int(rows[first]), ROWS_NOT_IN_STATE)


@lru_cache(maxsize=64)
def _one_version(version: int) -> pa.Array:
    return pa.array([version], pa.int8())


@lru_cache(maxsize=512)
def _merged_type(state: State, dtype: pa.StructType) -> pa.DataType:
    """Return the type of the result of `State.merge` for states of the type ``dtype``."""
    return state._merge_fields(pa.array([], dtype), Groups.of([], 0), state.name, True).type
