"""SQL operations on structs and other records: ``m[k]``, ``s.field``, map_keys, map_values and struct.

A record is a struct, a map, or a list of structs with the fields ``key`` and ``value``. Its entries are pairs of a key
and a value (`aggr.arrow.records`).
"""

from __future__ import annotations

from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import expressions as exp

from aggr.arguments import shown
from aggr.arrow.normalize import one_array
from aggr.arrow.records import entry_types, keys_as_lists, look_up, values_as_lists
from aggr.sql.fields import entry_column_of, field_of, name_of
from aggr.sql.function_table import ANY, RAW, SKIP, Argument, Compiler, term_rule
from aggr.sql.term import Kernel, Term, Value, apply, column, null
from aggr.sql.types import coerce, unify_types


class MapValues(exp.Expression, exp.Func):
    """The node of ``map_values(record)``, a function that sqlglot does not define."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True}
    _sql_names: ClassVar[list[str]] = ["MAP_VALUES"]


def on_rows(kernel: Kernel, what: str) -> Kernel:
    """Return a kernel that calls ``kernel`` with arrays of equal length; constants are repeated.

    The returned kernel raises ``ValueError`` if it is called with an Arrow expression. The message then names the
    operation ``what``.
    """

    def compute(*values: Value) -> Value:
        if any(isinstance(value, pc.Expression) for value in values):
            raise ValueError(f"a filter of files cannot use {what}; use it in a key or a measure instead")
        size = next((len(value) for value in values if not isinstance(value, pa.Scalar)), 1)
        arrays = [pa.repeat(value, size) if isinstance(value, pa.Scalar) else one_array(value) for value in values]
        result = kernel(*arrays)
        is_constant = all(isinstance(value, pa.Scalar) for value in values)
        return result[0] if is_constant else result

    return compute


def _read_entry_or_parts(compiler: Compiler, node: exp.Expr, name: str) -> tuple[Term | None, Term | None, Term | None]:
    """Return three terms from which ``m[k]`` is computed: an entry column, the record ``m`` and the key ``k``.

    An entry column contains the value of ``m[k]`` for each row. A table has this column if its rows were repeated for
    each entry of ``m``, by a key such as ``k = each(m)`` (see `aggr.sql.entry_columns`). If the column exists, None is
    returned for the record and the key. Otherwise None is returned for the entry column.
    """
    entry = entry_column_of(node, compiler.schema.names)
    if entry is not None:
        return column(entry, compiler.schema.field(entry).type), None, None
    if len(node.expressions) != 1:
        raise ValueError(
            f"a map or a list of records needs exactly one key in brackets, such as fields['class']; got "
            f"{shown(node.sql(dialect='spark'))}"
        )
    return None, compiler.term(node.this), compiler.term(node.expressions[0])


@term_rule(exp.Bracket, this=Argument(_read_entry_or_parts), expressions=SKIP)
def value_of_key(parts: tuple[Term | None, Term | None, Term | None]) -> Term:
    """Return the term for ``m[k]``, the value of a record for a key.

    ``parts`` is the result of `_read_entry_or_parts`.
    """
    entry, record, key = parts
    if record is None or key is None:
        assert entry is not None
        return entry
    if record.is_untyped_null:
        return null()
    key_type, value_type = _entry_types(record)
    common = key.type
    (key,) = unify_types([key])[0]
    if common != key_type:
        key = _cast_key(key, key_type)
    return apply(on_rows(look_up, "a value by its key"), record, key, kind=value_type)


def _cast_key(key: Term, key_type: pa.DataType) -> Term:
    if key.is_untyped_null:
        return null(key_type)
    if pa.types.is_string(key.type) != pa.types.is_string(key_type):
        raise ValueError(f"the keys have the type {key_type}; got a key of type {key.type}; CAST the key to this type")
    return coerce(key, key_type)


@term_rule(exp.MapKeys, names="map_keys", this=ANY)
def map_keys(record: Term) -> Term:
    """Return the term for the list of the keys of a record."""
    key_type = _entry_types(record)[0]
    return apply(on_rows(keys_as_lists, "map_keys"), record, kind=pa.list_(key_type))


@term_rule(MapValues, names="map_values", this=ANY)
def map_values(record: Term) -> Term:
    """Return the term for the list of the values of a record."""
    value_type = _entry_types(record)[1]
    return apply(on_rows(values_as_lists, "map_values"), record, kind=pa.list_(value_type))


def _entry_types(record: Term) -> tuple[pa.DataType, pa.DataType]:
    try:
        return entry_types(record.type)
    except TypeError as error:
        raise ValueError(str(error)) from None


@term_rule(exp.Dot, this=ANY, expression=RAW)
def field_of_value(record: Term, field: exp.Expr) -> Term:
    """Return the term for a field of a computed struct, such as ``fields[class].p99``."""
    return field_of(record, field.name)


def _read_named_parts(compiler: Compiler, node: exp.Expr, name: str) -> list[tuple[str, Term]]:
    """Return pairs of name and term for the parts of a struct. A part without ``AS name`` must be a column."""
    named_terms = list[tuple[str, Term]]()
    for part in node.expressions:
        value = part.expression if isinstance(part, exp.PropertyEQ) else part
        if isinstance(part, exp.PropertyEQ):
            part_name = part.this.name
        elif isinstance(value, exp.Column):
            part_name = name_of(value).rpartition(".")[2]
        else:
            raise ValueError(f"each part of a struct needs a name; write {value.sql(dialect='spark')} AS name")
        named_terms.append((part_name, compiler.term(value)))
    names = [part_name for part_name, _ in named_terms]
    for part_name in names:
        if names.count(part_name) > 1:
            raise ValueError(f"a struct cannot have two parts called {shown(part_name)}; rename one")
    return named_terms


@term_rule(exp.Struct, names="struct named_struct", expressions=Argument(_read_named_parts))
def struct(named_terms: list[tuple[str, Term]]) -> Term:
    """Return the term for a struct of columns and named values: ``struct(span_id, lower(name) AS name)``."""
    kind = pa.struct([(name, term.type) for name, term in named_terms])

    def kernel(*values: Any) -> Value:
        return pa.StructArray.from_arrays(
            [value.cast(field.type) for value, field in zip(values, kind, strict=True)], fields=list(kind)
        )

    return apply(on_rows(kernel, "a struct"), *(term for _, term in named_terms), kind=kind)


term_rule(exp.PropertyEQ, this=SKIP, expression=SKIP)(null)
