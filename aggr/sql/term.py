"""Terms: expressions with an Arrow type, which compute values from columns.

The type does not depend on the rows. A term can be evaluated over the arrays of a table (`Rows`), which gives an array,
and over ``pyarrow.compute.field`` references (`Fields`), which gives an expression of Arrow: Arrow's functions accept
both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from aggr.arrays import Flags
from aggr.arrow.normalize import filterable, normalize

Value = Any  # an Arrow array, a scalar, or a pyarrow.compute.Expression
Kernel = Callable[..., Value]

BOOL = pa.bool_()
NULL = pa.null()


@dataclass(frozen=True, eq=False)
class Rows:
    """A source of columns for the evaluation of terms. Each column is an array from a table."""

    table: pa.Table | pa.RecordBatch

    def column(self, name: str, kind: pa.DataType) -> Value:
        """Return the values of a column as `normalize` returns them. Timestamps are cast to ``kind``."""
        values = normalize(self.table.column(name))
        return values.cast(kind) if pa.types.is_timestamp(kind) else values

    def literal(self, value: pa.Scalar) -> Value:
        """Return the constant ``value`` unchanged."""
        return value

    def where(self, is_selected: Flags) -> Rows:
        """Return a source with only the rows that the mask ``is_selected`` selects."""
        return Rows(filterable(self.table).filter(pa.array(is_selected)))


@dataclass(frozen=True, eq=False)
class Fields:
    """A source of columns for the evaluation of terms. Each column is a reference in an expression of Arrow."""

    schema: pa.Schema

    def column(self, name: str, kind: pa.DataType) -> Value:
        """Return a reference to a column, which is cast to ``kind`` if it has another type."""
        field = pc.field(name)
        return field if self.schema.field(name).type == kind else field.cast(kind)

    def literal(self, value: pa.Scalar) -> Value:
        """Return a constant as an expression."""
        return pc.scalar(value)


Source = Rows | Fields
_NO_COLUMNS = Rows(pa.table({}))


@dataclass(frozen=True)
class Term:
    """An expression of the Arrow type ``type``. ``evaluate`` computes its values from a source, `Rows` or `Fields`.

    ``literal`` is the value of a constant, and None for other terms.
    """

    type: pa.DataType
    evaluate: Callable[[Source], Value]
    literal: pa.Scalar | None = None

    @property
    def is_untyped_null(self) -> bool:
        """Whether the term is NULL without a type, which can become null of any type."""
        return bool(pa.types.is_null(self.type))

    @property
    def is_constant_null(self) -> bool:
        """Whether the term is a constant null, with or without a type, such as ``nullif(1, 1)``."""
        return self.is_untyped_null or (self.literal is not None and not self.literal.is_valid)

    @property
    def sample(self) -> Value:
        """The constant, or for other terms an empty array of the type.

        Kernels are called with samples to find out the type of their results.
        """
        return self.literal if self.literal is not None else pa.array([], self.type)


def column(name: str, kind: pa.DataType) -> Term:
    """Return the term of the column ``name``, whose values have the type ``kind``."""
    return Term(kind, lambda source: source.column(name, kind))


def constant(value: Any, kind: pa.DataType | None = None) -> Term:
    """Return the term of a constant. ``value`` is a scalar, or a Python value of the type ``kind``."""
    scalar = value if isinstance(value, pa.Scalar) else pa.scalar(value, kind)
    return Term(scalar.type, lambda source: source.literal(scalar), scalar)


def null(kind: pa.DataType = NULL) -> Term:
    """Return the term of a null of the type ``kind``."""
    return constant(pa.scalar(None, kind))


def apply(kernel: Kernel, *terms: Term, kind: pa.DataType | None = None) -> Term:
    """Return a term that applies a kernel (a function of arrays) to the values of other terms.

    If all terms are constants, the result is a constant. ``kind`` is the type of the result. Without it, the kernel is
    called with the `Term.sample` of each term, to find out the type.
    """
    if all(term.literal is not None for term in terms):
        return constant(kernel(*(term.literal for term in terms)))
    if kind is None:
        kind = kernel(*(term.sample for term in terms)).type
    return Term(kind, lambda source: kernel(*(term.evaluate(source) for term in terms)))


def combine_balanced(kernel: Kernel, terms: Iterable[Term]) -> Term:
    """Return a term that combines boolean terms by an associative kernel of two values.

    The calls of the kernel form a tree of logarithmic depth.
    """
    parts = tuple(terms)
    if len(parts) == 1:
        return parts[0]

    def evaluate(source: Source) -> Value:
        # ``partial_results`` contains pairs: a number of terms, and the value that combines them. Two values that
        # combine the same number of terms are immediately combined, so that few values are in memory at a time.
        partial_results: list[tuple[int, Value]] = []
        for part in parts:
            size = 1
            value = part.evaluate(source)
            while partial_results and partial_results[-1][0] == size:
                value = kernel(partial_results.pop()[1], value)
                size *= 2
            partial_results.append((size, value))
        value = partial_results.pop()[1]
        while partial_results:
            value = kernel(partial_results.pop()[1], value)
        return value

    if all(part.literal is not None for part in parts):
        return constant(evaluate(_NO_COLUMNS))
    return Term(BOOL, evaluate)


def false_if_null(value: Value) -> Value:
    """Return booleans with false in place of null."""
    return pc.coalesce(value, pa.scalar(False))
