"""to_json: convert values to JSON text, for complete columns at a time."""

from __future__ import annotations

import json
from functools import reduce
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import expressions as exp

from aggr.arguments import shown
from aggr.arrow import versions
from aggr.arrow.normalize import is_number, normalize
from aggr.arrow.records import is_list
from aggr.sql.fields import name_of
from aggr.sql.function_table import Argument, Compiler, term_rule
from aggr.sql.records import on_rows
from aggr.sql.term import Term, apply, null
from aggr.sql.zones import UTC, offset_texts, to_local

_NULL = "null"
_SHORT_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}
_CONTROLS = {
    chr(code): f"\\u{code:04x}" for code in (*range(32), 127) if chr(code) not in _SHORT_ESCAPES and code < 127
}


class ToJson(exp.Expression, exp.Func):
    """The node of ``to_json(value)``, or of ``to_json(column, column)`` for a record of columns."""

    arg_types: ClassVar[dict[str, bool]] = {"expressions": True}
    is_var_len_args: ClassVar[bool] = True
    _sql_names: ClassVar[list[str]] = ["TO_JSON"]


def _read_parts(compiler: Compiler, node: exp.Expr, name: str) -> list[tuple[str | None, Term]]:
    """Return pairs of name and term for the arguments of to_json. The name of a single argument is None."""
    if len(node.expressions) == 1:
        return [(None, compiler.term(node.expressions[0]))]
    parts = list[tuple[str | None, Term]]()
    for part in node.expressions:
        if not isinstance(part, exp.Column):
            raise ValueError(
                "to_json of several values needs plain columns, because it writes their names; got "
                f"{part.sql(dialect='spark')}; "
                "write to_json(struct(… AS name))"
            )
        parts.append((name_of(part).rpartition(".")[2], compiler.term(part)))
    return parts


@term_rule(ToJson, names="to_json", expressions=Argument(_read_parts))
def to_json(parts: list[tuple[str | None, Term]]) -> Term:
    """Return the term for the JSON text of one value, or of a record if ``parts`` have names.

    Values can be numbers, text, booleans, times, lists, structs and maps. Times are written in ISO 8601. NULL stays
    null.
    """
    terms = [term for _, term in parts]
    for term in terms:
        if not term.is_untyped_null:
            _check_type(term.type)
    if len(parts) == 1 and parts[0][0] is None:
        (term,) = terms
        return (
            null(pa.string()) if term.is_untyped_null else apply(on_rows(json_texts, "to_json"), term, kind=pa.string())
        )
    names = [str(name) for name, _ in parts]

    def kernel(*values: pa.Array) -> pa.Array:
        return _object_texts(names, list(values), len(values[0]))

    return apply(on_rows(kernel, "to_json"), *terms, kind=pa.string())


def json_texts(values: pa.Array) -> pa.Array:
    """Return the JSON text of each value. A null value stays null.

    >>> json_texts(pa.array([{"a": 1.0, "b": "x"}, {"a": None, "b": '"'}, None])).to_pylist()
    ['{"a":1.0,"b":"x"}', '{"a":null,"b":"\\\\""}', None]
    """
    values = normalize(values)
    dtype = values.type
    if pa.types.is_struct(dtype):
        fields = [pc.struct_field(values, [position]) for position in range(dtype.num_fields)]
        texts = _object_texts([field.name for field in dtype], fields, len(values))
        return pc.if_else(values.is_valid(), texts, pa.scalar(None, pa.string()))
    if pa.types.is_map(dtype) or is_list(dtype):
        return _list_texts(values)
    if pa.types.is_boolean(dtype):
        return values.cast(pa.string())
    if pa.types.is_floating(dtype):
        return _float_texts(values)
    if is_number(dtype):
        return values.cast(pa.string())
    return _quote_texts(_plain_texts(values))


def _check_type(dtype: pa.DataType) -> None:
    if pa.types.is_struct(dtype):
        for field in dtype:
            _check_type(field.type)
    elif pa.types.is_map(dtype):
        _check_type(dtype.key_type)
        _check_type(dtype.item_type)
    elif is_list(dtype) or pa.types.is_dictionary(dtype):
        _check_type(dtype.value_type)
    elif not _is_plain(dtype):
        raise ValueError(f"to_json cannot write a value of type {shown(dtype)}; CAST it AS STRING")


