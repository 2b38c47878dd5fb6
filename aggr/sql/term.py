"""Terms: typed expressions that compute a value from columns, whether these are arrays or Arrow's own expressions.

A term knows its Arrow type before any row is seen. The same term runs over the arrays of a table and over
``pyarrow.compute.field`` references, since Arrow's functions take both: there is one compiler, not two.
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
    """Columns as the arrays of a table."""

    table: pa.Table | pa.RecordBatch

    def column(self, name: str, kind: pa.DataType) -> Value:
        """Return the values of a column as a plain type."""
        values = normalize(self.table.column(name))
        return values.cast(kind) if pa.types.is_timestamp(kind) else values

    def literal(self, value: pa.Scalar) -> Value:
        """Return a constant."""
        return value

    def where(self, chosen: Flags) -> Rows:
        """Choose some of the rows."""
        return Rows(filterable(self.table).filter(pa.array(chosen)))


@dataclass(frozen=True, eq=False)
class Fields:
    """Columns of a schema as references of Arrow's expressions."""

    schema: pa.Schema

    def column(self, name: str, kind: pa.DataType) -> Value:
        """Refer to a column as a plain type."""
        field = pc.field(name)
        return field if self.schema.field(name).type == kind else field.cast(kind)

    def literal(self, value: pa.Scalar) -> Value:
        """Write a constant as an expression."""
        return pc.scalar(value)


Source = Rows | Fields
_NO_COLUMNS = Rows(pa.table({}))


@dataclass(frozen=True)
class Term:
    """A typed expression: what computes its values of a source, and its value if that is the same for every row."""

    type: pa.DataType
    evaluate: Callable[[Source], Value]
    literal: pa.Scalar | None = None

    @property
    def null(self) -> bool:
        """Whether it is NULL, of no type."""
        return bool(pa.types.is_null(self.type))

    @property
    def always_null(self) -> bool:
        """Whether it is null in every row, of whatever type, such as ``nullif(1, 1)``."""
        return self.null or (self.literal is not None and not self.literal.is_valid)

    @property
    def sample(self) -> Value:
        """Its constant, or no rows of its type."""
        return self.literal if self.literal is not None else pa.array([], self.type)


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
    """Make a term that computes a kernel of others; if all are constants it is computed now.

    Without ``kind``, its type is that of the kernel's output for empty arrays of the terms' types.
    """
    if all(term.literal is not None for term in terms):
        return constant(kernel(*(term.literal for term in terms)))
    if kind is None:
        kind = kernel(*(term.sample for term in terms)).type
    return Term(kind, lambda source: kernel(*(term.evaluate(source) for term in terms)))


def balanced(kernel: Kernel, terms: Iterable[Term]) -> Term:
    """Join many truths by an associative kernel, as a tree whose depth grows with the logarithm of their number."""
    parts = tuple(terms)
    if len(parts) == 1:
        return parts[0]

    def evaluate(source: Source) -> Value:
        # pairs of equal size are joined as soon as there are two, so that few values are held at a time
        joined: list[tuple[int, Value]] = []
        for part in parts:
            size, value = 1, part.evaluate(source)
            while joined and joined[-1][0] == size:
                value = kernel(joined.pop()[1], value)
                size *= 2
            joined.append((size, value))
        value = joined.pop()[1]
        while joined:
            value = kernel(joined.pop()[1], value)
        return value

    if all(part.literal is not None for part in parts):
        return constant(evaluate(_NO_COLUMNS))
    return Term(BOOL, evaluate)


def false_if_null(value: Value) -> Value:
    """Take null as false."""
    return pc.coalesce(value, pa.scalar(False))
