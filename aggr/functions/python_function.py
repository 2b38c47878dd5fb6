"""PerGroup: an adapter for functions in plain Python that process one value at a time. It is simple but slow."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from aggr.arguments import shown
from aggr.arrow.damaged_state import DamagedState
from aggr.fields import Field
from aggr.function import Function
from aggr.groups.groups import Groups
from aggr.state import State
from aggr.values import Values


class PerGroup(Function):
    """A function written as four methods over plain Python values.

    Class attributes that a function sets, besides those of `Function`
    ------------------------------------------------------------------
    state_kind : the Arrow type in which states are stored
    result_kind : the Arrow type of results
    shaping : parameter name -> Arrow type, for the parameters on which the state depends. All other parameters of the
    function must affect only results

    Guarantee
    ---------
    The guarantees of `Function` hold if ``combine`` is associative and commutative, ``start()`` is its identity,
    ``add(state, value)`` equals ``combine(state, add(start(), value))``, and equal states are equal Python values
    (collections without an order must be sorted). `aggr.testing.laws.check` checks these requirements.

    A `PerGroup` function takes microseconds per row. A function that processes columns takes nanoseconds.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> from aggr.groups.groups import Groups
    >>> @dataclass(frozen=True)
    ... class Product(PerGroup):
    ...     name, keeps, returns, guarantee = "product", "the product", "int64", "exact"
    ...     state_kind = result_kind = pa.int64()
    ...     def start(self): return 1
    ...     def add(self, state, value): return state * value
    ...     def combine(self, a, b): return a * b
    ...     def result(self, state): return state
    >>> states = Product().reduce(pa.array([2, 3, 7]), Groups.of([0, 0, 1], 2))
    >>> Product().finish(Product().merge(states, Groups.single(2))).to_pylist()
    [42]
    """

    state_kind: ClassVar[pa.DataType]
    result_kind: ClassVar[pa.DataType]
    shaping: ClassVar[Mapping[str, pa.DataType]] = {}

    @abstractmethod
    def start(self) -> Any:
        """Return the state of an empty group."""

    @abstractmethod
    def add(self, state: Any, value: Any) -> Any:
        """Return the state with an additional value.

        Parameters
        ----------
        state : value of `state_kind`
            The argument must not be changed.
        value : value of the input's type
            Never None.

        Returns
        -------
        value of `state_kind`
        """

    @abstractmethod
    def combine(self, a: Any, b: Any) -> Any:
        """Merge two states: return the state of all values from which the two were computed.

        Parameters
        ----------
        a, b : values of `state_kind`
            The arguments must not be changed.

        Returns
        -------
        value of `state_kind`
        """

    @abstractmethod
    def result(self, state: Any) -> Any:
        """Compute the result of a state.

        Parameters
        ----------
        state : value of `state_kind`
            The argument must not be changed.

        Returns
        -------
        value of `result_kind`
            None if the group has no result.
        """

    @property
    def own_state(self) -> FoldedState:
        return FoldedState(self.name, self)

    def finish_states(self, states: pa.StructArray) -> pa.Array:
        results = [self.result(state) for state in states.field("state").to_pylist()]
        return _typed_column(results, self.result_kind, "a result", self.result)


@dataclass(frozen=True, eq=False)
class FoldedState(State):
    """The layout and the merge of the states of a `PerGroup` function. Values and states are combined one by one.

    Two `FoldedState` objects are equal, so that their columns of states can be merged, if their functions have the same
    class and the same values of the parameters in ``shaping``.
    """

    name: str
    function: PerGroup

    @property
    def parameters(self) -> Mapping[str, pa.DataType]:
        return self.function.shaping

    @property
    def fields(self) -> Mapping[str, Field]:
        return {"state": _FoldField(self.function.start, self.function.combine, self.function.state_kind)}

    def reduce_values(self, values: Values) -> Mapping[str, pa.Array]:
        add = _FoldField(self.function.start, self.function.add, self.function.state_kind)
        return {"state": add.merge(values.array, values.groups)}

    def parameter(self, name: str) -> Any:
        return getattr(self.function, name)

    @property
    def _identity(self) -> tuple[Any, ...]:
        return type(self.function), *map(self.parameter, self.parameters)


@dataclass(frozen=True)
class _FoldField(Field):
    """A field of states that is computed in Python, row by row. ``start`` returns the state of a group before its first
    row. For each row, ``step`` receives the state so far and the row, and returns the next state.

    A row is a value of the input, or a state to merge. States have the Arrow type ``dtype``.
    """

    start: Callable[[], Any]
    step: Callable[[Any, Any], Any]
    dtype: pa.DataType

    def merge(self, column: pa.Array, groups: Groups) -> pa.Array:
        states = [self.start() for _ in range(groups.n)]
        for group, value in zip(groups.ids.tolist(), column.to_pylist(), strict=True):
            states[group] = self.step(states[group], value)
        return _typed_column(states, self.dtype, "a state", self.step)

    def check(self, column: pa.Array) -> None:
        if column.type != self.dtype:
            try:
                column.cast(self.dtype)
            except (pa.ArrowException, TypeError):
                raise DamagedState(f"has type {column.type}, not {self.dtype}") from None


def _typed_column(values: list[Any], dtype: pa.DataType, what: str, returned_by: Callable[..., Any]) -> pa.Array:
    """Return ``values`` as a column of type ``dtype``. Raise ``TypeError`` if a value does not have this type.

    ``returned_by`` is the function that returned the values, for the message.
    """
    try:
        return pa.array(values, dtype)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        function_name = getattr(returned_by, "__qualname__", repr(returned_by))
        wrong_value = next(value for value in values if not _fits(value, dtype))
        raise TypeError(
            f"{function_name} returned {shown(wrong_value)}, but {what} must have the declared type {dtype}; return "
            "such a value, or declare another type"
        ) from None


def _fits(value: Any, dtype: pa.DataType) -> bool:
    try:
        pa.scalar(value, dtype)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return False
    return True