def _is_plain(dtype: pa.DataType) -> bool:
    types = pa.types
    type_tests = (
        types.is_boolean,
        types.is_string,
        types.is_large_string,
        versions.is_string_view,
        types.is_date,
        types.is_timestamp,
    )
    return is_number(dtype) or types.is_null(dtype) or any(test(dtype) for test in type_tests)


def _object_texts(names: list[str], fields: list[pa.Array], rows: int) -> pa.Array:
    if not names:
        return pa.repeat(pa.scalar("{}"), rows)
    parts: list[Any] = []
    for position, (name, field) in enumerate(zip(names, fields, strict=True)):
        opening = "," if position else "{"
        parts += [
            pa.scalar(f"{opening}{json.dumps(name, ensure_ascii=False)}:"),
            pc.fill_null(json_texts(field), _NULL),
        ]
    return pc.binary_join_element_wise(*parts, pa.scalar("}"), "")


def _list_texts(values: pa.Array) -> pa.Array:
    """Return the JSON text of each list or map. The elements of all lists are converted together."""
    is_map = pa.types.is_map(values.type)
    if is_map:
        entry = pa.struct([("key", values.type.key_type), ("value", values.type.item_type)])
        values = values.cast(pa.list_(entry))
    lists = values.cast(pa.large_list(values.type.value_field))
    sizes = pc.fill_null(pc.list_value_length(lists), 0)
    offsets = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(sizes)])
    elements = lists.flatten()
    texts = _entry_texts(elements) if is_map else pc.fill_null(json_texts(elements), _NULL)
    joined_elements = pc.binary_join(
        pa.LargeListArray.from_arrays(offsets, texts, mask=lists.is_null()).cast(pa.list_(pa.string())), ","
    )
    opening, closing = ("{", "}") if is_map else ("[", "]")
    return pc.binary_join_element_wise(pa.scalar(opening), joined_elements, pa.scalar(closing), "")


def _entry_texts(elements: pa.StructArray) -> pa.Array:
    keys = normalize(pc.struct_field(elements, [0]))
    names = (
        _quote_texts(_plain_texts(keys)) if not pa.types.is_floating(keys.type) else _quote_texts(_float_texts(keys))
    )
    texts = pc.fill_null(json_texts(pc.struct_field(elements, [1])), _NULL)
    return pc.binary_join_element_wise(names, pa.scalar(":"), texts, "")


def _plain_texts(values: pa.Array) -> pa.Array:
    dtype = values.type
    if not pa.types.is_timestamp(dtype):
        return values.cast(pa.string())
    texts = pc.strftime(to_local(values), format="%Y-%m-%dT%H:%M:%S")
    if dtype.tz is None:
        return texts
    return pc.binary_join_element_wise(texts, "Z" if dtype.tz == UTC else offset_texts(values), "")


def _float_texts(values: pa.Array) -> pa.Array:
    """Return floats as text, with the fewest digits that restore them. NaN and infinity become the text null."""
    texts = values.cast(pa.string())
    is_whole = pc.match_substring_regex(texts, r"^-?[0-9]+$")
    texts = pc.if_else(is_whole, pc.binary_join_element_wise(texts, pa.scalar(".0"), ""), texts)
    return pc.if_else(pc.is_finite(values), texts, pa.scalar(_NULL))


def _quote_texts(texts: pa.Array) -> pa.Array:
    """Return texts as JSON strings, in quotes.

    Control characters without a short escape are rare. Texts are searched for them only if any of the texts contains a
    control character.
    """
    escapes = dict(_SHORT_ESCAPES)
    if pc.any(pc.match_substring_regex(texts, "[\\x00-\\x1f]")).as_py():
        escapes |= _CONTROLS
    escaped = reduce(lambda text, pair: pc.replace_substring(text, *pair), escapes.items(), texts)
    return pc.binary_join_element_wise(pa.scalar('"'), escaped, pa.scalar('"'), "")
