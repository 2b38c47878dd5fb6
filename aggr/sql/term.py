"""Terms: typed expressions that compute a value from columns, whether these are arrays or Arrow's own expressions.

A term knows its Arrow type before any row is seen. The same term runs over the arrays of a table and over
``pyarrow.compute.field`` references, since Arrow's functions take both: there is one compiler, not two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Value = Any  # an Arrow array, a scalar, or a pyarrow.compute.Expression
Kernel = Callable[..., Value]

BOOL = pa.bool_()
NULL = pa.null()


class Source(Protocol):
    """Where the values of columns come from."""

    def column(self, name: str, kind: pa.DataType) -> Value:
        """Give the values of a column as a plain type."""

    def literal(self, value: pa.Scalar) -> Value:
        """Give a constant."""

    @property
    def rows(self) -> int | None:
        """How many rows there are; None where that is not known, as in Arrow's expressions."""

    def where(self, chosen: NDArray[np.bool_]) -> Source:
        """Give the source of some of its rows."""


@dataclass(frozen=True)
class Term:
    """A typed expression.

    Parameters
    ----------
    type : pa.DataType
        The type of its values.
    of : callable of a source -> array, scalar or expression
    literal : pa.Scalar, optional
        Its value, where that is the same for every row.
    """

    type: pa.DataType
    of: Callable[[Source], Value]
    literal: pa.Scalar | None = None

    @property
    def null(self) -> bool:
        """Whether it is NULL, of no type."""
        return bool(pa.types.is_null(self.type))

    @property
    def always_null(self) -> bool:
        """Whether it is null in every row, of whatever type, such as ``nullif(1, 1)``."""
        return self.null or (self.literal is not None and not self.literal.is_valid)


def column(name: str, kind: pa.DataType) -> Term:
    """Make a term of a column."""
    return Term(kind, lambda source: source.column(name, kind))


def constant(value: Any, kind: pa.DataType | None = None) -> Term:
    """Make a term of a constant: a scalar, or a Python value and its type."""
    scalar = value if isinstance(value, pa.Scalar) else pa.scalar(value, kind)
    return Term(scalar.type, lambda source: source.literal(scalar), scalar)


def null(kind: pa.DataType = NULL) -> Term:
    """Make a term of nulls of a type."""
    return constant(pa.scalar(None, kind))


def apply(kernel: Kernel, *terms: Term, kind: pa.DataType | None = None) -> Term:
    """Make a term that computes a kernel of others; where all are constants it is computed now.

    The type is what the kernel gives for empty arrays of their types, unless it is told.
    """
    if all(term.literal is not None for term in terms):
        return constant(kernel(*(term.literal for term in terms)))
    if kind is None:
        kind = kernel(*(sample(term) for term in terms)).type
    return Term(kind, lambda source: kernel(*(term.of(source) for term in terms)))


def sample(term: Term) -> Value:
    """Give no rows of a term's type, or its constant."""
    return term.literal if term.literal is not None else pa.array([], term.type)


def balanced(kernel: Kernel, terms: Iterable[Term]) -> Term:
    """Join many truths by an associative kernel, as a tree whose depth grows with the logarithm of their number."""
    parts = tuple(terms)
    if len(parts) == 1:
        return parts[0]

    def of(source: Source) -> Value:
        # pairs of equal size are joined as soon as there are two, so that few values are held at a time
        held: list[tuple[int, Value]] = []
        for part in parts:
            size, value = 1, part.of(source)
            while held and held[-1][0] == size:
                value = kernel(held.pop()[1], value)
                size *= 2
            held.append((size, value))
        value = held.pop()[1]
        while held:
            value = kernel(held.pop()[1], value)
        return value

    if all(part.literal is not None for part in parts):
        return constant(of(_CONSTANTS))
    return Term(BOOL, of)


def truth(term: Term) -> Term:
    """Take a term as true or false; raises ``ValueError`` for other types."""
    if term.null:
        return null(BOOL)
    if not pa.types.is_boolean(term.type):
        raise ValueError(f"AND, OR, NOT and CASE take conditions; got a value of type {term.type}")
    return term


def known(value: Value) -> Value:
    """Take null as false."""
    return pc.coalesce(value, pa.scalar(False))


class _Constants:
    """The source of constants alone."""

    def column(self, name: str, kind: pa.DataType) -> Value:
        raise ValueError(f"{name!r} is no constant")

    def literal(self, value: pa.Scalar) -> Value:
        return value

    rows = None

    def where(self, chosen: NDArray[np.bool_]) -> _Constants:
        return self


_CONSTANTS = _Constants()
