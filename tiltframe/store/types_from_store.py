"""Types from the store: choose a type for each column of the rows that contains only nulls, and therefore has the Arrow
type null. With the chosen types, the rows are reduced to states of the same types as the states in the store.
"""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa

from aggr.arrow.normalize import is_number
from aggr.tables.keys import key_columns, key_type, plain_keys
from tiltframe.files.written_numbers import is_number_or_boolean, with_number_columns
from tiltframe.frame import TiltFrame

_NUMBERS = (pa.int64(), pa.float64())
_CANDIDATE_TYPES = (
    *(pa.float64(), pa.int64(), pa.uint64(), pa.string(), pa.bool_(), pa.date32(), pa.float32(), pa.int32()),
    *(pa.timestamp(unit, zone) for unit in ("us", "ms", "ns") for zone in ("UTC", None)),
)


def with_stored_types(
    schema: pa.Schema,
    frame: TiltFrame,
    stored_schema: pa.Schema,
    *,
    change_numbers: bool = False,
    guessed: Collection[str] = (),
) -> pa.Schema:
    """Return the schema of rows with types for columns of type null, as `tiltframe.FrameStore.with_stored_types`
    describes. ``stored_schema`` is the schema of the store's states.
    """
    for name in frame.columns_in(schema.names):
        at = schema.get_field_index(name)
        row_type = schema.field(at).type
        is_key = name in plain_keys(frame.keyed_by)
        if is_key and pa.types.is_struct(row_type):
            changed_type = _with_stored_fields(row_type, stored_schema.field(name).type, change_numbers)
            schema = schema.set(at, pa.field(name, changed_type))
            continue
        is_time = is_key and pa.types.is_string(row_type) and pa.types.is_temporal(stored_schema.field(name).type)
        may_change = (change_numbers and is_number(row_type)) or (
            name in guessed and (is_number_or_boolean(row_type) or is_time)
        )
        is_misfit = may_change and not _fits(schema, frame, stored_schema, name)
        if not (is_misfit or pa.types.is_null(row_type)):
            continue
        candidate_types = [key_type(stored_schema.field(name).type)] if is_key else list(_CANDIDATE_TYPES)
        choices = [
            schema.set(at, pa.field(name, kind))
            for kind in candidate_types
            if not (is_misfit and _loses_fractions(row_type, kind))
        ]
        if name in guessed and is_number_or_boolean(row_type):
            texts = schema.set(at, pa.field(name, pa.string()))
            candidate_types = [
                kind for kind in dict.fromkeys([row_type, *_NUMBERS]) if not _loses_fractions(row_type, kind)
            ]
            choices += [with_number_columns(texts, {name: kind}) for kind in candidate_types]
        schema = next((choice for choice in choices if _fits(choice, frame, stored_schema, name)), schema)
    return schema


def _with_stored_fields(row_type: pa.DataType, stored_type: pa.DataType, change_numbers: bool) -> pa.DataType:
    """Return the type of a key in rows, ``row_type``, changed so that it equals the type of the key in the store, if
    possible.

    A struct gets the fields that the key has in the store, in the order of the store. A field that rows do not have is
    null. Fields without values get the types of the store. With ``change_numbers``, a field of numbers also gets the
    type of the store, provided that this is a type of numbers in which no fractions are lost. Fields that the store
    does not have are left out if they have no values.
    """
    if pa.types.is_null(row_type):
        return stored_type
    if not (pa.types.is_struct(row_type) and pa.types.is_struct(stored_type)):
        are_numbers = is_number(row_type) and is_number(stored_type) and not _loses_fractions(row_type, stored_type)
        return stored_type if change_numbers and are_numbers else row_type
    row_types = {field.name: field.type for field in row_type}
    fields = [
        pa.field(field.name, _with_stored_fields(row_types.pop(field.name, pa.null()), field.type, change_numbers))
        for field in stored_type
    ]
    new_fields = [pa.field(name, dtype) for name, dtype in row_types.items() if not pa.types.is_null(dtype)]
    return pa.struct([*fields, *new_fields])


def _loses_fractions(row_type: pa.DataType, kind: pa.DataType) -> bool:
    """Return whether values of ``row_type`` would lose their fractions in the type ``kind``. This is true if
    ``row_type`` is a floating-point type and ``kind`` an integer type.
    """
    return bool(pa.types.is_floating(row_type) and pa.types.is_integer(kind))


def _fits(schema: pa.Schema, frame: TiltFrame, stored_schema: pa.Schema, name: str) -> bool:
    """Return whether the keys and states that are computed from the column ``name`` of rows with the schema ``schema``
    have the types of the store.
    """
    try:
        states = frame.states_schema(schema)
    except (TypeError, ValueError):
        return False
    read = [column.name for column in frame.states if name in column.input_columns(schema.names)]
    keys = [key for key, text in frame.keyed_by.items() if name in key_columns({key: text}, schema.names)]
    return all(states.field(column).type == stored_schema.field(column).type for column in [*read, *keys])
