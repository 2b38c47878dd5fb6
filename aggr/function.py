"""The interface of a function, which reads results from states.

A `State` (`aggr.state`) contains the values from which results are computed. A function declares its inputs, their
types and its state, and computes one result from each state. From these declarations, `Function` derives the types of
states and results, and the identity. It also groups the values of plain Arrow arrays.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, final, overload

import pyarrow as pa

from aggr.arrays import Flags
from aggr.arrow.damaged_state import DamagedState, damaged_state
from aggr.arrow.normalize import normalized_type, one_array, with_nulls
from aggr.function_inputs import EVENT_TIME, WEIGHT, input_array, keyword, present_in_all, weighted_values
from aggr.groups.groups import Groups, check_groups
from aggr.input_types import ANY, InputTypes
from aggr.neighbours import Neighbours
from aggr.state import State
from aggr.state_checks import CheckedStates, check_states, validated_column
from aggr.values import Values


@dataclass(frozen=True)
class Function(ABC):
    """A mergeable aggregate function: a frozen dataclass whose fields are its parameters.

    What a function sets
    --------------------
    name : the word by which it is called
    own_state : its `State`; functions whose states are equal share a column
    keeps, returns, guarantee : short descriptions for users
    takes : the rule for its inputs, from `aggr.input_types`, or a mapping from each input to its rule. A rule contains
        the allowed types, their description for users, and the use of the values. By default, any type is allowed
    inputs : names of its input columns; several columns are passed as a struct with these fields. In calls, the column
        of the input ``time``, the event time, is passed as ``by=``, and the columns of other inputs by their names
    takes_weights : whether a row may represent several rows; ``values.weights`` then contains their number
    finish_states : the method that computes results

    More, for a few functions
    -------------------------
    aliases : other names of the function; a subclass does not inherit them
    reads : other states that contain its own state, so that its results can also be computed from them
    time_is_order : whether the function uses event times only to order rows, so that row numbers can replace them
    reads_neighbours : whether `finish_with_neighbours` can use the points of the windows before and after
    is_amount : whether its results are amounts, such as counts and sums, so that plots of them begin at 0
    further_columns : the columns of the `inputs` after the first, for a function whose parameters contain the names of
        these columns

    Parameters on which the state depends are fields of the `State`, and are stored in each row. Other parameters affect
    only results.

    Guarantee
    ---------
    ``merge`` returns the state that ``reduce`` would return for all rows, bit for bit, in any order and any tree of
    merges. `aggr.testing.laws.check` checks this guarantee for user-defined functions.
    """

    name: ClassVar[str]
    keeps: ClassVar[str]
    returns: ClassVar[str]
    guarantee: ClassVar[str]
    takes: ClassVar[InputTypes | Mapping[str, InputTypes]] = ANY
    inputs: ClassVar[tuple[str, ...]] = ("value",)
    takes_weights: ClassVar[bool] = False
    aliases: ClassVar[tuple[str, ...]] = ()
    reads: ClassVar[tuple[State, ...]] = ()
    time_is_order: ClassVar[bool] = False
    reads_neighbours: ClassVar[bool] = False
    is_amount: ClassVar[bool] = False

    # The methods that a function implements.

    @property
    @abstractmethod
    def own_state(self) -> State:
        """The state that is computed from a group of rows. It depends on the function's parameters."""

    @property
    def further_columns(self) -> tuple[str | None, ...]:
        """For a function whose parameters name its further inputs, such as `aggr.per`: the columns or expressions of
        the inputs after the first. None stands for the event time. Other functions return an empty tuple.

        An object of such a function has more `inputs` than its class. Callers do not pass these inputs by keyword.
        """
        return ()

    @property
    def skips_bad_values(self) -> bool:
        """Whether values that the function refuses, such as negative numbers for `aggr.hdr`, are skipped and counted.
        By default, a refused value raises an error.

        If refused values are skipped, rows with a refused weight are also skipped, and ``values.refused`` contains the
        number of rows that were skipped for this reason.
        """
        return False

    @abstractmethod
    def finish_states(self, states: pa.StructArray) -> pa.Array:
        """Compute one result per state.

            states.field("low")      5   2  null      a row for each state
            states.field("high")    13   4  null

            results                  8   2  null      null if the state has no rows

        The method does not change the states, and each result depends only on its own state. `finish` calls this method
        after it has checked the states and removed nulls.

        Parameters
        ----------
        states : column of states, shape (rows,)
            States of this function, without nulls.

        Returns
        -------
        array, shape (rows,)
            The type of the result depends only on the type of the states.

        Raises
        ------
        OverflowError
            If a result does not fit its type.
        DamagedState
            If a field is damaged that is checked only when it is read.
        """

    def is_always_readable(self, state_type: pa.StructType) -> bool:
        """Return whether `finish` never raises an error for states of a type, if all rows have the weight 1.

        A store rejects states whose results cannot be computed. If this method returns True, the store does not try to
        compute the results. The default is False. A subclass that defines `finish_states` uses this default, unless it
        also defines this method.

        Parameters
        ----------
        state_type : pa.StructType
            A type that the method `state_type` returns.

        Returns
        -------
        bool
        """
        return False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Call `reset_is_always_readable`, because a class that defines `finish_states` must not inherit the
        `is_always_readable` of a base class.
        """
        super().__init_subclass__(**kwargs)
        reset_is_always_readable(cls, "finish_states")

    def finish_with_neighbours(self, states: pa.StructArray, neighbours: Neighbours) -> pa.Array:
        """Compute one result per state, for a function that `reads_neighbours`.

        For each window, the method also reads two points from the states of other windows: the last point of the key
        before the window, and the first point of the key after the window. If two consecutive points of the key are at
        most `Neighbours.longest` apart, the part of the time between them that lies in the window counts. Time can
        therefore count in a window without points.

        Parameters
        ----------
        states : column of states, shape (rows,)
            States as for `finish_states`, of any windows and keys.
        neighbours : Neighbours
            The window and the key of each state.

        Returns
        -------
        array, shape (rows,)
            The type is that of `finish_states`.
        """
        raise NotImplementedError(
            f"{type(self).__name__} does not implement results with neighbours; define its method "
            "finish_with_neighbours"
        )

    def check_input(self, dtype: pa.DataType) -> None:
        """Raise an error for a type of input that the function does not take. By default, the rules in `takes` decide.

        Parameters
        ----------
        dtype : pa.DataType
            The type of the column, normalized, or a struct of `inputs` for a function with several inputs.

        Raises
        ------
        TypeError
            The message names the types that the function takes.
        """
        if len(self.inputs) == 1:
            input_rule(self, self.inputs[0]).check(self.name, dtype)
            return
        for field in dtype:
            input_rule(self, field.name).check(self.name, field.type)

    def drop_null(self, values: Values) -> Values:
        """Remove the rows that are null in any input.

        Parameters
        ----------
        values : Values

        Returns
        -------
        Values
            The values without these rows, with the same number of groups.
        """
        return values.present if len(self.inputs) == 1 else present_in_all(values, self.inputs)

    # The methods that every function inherits.

    def zero(self, n: int, input_type: pa.DataType) -> pa.StructArray:
        """Return identity states, which are the states of groups without rows.

        Parameters
        ----------
        n : int
            The number of states.
        input_type : pa.DataType
            The type of the column from which such states would be reduced.

        Returns
        -------
        column of states, shape (n,)

        Raises
        ------
        TypeError
            If the function does not take this type.
        """
        has_several_inputs = len(self.inputs) > 1 and pa.types.is_struct(input_type)
        plain_type = (
            pa.struct([(f.name, normalized_type(f.type)) for f in input_type]) if has_several_inputs else input_type
        )
        # the type is checked first, because Arrow cannot create arrays of some of the types that are rejected
        self.check_input(normalized_type(plain_type))
        return self.reduce(pa.array([], normalized_type(plain_type)), Groups.of([], n))

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
            The input column. Nulls are skipped. For a function with several inputs, arrays in the order of `inputs`, or
            a struct of them; a row with a null in any of them is skipped. A `Values` object is accepted too. Functions
            that receive the same `Values` share the quantities that are computed from it.
        groups : Groups
            The groups, with as many rows as ``values``.
        weights : array of whole numbers of at least 0, shape (rows,), optional
            The number of rows that each row represents; a row with 0 or null is skipped. Only for a function that
            `takes_weights`.

        Returns
        -------
        column of states, shape (groups.n,)
            With weights, the states are bit-for-bit those of the repeated rows.

        Raises
        ------
        TypeError
            If the function does not take this type, or does not take weights.
        ValueError
            If a value is invalid, the lengths differ, or a weight is negative or not whole.
        OverflowError
            If the sum of a group's weights exceeds int64.
        """
        grouped_values = values if isinstance(values, Values) else self.grouped(values, groups, weights)
        self.check_input(grouped_values.array.type)
        return self.own_state.reduce(self.drop_null(grouped_values))

    def grouped(
        self, values: pa.Array | Sequence[pa.Array], groups: Groups | None, weights: pa.Array | None = None
    ) -> Values:
        """Return grouped rows in the form that `reduce` uses: plain arrays, without rows of weight 0.

        Parameters
        ----------
        values : array, or arrays of several inputs
        groups : Groups
        weights : array, optional
            See `reduce`.

        Returns
        -------
        Values

        Raises
        ------
        TypeError, ValueError
            For the same reasons as `reduce`.
        """
        array = input_array(self.name, self.inputs, values)
        check_groups(self.name, groups)
        assert groups is not None
        if len(array) != len(groups):
            raise ValueError(
                f"{self.name}: each value must have one group id; got {len(array)} values and {len(groups)} group ids"
            )
        if weights is None:
            return Values(array, groups)
        if not self.takes_weights:
            raise TypeError(f"{self.name} does not accept weights; leave them out")
        return weighted_values(self.name, Values(array, groups), weights, skips_refused=self.skips_bad_values)

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
            States of this function. A null counts as an identity. The states are not changed.
        groups : Groups
            The groups, with as many rows as ``states``.

        Returns
        -------
        column of states, shape (groups.n,)
            The result is `CheckedStates` if ``states`` are. `CheckedStates` are not checked again.

        Raises
        ------
        TypeError
            If ``states`` is not an Arrow column, or ``groups`` not `Groups`.
        ValueError
            If the lengths differ, or the states belong to another function, to other parameters or to a newer version.
            `DamagedState` if a state is damaged.
        """
        return self.own_state.merge(states, groups, self)

    @final
    def subtract(self, states: pa.Array | pa.ChunkedArray, gone: pa.Array | pa.ChunkedArray) -> pa.StructArray:
        """Subtract states from other states, pair by pair. The results are the states of the remaining input rows.

        Parameters
        ----------
        states : column of states, shape (rows,)
            States of this function. A null counts as an identity.
        gone : column of states, shape (rows,)
            The states to subtract. At each index, the state in ``states`` must contain all input rows of the state in
            ``gone``.

        Returns
        -------
        column of states, shape (rows,)
            The states are bit-for-bit those of the remaining rows.

        Raises
        ------
        TypeError
            If the states of the function cannot be subtracted, such as states of min, max, first, last, sets and lists.
        CannotSubtract
            If a state evidently does not contain the rows to subtract, or the state of the remaining rows cannot be
            computed. The latter happens if rows remain, and the subtracted rows contain NaN or infinities of a sum, or
            the smallest or greatest value of a histogram. The error names the first such state.
        ValueError
            For the same reasons as `merge`.

        Examples
        --------
        >>> from aggr import Groups, Sum
        >>> a, b, both = (Sum().reduce(pa.array(x), Groups.single(len(x))) for x in ([0.1], [1e300], [0.1, 1e300]))
        >>> Sum().subtract(both, b).equals(a)
        True
        """
        return self.own_state.subtract(states, gone, self)

    @final
    def finish(
        self, states: pa.Array | pa.ChunkedArray | CheckedStates, neighbours: Neighbours | None = None
    ) -> pa.Array:
        """Compute one result per state.

        Parameters
        ----------
        states : column of states, shape (rows,)
            States of this function. The states are not changed. `CheckedStates` are not checked again.
        neighbours : Neighbours, optional
            The window and the key of each state. They are used only if the function `reads_neighbours`. Each result is
            then extended to the edges of the state's window, with points of the windows before and after.

        Returns
        -------
        array of `result_type`, shape (rows,)
            Null for a null state, and for a state whose group has more values than an absorbing limit allows; see
            `State.beyond_limit`. Most functions also return null for a state without rows; counts return 0.

        Raises
        ------
        ValueError
            If the states belong to another function, to other parameters or to a newer version. `DamagedState` if a
            state is damaged.
        OverflowError
            If a result does not fit its type.
        """
        is_checked = isinstance(states, CheckedStates)
        column, has_expected_name = (
            (one_array(states.states), True) if is_checked else validated_column(self.own_state, states, self)
        )
        readable = column.drop_null() if column.null_count else column
        if not is_checked:
            check_states(self.own_state, readable, self, has_expected_name, is_complete=False)
        is_beyond_limit = self.own_state.beyond_limit(readable)
        if is_beyond_limit is not None:
            readable = readable.filter(pa.array(~is_beyond_limit))
        try:
            if neighbours is None:
                results = self.finish_states(readable)
            else:
                is_readable = _readable(column, is_beyond_limit).to_numpy(zero_copy_only=False)
                results = self.finish_with_neighbours(readable, neighbours.filter(is_readable))
        except DamagedState as damage:
            raise damaged_state(self.name, damage) from None
        if not isinstance(results, pa.Array | pa.ChunkedArray) or len(results) != len(readable):
            raise TypeError(
                f"{self.name}: finish_states returned {_describe_results(results)}; it must return an Arrow array "
                f"with a result for each of the {len(readable)} states"
            )
        return results if len(readable) == len(column) else with_nulls(results, _readable(column, is_beyond_limit))

    def state_type(self, input_type: pa.DataType) -> pa.StructType:
        """Return the type of the states for inputs of a type.

        Parameters
        ----------
        input_type : pa.DataType
            The type of the column, or a struct of `inputs` for a function with several inputs.

        Returns
        -------
        pa.StructType

        Raises
        ------
        TypeError
            If the function does not take this type.
        """
        state_type = _state_type if _has_hash(self) else _state_type.__wrapped__
        return state_type(self, input_type)

    def result_type(self, state_type: pa.StructType) -> pa.DataType:
        """Return the type of the results for states of a type.

        Parameters
        ----------
        state_type : pa.StructType
            A type from `state_type`.

        Returns
        -------
        pa.DataType

        Raises
        ------
        ValueError
            If states of this function do not have this type.
        """
        try:
            return _result_type(self, state_type)
        except TypeError:  # a parameter is not hashable, so the result cannot be cached
            return _result_type.__wrapped__(self, state_type)


def reset_is_always_readable(cls: type[Function], reader: str) -> None:
    """Make a class use the default `Function.is_always_readable` if it defines ``reader``, but not
    `is_always_readable`.

    Otherwise the class would inherit the method of a base class. That method may return True, although the ``reader``
    of this class can raise errors.

    Parameters
    ----------
    cls : class of a function
    reader : str
        The name of a method that computes results.
    """
    if reader in vars(cls) and "is_always_readable" not in vars(cls):
        setattr(cls, "is_always_readable", Function.is_always_readable)  # noqa: B010


def input_rule(function: Function | type[Function], role: str) -> InputTypes:
    """Return the rule for an input of a function.

    For event times and for an input called ``by``, the rule states that the values are compared with each other.

    Parameters
    ----------
    function : Function, or its class
    role : str
        The name of the input, one of `Function.inputs`.

    Returns
    -------
    InputTypes

    Examples
    --------
    >>> from aggr import ArgMin
    >>> input_rule(ArgMin, "value").use, input_rule(ArgMin, "by").use
    (<Use.KEEP: 'keep'>, <Use.ORDER: 'order'>)
    """
    rule = function.takes if isinstance(function.takes, InputTypes) else function.takes.get(role, ANY)
    return rule.compared() if role in ("by", EVENT_TIME) else rule


def _readable(states: pa.Array, is_beyond_limit: Flags | None) -> pa.Array:
    """Return a mask of the states that have a result: states that are not null and not marked in ``is_beyond_limit``.

    ``is_beyond_limit`` has one flag for each state that is not null. None stands for a mask without marked states.
    """
    if is_beyond_limit is None:
        return states.is_valid()
    flags = states.is_valid().to_numpy(zero_copy_only=False).copy()
    flags[flags] = ~is_beyond_limit
    return pa.array(flags)


def _has_hash(function: Function) -> bool:
    """Return whether all parameters of a function can be hashed."""
    try:
        hash(function)
    except TypeError:
        return False
    return True


@lru_cache(maxsize=512)
def _state_type(function: Function, input_type: pa.DataType) -> pa.StructType:
    return function.zero(0, input_type).type


@lru_cache(maxsize=512)
def _result_type(function: Function, state_type: pa.StructType) -> pa.DataType:
    return function.finish(pa.array([], state_type)).type


def column_keywords(function: type[Function]) -> tuple[str, ...]:
    """Return the keywords that pass a function's columns, except for the first column.

    Parameters
    ----------
    function : class of a function

    Returns
    -------
    tuple of str
        The keywords of its further inputs, in order, and ``weight`` if the function takes weights.

    Examples
    --------
    >>> from aggr import Last, Sum
    >>> column_keywords(Last), column_keywords(Sum)
    (('by',), ('weight',))
    """
    return (*map(keyword, function.inputs[1:]), *([WEIGHT] if function.takes_weights else []))


def _describe_results(results: Any) -> str:
    """Describe the return value of `finish_states` for an error message: an array by its length, another value by its
    type.
    """
    if isinstance(results, pa.Array | pa.ChunkedArray):
        return f"an array of {len(results)} rows"
    return f"a value of the type {type(results).__name__}"
