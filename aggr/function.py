"""The contract of a function: zero, reduce, merge, finish, over columns of states.

A state is one row of an Arrow struct column. A function names the fields of its state and how each is merged
(`aggr.fields`), and writes two methods: one from values to fields, one from fields to results. Everything
else is derived here, once: the merge, the identity, the types, the name, the version and the parameters that
travel in every state, and the checks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache, reduce
from typing import Any, ClassVar, Self, final, overload

import numpy as np
import pyarrow as pa

from aggr.arguments import shown
from aggr.arrays import Ids, Whole
from aggr.arrow import compute as pc
from aggr.arrow.bit_equality import same_bits
from aggr.arrow.damaged_state import DamagedState
from aggr.arrow.normalize import normalize, normalized_type, one_array, with_nulls
from aggr.exact.weights import read_weights
from aggr.fields import NOT_THERE, CannotSubtract, Field, refuse_where
from aggr.groups.groups import Groups, check_groups, type_name
from aggr.histograms.bucket_ranges import BucketRanges
from aggr.input_types import ANY, InputTypes, unsupported_input
from aggr.neighbours import Neighbours
from aggr.parameters import default_of, repeated
from aggr.sql.number_columns import Use
from aggr.state_checks import (
    FUNCTION,
    VERSION,
    CheckedStates,
    check_states,
    damaged_field,
    made_here,
    name_array,
    received,
)
from aggr.values import Values

EVENT_TIME = "time"  # the input that is a row's event time, unless another column is named for it
WEIGHT = "weight"  # the word by which the column is given that says how many rows a row stands for
CANNOT_SUBTRACT = "rows cannot be taken out of {}, which do not contain enough for that: reduce the rows that remain"
_MOST_ROWS = 1 << 24  # at once: a row adds less than 2^36 to a digit of an exact sum, which is kept in int64


@dataclass(frozen=True)
class Function(ABC):
    """A mergeable aggregate function; a frozen dataclass whose fields are its parameters.

    Class attributes that a function sets
    -------------------------------------
    name : the word it is called by
    aliases : other words that it is found by; a class that inherits from it does not inherit them
    state_name : what its states say they are of; its own name, or that of a function whose states are the same
    keeps, returns, guarantee : a few words each, for people
    inputs : names of the columns it takes; of several, values come as a struct of these fields. One called ``time``
        is the event time, and is given by ``by=``; others are given by their names
    takes : the rule for the types of its inputs, of `aggr.input_types`; any type by default
    takes_by_input : input -> another rule for its type
    about : input -> a sentence about its column, if that of ``takes`` does not say enough
    nullable_inputs : names of inputs in which a null does not make the row skipped
    takes_weights : whether rows may stand for several: then ``values.weights`` may say how many
    time_is_order : whether event times only say which of two rows is the later one, as the places of rows do
    merges_by_field : whether each field of states merges on its own; False if `align` looks at several first
    of_distinct : the name of the function that its call makes with ``distinct=True``, if it takes that
    estimated_by : likewise with ``beyond="estimate"``
    state_parameters : parameter name -> Arrow type, of the parameters that shape the state and so travel in it; the
        others only read
    ordered_inputs : names of inputs whose values are compared with each other; others of any type are kept as they are
    reads_neighbours : whether results can be read with the points of other windows, by `finish_with_neighbours`
    accessors : ``quantile`` and ``rank``, as far as `aggr.tables.accessors` can read them of its states: by a parameter
        ``quantiles``, and by `share_up_to`; ``bounds``, of a state that has a field ``sketch`` of `aggr.distinct`;
        ``buckets``, which the method of this name lists
    counted_by : names of the fields that together count a state's rows, each in one of them: by these and the fields'
        own ``subtract`` rows are taken out of a state again; of a function without, they cannot be
    answers_for : names of functions whose states this one's state contains, for the same column
    version : of the state's layout
    earlier_versions : of which the function reads states as well; others are refused by name

    Guarantee
    ---------
    ``merge`` gives the state that ``reduce`` gives for the merged rows, to the bit, whatever the order or tree.
    `aggr.testing.laws.check` proves it for a function of yours.
    """

    name: ClassVar[str]
    aliases: ClassVar[tuple[str, ...]] = ()
    state_name: ClassVar[str]
    keeps: ClassVar[str]
    returns: ClassVar[str]
    guarantee: ClassVar[str]
    state_parameters: ClassVar[Mapping[str, pa.DataType]] = {}
    accessors: ClassVar[frozenset[str]] = frozenset()
    answers_for: ClassVar[frozenset[str]] = frozenset()
    inputs: ClassVar[tuple[str, ...]] = ("value",)
    takes: ClassVar[InputTypes] = ANY
    takes_by_input: ClassVar[Mapping[str, InputTypes]] = {}
    about: ClassVar[Mapping[str, str]] = {}
    nullable_inputs: ClassVar[frozenset[str]] = frozenset()
    ordered_inputs: ClassVar[frozenset[str]] = frozenset({"by", EVENT_TIME})
    takes_weights: ClassVar[bool] = False
    time_is_order: ClassVar[bool] = False
    merges_by_field: ClassVar[bool] = True
    reads_neighbours: ClassVar[bool] = False
    of_distinct: ClassVar[str | None] = None
    estimated_by: ClassVar[str | None] = None
    version: ClassVar[int] = 1
    earlier_versions: ClassVar[frozenset[int]] = frozenset()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Name the state by the function if it has no other name."""
        super().__init_subclass__(**kwargs)
        name = cls.__dict__.get("name")
        if isinstance(name, str):
            cls.state_name = cls.__dict__.get("state_name", name)

    # What a function writes.

    @property
    def counted_by(self) -> tuple[str, ...]:
        """The fields that together count a state's rows; none if rows cannot be taken out again."""
        return ()

    @property
    @abstractmethod
    def state_fields(self) -> Mapping[str, Field]:
        """Name the fields of the state, each with the operation that merges it."""

    @property
    def further_columns(self) -> tuple[str | None, ...]:
        """The columns, or expressions, of its further `inputs` if its parameters name them; None for the event time.

        Such a function has more `inputs` than its class, which are not given by name.
        """
        return ()

    @abstractmethod
    def reduce_values(self, values: Values) -> Mapping[str, pa.Array]:
        """Reduce grouped values to the fields of one state per group.

            values.array         5   2  13   4        four rows, none null
            values.groups.ids    0   1   0   1        of values.groups.n = 3 groups

            low                  5   2  null          a row for each group; of one without rows, the identity
            high                13   4  null

        Called by `reduce`, which has checked types and lengths, decoded dictionaries, joined chunks, and left out nulls
        (`drop_null`). No loop over rows or groups in Python: fields (``LEAST.reduce(values)``), numpy and
        `aggr.extend.compiled` go over all of them at once.

        Parameters
        ----------
        values : Values
            ``values.array`` is of a plain type, for a function of several `inputs` a struct of them, each of which is
            ``values.field(name)``. ``values.floats``, ``values.counts`` and ``values.exact_sum`` are computed once,
            however many functions read the same column. ``values.weights`` is None, unless the function
            `takes_weights`: then it may say how many rows each row stands for, as int64 from 1, and the state must be
            to the bit that of the rows repeated.

        Returns
        -------
        name -> array, shape (values.groups.n,)
            As `state_fields` names them.

        Raises
        ------
        ValueError
            For a value that the function refuses; it says what was given, what is allowed, and what to do.
        OverflowError
            If a group's rows stand for more than int64 counts.
        """

    @abstractmethod
    def finish_states(self, states: pa.StructArray) -> pa.Array:
        """Read one result per state.

            states.field("low")      5   2  null      a row for each state
            states.field("high")    13   4  null

            results                  8   2  null      nothing to read from: null

        Called by `finish`, which has checked the states and left out nulls. It only reads: a state never changes, and a
        result depends on its own state alone.

        Parameters
        ----------
        states : column of states, shape (rows,)
            None null, each of this function.

        Returns
        -------
        array, shape (rows,)
            Of one type for all states of a type.

        Raises
        ------
        OverflowError
            If a result does not fit its type.
        DamagedState
            If a field that is checked as it is read is damaged.
        """

    def finish_with_neighbours(self, states: pa.StructArray, neighbours: Neighbours) -> pa.Array:
        """Read one result per state up to the edges of its window, for a function that `reads_neighbours`.

        Parameters
        ----------
        states : column of states, shape (rows,)
            As for `finish_states`, of any windows and keys.
        neighbours : Neighbours
            The window and key of each.

        Returns
        -------
        array, shape (rows,)
            Of the type that `finish_states` gives.
        """
        raise NotImplementedError

    def check_input(self, dtype: pa.DataType) -> None:
        """Refuse a type of input that the function does not take; by default what its rule does not allow.

        Parameters
        ----------
        dtype : pa.DataType
            Of the column, normalized; a struct of `inputs` for a function of several.

        Raises
        ------
        TypeError
            Says what the function takes.
        """
        if len(self.inputs) == 1:
            self.takes.check(self.name, dtype)
            return
        for field in dtype:
            self.takes_by_input.get(field.name, self.takes).check(self.name, field.type)

    def share_up_to(self, states: pa.StructArray, value: float) -> pa.Array:
        """Read the share of values that are at most a given one, for a function whose ``accessors`` name ``rank``.

        Parameters
        ----------
        states : column of states, shape (rows,)
            None of them null, and checked.
        value : float
            Not NaN.

        Returns
        -------
        array of float64, shape (rows,)
            In [0, 1]; null if there are no values.
        """
        raise NotImplementedError

    def buckets(self, states: pa.StructArray) -> BucketRanges:
        """List the ranges of values that states count, for a function whose ``accessors`` name ``buckets``.

        Parameters
        ----------
        states : column of states, shape (rows,)
            None of them null, and checked.

        Returns
        -------
        BucketRanges
            By state, those of each ascending. Each holds its upper edge, negative ones the lower.
        """
        raise NotImplementedError

    def drop_null(self, values: Values) -> Values:
        """Drop the rows that are null, or null in an input that is not in `nullable_inputs`.

        Parameters
        ----------
        values : Values

        Returns
        -------
        Values
            Of as many groups.
        """
        if len(self.inputs) == 1:
            return values.present
        needed = [values.array, *(values.array.field(name) for name in self.inputs if name not in self.nullable_inputs)]
        if not any(column.null_count for column in needed):
            return values
        valid = reduce(pc.and_, (column.is_valid() for column in needed))
        return values.filter(valid.to_numpy(zero_copy_only=False))

    # What every function has.

    def zero(self, n: int, input_type: pa.DataType) -> pa.StructArray:
        """Make identity states: those of groups without rows.

        Parameters
        ----------
        n : int
            How many.
        input_type : pa.DataType
            Of the column that the states are for.

        Returns
        -------
        column of states, shape (n,)

        Raises
        ------
        TypeError
            If the function does not take this type.
        """
        several = len(self.inputs) > 1 and pa.types.is_struct(input_type)
        plain = pa.struct([(f.name, normalized_type(f.type)) for f in input_type]) if several else input_type
        self.check_input(normalized_type(plain))  # before Arrow is asked for values of a type that it makes none of
        return self.reduce(pa.array([], normalized_type(plain)), Groups.of([], n))

    def reduce(
        self,
        values: pa.Array | Sequence[pa.Array] | Values,
        groups: Groups | None = None,
        weights: pa.Array | None = None,
    ) -> pa.StructArray:
        """Reduce grouped rows to one state per group.

        Parameters
        ----------
        values : array, shape (rows,)
            Nulls are skipped. For a function of several inputs, arrays in the order of `inputs`, or a struct of them;
            a row is skipped that has a null in any input which is not in `nullable_inputs`. Or what `numbers` gives:
            functions that are given the same `Values` share what they read of it.
        groups : Groups
            As many rows as ``values``.
        weights : array of whole numbers from 0, shape (rows,), optional
            How many rows each stands for; 0 and null skip it. For a function that `takes_weights`.

        Returns
        -------
        column of states, shape (groups.n,)
            With weights, to the bit those of the same rows repeated.

        Raises
        ------
        TypeError
            If the function does not take this type, or no weights.
        ValueError
            If a value is refused by name, or the lengths differ; for a weight that is negative or not whole.
        OverflowError
            If the weights of a group add up beyond int64.
        """
        plain = values if isinstance(values, Values) else self.grouped(values, groups, weights)
        self.check_input(plain.array.type)
        return self._reduce_slices(plain)

    def grouped(
        self, values: pa.Array | Sequence[pa.Array], groups: Groups | None, weights: pa.Array | None = None
    ) -> Values:
        """Take grouped rows as `reduce` does: plain arrays, and none that stand for no row.

        Parameters
        ----------
        values : array, or arrays of several inputs
        groups : Groups
        weights : array, optional
            All as for `reduce`.

        Returns
        -------
        Values

        Raises
        ------
        TypeError, ValueError
            As `reduce` does.
        """
        array = self._as_struct(values)
        check_groups(self.name, groups)
        assert groups is not None
        if len(array) != len(groups):
            raise ValueError(f"{self.name}: {len(array)} values for {len(groups)} group ids")
        if weights is None:
            return Values(array, groups)
        if not self.takes_weights:
            raise TypeError(f"{self.name} takes no weights")
        if len(weights) != len(groups):
            raise ValueError(f"{self.name}: {len(weights)} weights for {len(groups)} group ids")
        plain = Values(array, groups, read_weights(normalize(self._arrow(weights))))
        assert plain.weights is not None
        if len(plain) and plain.weights.min() == 0:
            plain = plain.filter(plain.weights > 0)
        return Values(plain.array, plain.groups) if np.all(plain.weights == 1) else plain

    def _reduce_slices(self, values: Values) -> pa.StructArray:
        n = values.groups.n
        if len(values) <= _MOST_ROWS:
            return self.pack(self.reduce_values(self.drop_null(values)), n)
        starts = range(0, len(values), _MOST_ROWS)
        parts = [self._reduce_slices(values.slice(slice(start, start + _MOST_ROWS))) for start in starts]
        groups = Groups(np.tile(np.arange(n), len(parts)), n)
        return self.merge(made_here(pa.concat_arrays(parts)), groups).states

    def _as_struct(self, values: pa.Array | Sequence[pa.Array]) -> pa.Array:
        """Take one array, or a struct of all inputs in their order."""
        if len(self.inputs) == 1:
            return normalize(self._arrow(values))
        if isinstance(values, (pa.Array, pa.ChunkedArray)):
            dtype = values.type
            found = [field.name for field in dtype] if pa.types.is_struct(dtype) else []
            if sorted(found) != sorted(self.inputs):
                raise unsupported_input(self.name, dtype, f"a struct of {' and '.join(self.inputs)}")
            if isinstance(values, pa.ChunkedArray):
                values = values.combine_chunks()
            columns, missing = [pc.struct_field(values, name) for name in self.inputs], values.is_null()
        else:
            columns, missing = self._columns(values), None
            if len(columns) != len(self.inputs):
                raise ValueError(f"{self.name}: values are {' and '.join(self.inputs)}; got {len(columns)} columns")
        columns = [normalize(self._arrow(column)) for column in columns]
        return pa.StructArray.from_arrays(columns, names=list(self.inputs), mask=missing)

    def _columns(self, values: Any) -> list[Any]:
        if not isinstance(values, Sequence) or isinstance(values, str | bytes):
            takes = f"Arrow arrays of {' and '.join(self.inputs)}, or a struct of them"
            raise TypeError(f"{self.name}: values are {takes}; got {type_name(values)}")
        return list(values)

    def _arrow(self, values: Any) -> Any:
        if not isinstance(values, pa.Array | pa.ChunkedArray):
            raise TypeError(f"{self.name}: values are an Arrow array; got {type_name(values)}; pa.array makes one")
        return values

    @overload
    def merge(self, states: CheckedStates, groups: Groups) -> CheckedStates: ...

    @overload
    def merge(self, states: pa.Array | pa.ChunkedArray, groups: Groups) -> pa.StructArray: ...

    @final
    def merge(
        self, states: pa.Array | pa.ChunkedArray | CheckedStates, groups: Groups
    ) -> pa.StructArray | CheckedStates:
        """Merge grouped states into one state per group.

        Parameters
        ----------
        states : column of states, shape (rows,)
            Of this function; a null counts as an identity. They stay unchanged.
        groups : Groups
            As many rows as ``states``.

        Returns
        -------
        column of states, shape (groups.n,)
            `CheckedStates` of such states, which are not checked again.

        Raises
        ------
        TypeError
            If ``states`` is no Arrow column, or ``groups`` no `Groups`.
        ValueError
            If the lengths differ, or the states are of another function, of unequal parameters or of a newer version;
            `DamagedState` if one of them is damaged.
        """
        sound = isinstance(states, CheckedStates)
        column, named = (one_array(states.states), True) if sound else received(self, states)
        check_groups(self.name, groups)
        if len(column) != len(groups):
            raise ValueError(f"{self.name}: {len(column)} states for {len(groups)} group ids")
        if column.null_count:
            groups = groups.filter(column.is_valid().to_numpy(zero_copy_only=False))
            column = column.drop_null()
        single = len(groups) == groups.n and bool((groups.counts() == 1).all())  # each state is its own merge
        if not sound:
            check_states(self, column, named, in_full=single)
        if single and (sound or self._is_current(column)):
            ordered = bool((np.diff(groups.ids) > 0).all())
            merged = column if ordered else column.take(pa.array(np.argsort(groups.ids)))
        else:
            merged = self._merge(column, groups, sound)
        return CheckedStates(merged) if sound else merged

    def _merge(self, states: pa.StructArray, groups: Groups, sound: bool) -> pa.StructArray:
        merged = {}
        try:
            states = self.align(states, groups)
        except DamagedState as damage:
            raise DamagedState(f"a damaged state of {self.name}: {damage}") from None
        for name, field in self.state_fields.items():
            try:
                merged[name] = (field.merge if sound else field.merge_checked)(states.field(name), groups)
            except DamagedState as damage:
                raise damaged_field(self.name, name, damage) from None
        return self.pack(merged, groups.n)

    def _is_current(self, states: pa.StructArray) -> bool:
        """Say whether all states have the layout of this release, so that one alone is its own merge."""
        try:
            merged_type = _merged_type(self, states.type)
        except TypeError:  # a parameter that cannot be hashed, such as a struct given as a dict
            merged_type = _merged_type.__wrapped__(self, states.type)
        if states.type != merged_type:
            return False
        versions = states.field(VERSION)
        return pc.all(pc.equal(versions, pa.scalar(self.version, versions.type))).as_py() is not False

    @final
    def subtract(self, states: pa.Array | pa.ChunkedArray, gone: pa.Array | pa.ChunkedArray) -> pa.StructArray:
        """Take the rows of some states out of others again, row by row.

        Parameters
        ----------
        states : column of states, shape (rows,)
            Of this function; a null counts as an identity.
        gone : column of states, shape (rows,)
            Of rows that are among those of ``states``.

        Returns
        -------
        column of states, shape (rows,)
            To the bit those of the rows that are left.

        Raises
        ------
        TypeError
            If the function's states do not tell what is left: those of min, max, first, last, sets and lists.
        CannotSubtract
            If rows are not there, as far as can be known, or what is left is not: where NaN or infinities are taken
            out of a sum, or the least or greatest value out of a histogram, and other rows are left. It names the
            first such state.
        ValueError
            As `merge` does.

        Examples
        --------
        >>> from aggr import Groups, Sum
        >>> a, b, both = (Sum().reduce(pa.array(x), Groups.single(len(x))) for x in ([0.1], [1e300], [0.1, 1e300]))
        >>> Sum().subtract(both, b).equals(a)
        True
        """
        self.check_subtractable()
        whole, part = (self.merge(column, Groups.each(len(column))) for column in (states, gone))
        if len(whole) != len(part) or whole.type != part.type:
            kinds = " and ".join(f"{len(column)} of type {shown(str(column.type))}" for column in (whole, part))
            raise ValueError(f"{self.name}: states are subtracted row by row, and of one type; got {kinds}")
        left = self.row_counts(whole) - self.row_counts(part)
        refuse_where(left < 0, NOT_THERE)
        some, none = np.flatnonzero(left), np.flatnonzero(left == 0)
        _check_equal(whole.take(pa.array(none)), part.take(pa.array(none)), none)
        rest = self._subtract(whole.take(pa.array(some)), part.take(pa.array(some)), some)
        zero = self.merge(whole.slice(0, 0), Groups.of([], 1))
        place = np.full(len(left), len(rest))
        place[some] = np.arange(len(rest))
        return pa.concat_arrays([rest, zero]).take(pa.array(place))

    def check_subtractable(self) -> None:
        """Raise ``TypeError`` if rows cannot be taken out of the function's states."""
        if not self.counted_by:
            raise TypeError(CANNOT_SUBTRACT.format(f"states of {self!r}"))

    def row_counts(self, states: pa.StructArray) -> Whole:
        """Count the rows of each state by ``counted_by``.

        Parameters
        ----------
        states : column of states, shape (rows,)
            None of them null.

        Returns
        -------
        array of int64, shape (rows,)
        """
        fields = self.state_fields
        counts = (fields[name].row_counts(states.field(name)) for name in self.counted_by)
        return sum(counts, np.zeros(len(states), np.int64))

    def _subtract(self, states: pa.StructArray, gone: pa.StructArray, rows: Ids) -> pa.StructArray:
        """Subtract field by field states of which some rows are left; errors name them by ``rows``."""
        try:
            fields = {name: f.subtract(states.field(name), gone.field(name)) for name, f in self.state_fields.items()}
        except CannotSubtract as error:
            raise CannotSubtract(int(rows[error.row]), error.reason) from None
        rest = self.pack(fields, len(states))
        if not self._is_sound(rest):
            first = next(i for i in range(len(rest)) if not self._is_sound(rest.slice(i, 1)))
            raise CannotSubtract(int(rows[first]), NOT_THERE)
        return rest

    def _is_sound(self, states: pa.StructArray) -> bool:
        try:
            check_states(self, states, True, in_full=True)
        except DamagedState:
            return False
        return True

    @final
    def finish(
        self, states: pa.Array | pa.ChunkedArray | CheckedStates, neighbours: Neighbours | None = None
    ) -> pa.Array:
        """Read one result per state.

        Parameters
        ----------
        states : column of states, shape (rows,)
            Of this function. They stay unchanged. `CheckedStates` are not checked again.
        neighbours : Neighbours, optional
            The window and key of each, to read it up to the edges of its window, if the function `reads_neighbours`.

        Returns
        -------
        array of `result_type`, shape (rows,)
            Null for a null state, and where there is nothing to read from.

        Raises
        ------
        ValueError
            If the states are of another function, of unequal parameters or of a newer version; `DamagedState` if one of
            them is damaged.
        OverflowError
            If a result does not fit its type.
        """
        sound = isinstance(states, CheckedStates)
        column, named = (one_array(states.states), True) if sound else received(self, states)
        valid = column.drop_null() if column.null_count else column
        if not sound:
            check_states(self, valid, named, in_full=False)
        try:
            if neighbours is None:
                results = self.finish_states(valid)
            else:
                there = column.is_valid().to_numpy(zero_copy_only=False)
                results = self.finish_with_neighbours(valid, neighbours.filter(there))
        except DamagedState as damage:
            raise DamagedState(f"a damaged state of {self.name}: {damage}") from None
        return with_nulls(results, column.is_valid()) if column.null_count else results

    def state_type(self, input_type: pa.DataType) -> pa.StructType:
        """Return the type of the states for inputs of a type.

        Parameters
        ----------
        input_type : pa.DataType
            Of the column, or a struct of `inputs` for a function of several.

        Returns
        -------
        pa.StructType

        Raises
        ------
        TypeError
            If the function does not take this type.
        """
        try:
            return _state_type(self, input_type)
        except TypeError:  # a parameter that cannot be hashed, or a type that is not taken
            return _state_type.__wrapped__(self, input_type)

    def result_type(self, state_type: pa.StructType) -> pa.DataType:
        """Return the type of the results for states of a type.

        Parameters
        ----------
        state_type : pa.StructType
            As `state_type` returns it.

        Returns
        -------
        pa.DataType

        Raises
        ------
        ValueError
            If this is no type of the function's states.
        """
        try:
            return _result_type(self, state_type)
        except TypeError:  # a parameter that cannot be hashed
            return _result_type.__wrapped__(self, state_type)

    def input_use(self, name: str) -> Use:
        """Return how the function reads an input: as it is written, as a number, in order, or for its nulls alone.

        Parameters
        ----------
        name : str
            One of `inputs`.

        Returns
        -------
        Use
        """
        takes = self.takes_by_input.get(name, self.takes)
        if not takes.allows(pa.string()):
            return Use.NUMBER
        if name in self.ordered_inputs:
            return Use.ORDER
        return Use.ANY if takes is ANY else Use.KEEP

    def state_function(self) -> Self:
        """Return the function that keeps this one's state: the same, with whatever only reads at its default."""
        reading = {f.name: default_of(f) for f in fields(self) if f.name not in self.state_parameters}
        return replace(self, **reading)

    def parameters(self) -> dict[str, Any]:
        """Return the parameters by name."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def parameter_columns(self, n: int) -> dict[str, pa.Array]:
        """Repeat the parameters that shape a state, as the columns that travel in it.

        Parameters
        ----------
        n : int
            How many states.

        Returns
        -------
        dict of name -> array, shape (n,)
            Of the types in `state_parameters`.

        Raises
        ------
        TypeError
            If a parameter is not of its type in `state_parameters`.
        """
        return {name: repeated(name, getattr(self, name), dtype, n) for name, dtype in self.state_parameters.items()}

    def check_consistency(self, states: pa.StructArray) -> None:
        """Refuse states whose fields contradict each other; by default none do. Each field has been checked before.

        Parameters
        ----------
        states : column of states, shape (rows,)
            None of them null.

        Raises
        ------
        DamagedState
            Says what contradicts what.
        """
        return

    def align(self, states: pa.StructArray, groups: Groups) -> pa.StructArray:
        """Bring the states of each group to one form, before their fields are merged; by default they are of one.

        Parameters
        ----------
        states : column of states, shape (rows,)
            None of them null.
        groups : Groups
            As many rows as ``states``.

        Returns
        -------
        column of states, shape (rows,)

        Raises
        ------
        DamagedState
            If a state is damaged.
        """
        return states

    def pack(self, parts: Mapping[str, pa.Array], n: int) -> pa.StructArray:
        """Make states of their fields.

        Parameters
        ----------
        parts : name -> array, shape (n,)
            As `state_fields` names them.
        n : int
            How many states.

        Returns
        -------
        column of states, shape (n,)
        """
        columns = {
            FUNCTION: pa.repeat(name_array(self.state_name)[0], n),
            VERSION: pa.repeat(_one_version(self.version)[0], n),
            **self.parameter_columns(n),
            **{name: parts[name] for name in self.state_fields},
        }
        return pa.StructArray.from_arrays(list(columns.values()), names=list(columns))


def _check_equal(states: pa.StructArray, gone: pa.StructArray, rows: Ids) -> None:
    """Refuse to take all rows out of states that are of other ones; errors name them by ``rows``."""
    if not same_bits(states, gone):
        first = next(i for i in range(len(rows)) if not same_bits(states.slice(i, 1), gone.slice(i, 1)))
        raise CannotSubtract(int(rows[first]), NOT_THERE)


@lru_cache(maxsize=512)
def _state_type(function: Function, input_type: pa.DataType) -> pa.StructType:
    return function.zero(0, input_type).type


@lru_cache(maxsize=512)
def _result_type(function: Function, state_type: pa.StructType) -> pa.DataType:
    return function.finish(pa.array([], state_type)).type


@lru_cache(maxsize=64)
def _one_version(version: int) -> pa.Array:
    return pa.array([version], pa.int8())


@lru_cache(maxsize=512)
def _merged_type(function: Function, dtype: pa.StructType) -> pa.DataType:
    """Return the type that states of a type have once merged."""
    return function._merge(pa.array([], dtype), Groups.of([], 0), True).type


def keyword(role: str) -> str:
    """Return the keyword that a further input's column is given by.

    Parameters
    ----------
    role : str
        Name of the input, one of `Function.inputs`.

    Returns
    -------
    str
        ``by`` for event times, otherwise the name.
    """
    return "by" if role == EVENT_TIME else role


def column_keywords(function: type[Function]) -> tuple[str, ...]:
    """Return the words by which a function's columns but the first are given.

    Parameters
    ----------
    function : class of a function

    Returns
    -------
    tuple of str
        Of its further inputs, in their order, and ``weight`` where it takes weights.

    Examples
    --------
    >>> from aggr import Last, Sum
    >>> column_keywords(Last), column_keywords(Sum)
    (('by',), ('weight',))
    """
    return (*map(keyword, function.inputs[1:]), *([WEIGHT] if function.takes_weights else []))
