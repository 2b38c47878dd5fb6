"""remembered: methods of immutable objects that remember their last results."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

_RESULTS = 64  # the maximum number of results that a method remembers

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")


class remembered(Generic[T, P, R]):
    """Make a method of an immutable object remember its last results.

    A call with the same arguments as an earlier call returns the earlier result. The arguments must be hashable. Errors
    are not remembered. Each object has its own results, in its ``__dict__``, like `functools.cached_property`.

    >>> class Doubling:
    ...     @remembered
    ...     def double(self, x):
    ...         print("computed")
    ...         return 2 * x
    >>> doubling = Doubling()
    >>> doubling.double(3), doubling.double(3)
    computed
    (6, 6)
    """

    def __init__(self, method: Callable[Concatenate[T, P], R]) -> None:
        """Set the method whose results are remembered."""
        self._method = method
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, instance: None, owner: type[T]) -> Self: ...

    @overload
    def __get__(self, instance: T, owner: type[T]) -> Callable[P, R]: ...

    def __get__(self, instance: T | None, owner: Any) -> Any:
        """Return the method of an object. If the method is accessed as an attribute of its class, return this
        descriptor.
        """
        if instance is None:
            return self
        bound = lru_cache(maxsize=_RESULTS)(partial(self._method, instance))
        # Python finds an attribute of the object before this descriptor, so the next access does not call ``__get__``.
        vars(instance)[self._method.__name__] = bound
        return bound
