"""Records: values by name, stored as a struct, a map, or a list of structs with the fields ``key`` and ``value``.

    {"a": 1, "b": null}                              a struct: a null field is not an entry, because
                                                     Arrow stores missing fields as null
    [("a", 1), ("b", null)]                          a map: a value may be null
    [{"key": "a", "value": 1}, {"key": "a", ...}]    a list of such structs: a key may occur twice

A record has entries, which are pairs of a key and a value. A null record has no entries.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.arguments import shown
from aggr.arrow import compute as pc
from aggr.arrow.normalize import is_number, normalize, normalized_type, one_array

KEY = "key"
VALUE = "value"
_LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)


class Entries(NamedTuple):
    """The entries of a column of records: the row of each entry, in ascending order, its key and its value."""

    rows: NDArray[np.int64]
    keys: pa.Array
    values: pa.Array


def is_list(dtype: pa.DataType) -> bool:
    """Return whether a type is a list whose elements Arrow can flatten."""
    return any(test(dtype) for test in _LISTS)


def is_record(dtype: pa.DataType) -> bool:
    """Return whether a type is a struct, a map, or a list of structs with a key and a value.

    >>> is_record(pa.struct({"a": pa.int64()})), is_record(pa.list_(pa.string()))
    (True, False)
    """
    return pa.types.is_struct(dtype) or pa.types.is_map(dtype) or is_list_of_records(dtype)


def is_list_of_records(dtype: pa.DataType) -> bool:
    """Return whether a type is a list of structs with a key and a value."""
    if not is_list(dtype) or not pa.types.is_struct(dtype.value_type):
        return False
    return {KEY, VALUE} <= {field.name for field in dtype.value_type}


def entry_types(dtype: pa.DataType) -> tuple[pa.DataType, pa.DataType]:
    """Return the type of the keys and the type of the values of records of the type ``dtype``.

    The values of a struct have the common type of its fields. If there is no common type, the values are text.

    Raises ``TypeError`` for a type without entries, and for a struct that has a nested field and no common type.

    >>> entry_types(pa.struct({"a": pa.int64(), "b": pa.float64()}))
    (DataType(string), DataType(double))
    >>> entry_types(pa.struct({"a": pa.int64(), "b": pa.string()}))
    (DataType(string), DataType(string))
    """
    if pa.types.is_map(dtype):
        return normalized_type(dtype.key_type), normalized_type(dtype.item_type)
    if is_list_of_records(dtype):
        element = dtype.value_type
        return normalized_type(element.field(KEY).type), normalized_type(element.field(VALUE).type)
    if not pa.types.is_struct(dtype):
        raise TypeError(
            f"a value of type {shown(dtype)} has no keys; use a struct, a map or a list of {{key, value}} records"
        )
    return pa.string(), _common_field_type(dtype)


def entries_of(column: pa.Array | pa.ChunkedArray) -> Entries:
    """Return the entries of a column of records in the order of rows; raises the same errors as `entry_types`."""
    records = one_array(column)
    key_type, value_type = entry_types(records.type)
    if pa.types.is_struct(records.type):
        return _entries_of_structs(records, value_type)
    lists = records if pa.types.is_map(records.type) else records.cast(pa.large_list(records.type.value_field))
    present_lists = lists.drop_null()
    valid_rows = np.flatnonzero(lists.is_valid().to_numpy(zero_copy_only=False))
    if pa.types.is_map(records.type):
        sizes = np.diff(present_lists.offsets.to_numpy())
        first_entry = present_lists.offsets[0].as_py() if len(present_lists) else 0
        count = int(sizes.sum())
        keys = present_lists.keys.slice(first_entry, count)
        values = present_lists.items.slice(first_entry, count)
    else:
        elements = pc.list_flatten(present_lists)
        sizes = pc.list_value_length(present_lists).to_numpy()
        keys, values = (pc.struct_field(elements, [name]) for name in (KEY, VALUE))
    return Entries(np.repeat(valid_rows, sizes), normalize(keys).cast(key_type), normalize(values).cast(value_type))


def keys_as_lists(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return the keys of each record as a list, which is null for a null record."""
    return _as_lists(column, entries_of(column), KEY)


def values_as_lists(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return the values of each record as a list, which is null for a null record."""
    return _as_lists(column, entries_of(column), VALUE)


def look_up(column: pa.Array | pa.ChunkedArray, keys: pa.Array) -> pa.Array:
    """Look up one key in each record, and return the values. ``keys`` contains the key for each record. If a record
    contains its key several times, the first value is returned. If it does not contain the key, the value is null.

    >>> look_up(pa.array([{"a": 1, "b": 2}, {"a": 3, "b": None}]), pa.array(["b", "b"])).to_pylist()
    [2, None]
    """
    records = one_array(column)
    if pa.types.is_struct(records.type):
        return _look_up_fields(records, keys)
    entries = entries_of(records)
    sought_keys = keys.take(pa.array(entries.rows))
    matches = np.flatnonzero(pc.fill_null(pc.equal(entries.keys, sought_keys), False).to_numpy(zero_copy_only=False))
    matched_rows = entries.rows[matches]
    is_first = np.append(True, matched_rows[1:] != matched_rows[:-1])[: len(matches)]
    positions = np.full(len(records), -1)
    positions[matched_rows[is_first]] = matches[is_first]
    return entries.values.take(pa.array(positions, mask=positions < 0))


def _common_field_type(dtype: pa.DataType) -> pa.DataType:
    """Return the type to which all fields of a struct can be converted: one of their types, int64, float64, a decimal
    or text. Raises ``TypeError`` if only text would be possible, but a field is nested.
    """
    types = list(dict.fromkeys(normalized_type(field.type) for field in dtype if not pa.types.is_null(field.type)))
    if len(types) <= 1:
        return types[0] if types else pa.float64()
    if all(pa.types.is_integer(field_type) and field_type != pa.uint64() for field_type in types):
        return pa.int64()
    if all(pa.types.is_integer(field_type) or pa.types.is_floating(field_type) for field_type in types):
        return pa.float64()
    if all(is_number(field_type) and not pa.types.is_floating(field_type) for field_type in types):
        return _common_decimal_type(types)
    nested = [field.name for field in dtype if pa.types.is_nested(field.type)]
    if nested:
        raise TypeError(
            f"the fields of a record do not have a common type: {', '.join(map(str, types))}; name only fields "
            f"of one type, or leave out {shown(nested[0])}"
        )
    return pa.string()


def _common_decimal_type(types: list[pa.DataType]) -> pa.DataType:
    """Return a decimal type, of at most 38 digits, for the values of several types of integers and decimals."""
    decimals = [dtype for dtype in types if pa.types.is_decimal(dtype)]
    scale = max((dtype.scale for dtype in decimals), default=0)
    digits_of_decimals = max((dtype.precision - dtype.scale for dtype in decimals), default=0)
    has_integers = len(decimals) < len(types)
    digits = max(digits_of_decimals, 20 if has_integers else 0)
    return pa.decimal128(min(38, digits + scale), scale)


def _fields_as(records: pa.StructArray, value_type: pa.DataType) -> list[pa.Array]:
    """Return the fields of a column of structs, each cast to ``value_type``. A field of a null struct is null."""
    return [normalize(pc.struct_field(records, [i])).cast(value_type) for i in range(records.type.num_fields)]


def _entries_of_structs(records: pa.StructArray, value_type: pa.DataType) -> Entries:
    """Return the entries of a column of structs. A field that is null is left out."""
    names = pa.array([field.name for field in records.type], pa.string())
    fields = _fields_as(records, value_type)
    is_present = np.zeros((len(records), len(fields)), np.bool_)
    for index, field in enumerate(fields):
        is_present[:, index] = field.is_valid().to_numpy(zero_copy_only=False)
    rows, field_indices = np.nonzero(is_present)
    values = pa.concat_arrays(fields) if fields else pa.array([], value_type)
    keys = pa.DictionaryArray.from_arrays(pa.array(field_indices.astype(np.int32)), names)
    return Entries(rows, keys, values.take(pa.array(field_indices * len(records) + rows)))


def _look_up_fields(records: pa.StructArray, keys: pa.Array) -> pa.Array:
    """Return, for each struct, the value of the field whose name is the key in the same row of ``keys``. The value is
    null if the structs have no field of this name.
    """
    value_type = entry_types(records.type)[1]
    fields = _fields_as(records, value_type)
    if not fields:
        return pa.nulls(len(records), value_type)
    names = pa.array([field.name for field in records.type], pa.string())
    field_indices = pc.index_in(keys, names)
    is_absent = field_indices.is_null().to_numpy(zero_copy_only=False)
    positions = pc.fill_null(field_indices, 0).to_numpy().astype(np.int64) * len(records) + np.arange(len(records))
    return pa.concat_arrays(fields).take(pa.array(positions, mask=is_absent))


def _as_lists(column: pa.Array | pa.ChunkedArray, entries: Entries, part: str) -> pa.Array:
    sizes = np.bincount(entries.rows, minlength=len(column))
    values: Any = entries.keys if part == KEY else entries.values
    offsets = pa.array(np.append(0, np.cumsum(sizes)).astype(np.int64))
    lists = pa.LargeListArray.from_arrays(offsets, normalize(values), mask=one_array(column).is_null())
    return lists.cast(pa.list_(lists.type.value_type))
