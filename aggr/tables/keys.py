"""Keys by which rows are grouped: columns, values of expressions, and elements of lists.

    {"route": "lower(route)"}      one group per value of an expression
    {"tag": "each(tags)"}          one group per element: a row is in as many groups as its list has elements
    {"class": "each(fields)"}      one group per key of a record: a struct, a map, or a list of {key, value} records

    row  tags                tag  row
    0    ["a", "b"]          a    0
    1    []            ──▶   b    0      rows 1 and 3 have no elements, and are in no group
    2    ["a", "a"]          a    2      row 2 is in the group a twice, once for each element
    3    null                a    2

A struct is a key with the values of all its fields. A null struct and a struct of null fields are different groups, as
in Spark.

Several uses of `each` produce all combinations of their elements. Measures may read a key by its name if no column has
that name. With the key ``{"class": "each(fields)"}``, each repeated row belongs to one entry of ``fields``. Measures
read the value of this entry as ``fields[class]``. These values form an entry column (`aggr.sql.entry_columns`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from aggr import sql
from aggr.arguments import checked_names, is_name, shown
from aggr.arrow import compute as pc
from aggr.arrow import versions
from aggr.arrow.normalize import normalize, normalize_floats, normalized_type, one_array
from aggr.arrow.records import KEY, entries_of, entry_types, is_record
from aggr.arrow.sort_keys import has_order
from aggr.sql.entry_columns import entry_column
from aggr.sql.inputs import columns_in, is_column, possible_columns, quoted, type_in, values_in

Keys = Mapping[str, str]  # a mapping from the name of each key to a column or an expression

_ELEMENT_KEY = re.compile(r"\s*each\s*\((.*)\)\s*", re.IGNORECASE | re.DOTALL)
_KEYS_OF = re.compile(r"\s*map_keys\s*\((.*)\)\s*", re.IGNORECASE | re.DOTALL)
_QUOTED_NAME = re.compile(r"""(['"])([^'"`\\]+)\1""")
_LISTS = (
    *(pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list),
    *(versions.is_list_view, versions.is_large_list_view),
)


class Elements(NamedTuple):
    """The elements of a column of lists or records. Each array has one entry per element, in the order of rows.

    ``rows`` contains the row of each element. ``keys`` contains the elements of lists, or the keys of records.
    ``values`` contains the values of records, and is None for lists.
    """

    rows: np.ndarray[Any, Any]
    keys: pa.Array
    values: pa.Array | None


class KeyPath(NamedTuple):
    """The column, or the field of a column, that a key reads.

    ``column`` is the name of the column. ``path`` is the same name, or the dotted path of a field in the column. If
    ``is_each`` is true, the key is ``each(path)``. Otherwise, the key is ``path``.
    """

    column: str
    path: str
    is_each: bool


class KeyedRows(NamedTuple):
    """Rows with their keys. A row that belongs to several groups is repeated for each of them.

    ``places`` contains the index that each row had before rows were repeated. If rows are not repeated, ``places`` has
    the value None. ``keys`` has the values of each key, one per row.
    """

    rows: pa.Table
    places: np.ndarray[Any, np.dtype[np.intp]] | None
    keys: dict[str, pa.Array]


def each(column: str) -> str:
    """Return the key for the elements of a list, or for the keys of a record. A row is then in one group per element.

    Parameters
    ----------
    column : str
        A column of lists or of records, or an expression such as ``map_keys(fields)``. A row whose list is null or
        empty is not in any group. A row whose list contains an element twice counts twice in the element's group. A
        null element is treated like any other element. A record is a struct (whose null fields count as missing), a
        map, or a list of records with ``key`` and ``value``. Its elements are its keys.

    Returns
    -------
    str
        The text of the key, as used in Python, in JSON and on the command line.

    Raises
    ------
    ValueError
        If ``column`` is not a name.

    Examples
    --------
    >>> each("tags"), each("my tags"), each("map_keys(fields)")
    ('each(tags)', 'each(`my tags`)', 'each(map_keys(fields))')
    """
    if not is_name(column):
        raise ValueError(f"each needs the name of a column of lists, such as each('tags'); got {shown(column)}")
    return f"each({column})" if _is_function_call(column) else f"each({quoted(column)})"


def checked_keys(keys: object, what: str = "keys") -> dict[str, str]:
    """Return keys as name → column or expression. Raise ``ValueError`` if they are not valid.

    ``keys`` is a mapping from each name to a column or an expression, or a list of column names. A key whose text
    equals its name is the column of that name, or the field of a struct. ``what`` contains the word for the keys in
    error messages, such as "keys".

    >>> checked_keys(["host"]), checked_keys({"route": "lower(route)"})
    ({'host': 'host'}, {'route': 'lower(route)'})
    """
    if not isinstance(keys, Mapping):
        return {name: name for name in checked_names(keys, what, "column names, or a dict of name -> expression")}
    for name, text in keys.items():
        if not is_name(name):
            raise ValueError(f"names of {what} must be text that is not blank; got {shown(name)}")
        if not is_name(text):
            raise ValueError(
                f"the key {shown(name)} must be a column or an expression in SQL, such as 'lower(route)'; got "
                f"{shown(text)}"
            )
    return {str(name): str(text) for name, text in keys.items()}


def keys_to_json(keys: Keys) -> list[Any]:
    """Return keys as a list for JSON, which `keys_from_json` reads.

    A key whose text equals its name is converted to this name. Any other key is converted to a dict with one item.
    """
    return [name if name == text else {name: text} for name, text in keys.items()]


def keys_from_json(described: object) -> Any:
    """Return the keys that `keys_to_json` has converted to a list.

    If a key occurs twice in the list, the list of all names is returned, for which `checked_keys` raises an error. An
    object that does not have the form of such a list is returned unchanged. `checked_keys` raises an error for this
    object, unless the object is a mapping with valid keys.
    """
    if not isinstance(described, Iterable) or isinstance(described, str | Mapping):
        return described
    parts = list(described)
    if not all(isinstance(part, str) or (isinstance(part, Mapping) and len(part) == 1) for part in parts):
        return described
    names = [part if isinstance(part, str) else next(iter(part)) for part in parts]
    if len(set(names)) < len(names):
        return names
    return {n: n if isinstance(part, str) else part[n] for n, part in zip(names, parts, strict=True)}


def plain_keys(keys: Keys) -> tuple[str, ...]:
    """Return the names of the keys whose text equals their name, such as ``host`` in ``{"host": "host"}``."""
    return tuple(name for name, text in keys.items() if name == text)


def keys_as_text(keys: Keys) -> str:
    """Return keys as text, such as ``host, route=lower(route)``."""
    return ", ".join(name if name == text else f"{name}={text}" for name, text in keys.items())


def key_columns(keys: Keys, names: Collection[str]) -> tuple[str, ...]:
    """Return the columns among ``names`` that keys read. Raise ``ValueError`` for the same reasons as `columns_in`."""
    read: list[str] = []
    for name, text in keys.items():
        inner = _inside_each(name, text, names)
        if inner is not None and inner in names:
            read.append(inner)
        elif _is_column_of_same_name(name, text, names):
            read.append(text)
        else:
            read += columns_in(inner or text, names)
    return tuple(dict.fromkeys(read))


def key_paths(keys: Keys, names: Collection[str]) -> list[KeyPath]:
    """Return the path of each key that is a column, a field of a column, or ``each`` of one of them.

    >>> keys = {"day": "http.day", "tag": "each(tags)", "hour": "hour(at)"}
    >>> key_paths(keys, ["http", "tags", "at"])
    [KeyPath(column='http', path='http.day', is_each=False), KeyPath(column='tags', path='tags', is_each=True)]
    """
    paths = []
    for name, text in keys.items():
        with suppress(ValueError):  # the frame raises an error for a text that cannot be parsed
            inner = _inside_each(name, text, names)
            source = inner or text
            path = source if source in names else sql.column_of(source)
            column = None if path is None else sql.column_in(path, names)
            if path is not None and column is not None:
                paths.append(KeyPath(column, path, is_each=inner is not None))
    return paths


def columns_keys_may_read(keys: Keys) -> tuple[str, ...]:
    """Return all names in keys that may be columns. The columns of the rows need not be known yet."""
    columns: list[str] = []
    for name, text in keys.items():
        inner = _ELEMENT_KEY.fullmatch(text)
        columns += [text, *possible_columns(inner[1].strip())] if inner and name != text else possible_columns(text)
    return tuple(dict.fromkeys(columns))


def key_fields(keys: Keys, schema: pa.Schema) -> list[pa.Field]:
    """Return the fields of the key columns in tables of states that are reduced from rows of a schema.

    Raises ``TypeError`` for a key whose type cannot be grouped, and ``ValueError`` for the same reasons as
    `columns_in`.
    """
    return [pa.field(name, _key_type(name, text, schema)) for name, text in keys.items()]


def keyed(rows: pa.Table, keys: Keys, needed_columns: Collection[str], timezone: str = "UTC") -> KeyedRows:
    """Return rows with the values of their keys. If a key is ``each`` of a list, a row is repeated for each element.

    The keys and entry columns that are in ``needed_columns`` are added to the rows. An entry column contains, for each
    repeated row, the value of one entry of a record (`aggr.sql.entry_columns`). If rows are repeated, only the columns
    in ``needed_columns`` are repeated, and the others are left out.
    """
    names = rows.column_names
    plain_columns = dict[str, pa.Array]()
    lists = dict[str, Elements]()
    for name, text in keys.items():
        column = _inside_each(name, text, names)
        if column is not None:
            lists[name] = _elements_of(column, rows, timezone)
        elif _is_column_of_same_name(name, text, names) or is_column(text, names):
            plain_columns[name] = key_column(rows.column(text))
        else:
            plain_columns[name] = key_column(values_in(text, rows, timezone))
    if not lists:
        return KeyedRows(_with_columns(rows, plain_columns, needed_columns), None, plain_columns)
    places, elements, element_indices = _combine_elements(lists, rows.num_rows)
    row_places = pa.array(places)
    key_values = {name: elements[name] if name in elements else plain_columns[name].take(row_places) for name in keys}
    needed = [name for name in names if name in needed_columns] or names[:1]
    repeated = rows.select(needed).take(row_places)
    entries = dict[str, pa.Array]()
    for name, record in records_of_keys(keys, names).items():
        values = lists[name].values
        if values is not None and entry_column(record, name) in needed_columns:
            entries[entry_column(record, name)] = values.take(pa.array(element_indices[name]))
    return KeyedRows(_with_columns(repeated, key_values | entries, needed_columns), places, key_values)


def key_column(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column in the form in which keys are grouped.

    All NaN are equal, and both zeros are equal, as in Spark. The fields of a null struct are null.
    """
    if pa.types.is_dictionary(column.type) and not _has_floats(column.type.value_type):
        # A column with a dictionary can be grouped by its codes. Only a dictionary of floats is decoded, because floats
        # that are equal as keys, such as the two zeros, may have different codes.
        return one_array(column)
    return _plain_key_column(column)


def _has_floats(dtype: pa.DataType) -> bool:
    """Return whether a type is a floating-point type or a struct. The fields of a struct may have a floating-point
    type.
    """
    return bool(pa.types.is_floating(dtype) or pa.types.is_struct(dtype))


def _plain_key_column(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column like `key_column`, but always in the type that `key_type` returns: dictionaries are decoded."""
    values = normalize(column)
    dtype = key_type(column.type)
    if not pa.types.is_struct(dtype):
        return normalize_floats(values.cast(dtype))
    fields = [_plain_key_column(field) for field in values.flatten()]
    return pa.StructArray.from_arrays(fields, fields=list(dtype), mask=values.is_null() if values.null_count else None)


def key_type(dtype: pa.DataType) -> pa.DataType:
    """Return the type in which a key column of type ``dtype`` is stored.

    A column of the null type is stored as text. Each field of a struct is stored in the type that `key_type` returns
    for the field.

    >>> key_type(pa.struct({"host": pa.large_string(), "rack": pa.null()}))
    StructType(struct<host: string, rack: string>)
    """
    if pa.types.is_null(dtype):
        return pa.string()
    normalized = normalized_type(dtype)
    if not pa.types.is_struct(normalized):
        return normalized
    return pa.struct([pa.field(field.name, key_type(field.type)) for field in normalized])


def _is_column_of_same_name(name: str, text: str, names: Collection[str]) -> bool:
    """Return whether the key ``name`` is the column of this name, and not an expression or a field of another column.

    ``text`` is the text of the key, and ``names`` are the columns of the rows. The result is also True if there is no
    such column. The caller's look-up of the column then raises the error.
    """
    return name == text and (text in names or sql.column_in(text, names) is None)


def names_with_keys(keys: Keys, names: Collection[str]) -> list[str]:
    """Return the names of all columns that measures may read: columns of the data, keys, and columns with the values of
    the entries of records (`aggr.sql.entry_columns`).
    """
    computed_keys = [name for name, text in keys.items() if name != text and name not in names]
    entries = [entry_column(record, name) for name, record in records_of_keys(keys, names).items()]
    return [*names, *computed_keys, *entries]


def schema_with_keys(keys: Keys, schema: pa.Schema) -> pa.Schema:
    """Return ``schema`` with fields for the keys and the entry columns that `names_with_keys` returns.

    Raise the same errors as `key_fields`.
    """
    names = schema.names
    fields = [pa.field(name, _key_type(name, text, schema)) for name, text in keys.items() if name not in names]
    fields = [field for field in fields if keys[field.name] != field.name]
    for name, record in records_of_keys(keys, names).items():
        value_type = _entry_value_type(_type_of(record, schema))
        if value_type is not None:
            fields.append(pa.field(entry_column(record, name), value_type))
    for field in fields:
        schema = schema.append(field)
    return schema


def records_of_keys(keys: Keys, names: Collection[str]) -> dict[str, str]:
    """Return the record of each key that is ``each(record)`` or ``each(map_keys(record))``, by the name of the key."""
    records = dict[str, str]()
    for name, text in keys.items():
        inner = _inside_each(name, text, names)
        record = None if inner is None else _record_in(inner, names)
        if record is not None:
            records[name] = record
    return records


def _record_in(inner: str, names: Collection[str]) -> str | None:
    """Return the column or path of the record whose keys ``inner`` reads, or None if ``inner`` has another form.

    For example, the result is ``fields`` for the texts ``fields``, ``map_keys(fields)`` and ``fields.key``. ``names``
    are the columns of the rows. The type of the result is not checked, and may be another type than a record.
    """
    if inner in names:
        return inner
    call = _KEYS_OF.fullmatch(inner)
    path = sql.column_of(call[1]) if call else sql.column_of(inner)
    if path is None:
        return None
    parent = path.removesuffix(f".{KEY}")
    is_key_of_records = not call and parent != path and sql.column_in(parent, names) is not None
    return parent if is_key_of_records else path


def _is_function_call(text: str) -> bool:
    """Return whether a text is a call such as ``map_keys(fields)``."""
    return re.fullmatch(r"\s*[A-Za-z_]+\s*\(.*\)\s*", text, re.DOTALL) is not None


def _inside_each(name: str, text: str, names: Collection[str]) -> str | None:
    """Return the column or the expression inside ``each(…)``, or None if the text of the key does not have this form.

    ``names`` are the columns of the rows. A text that equals one of the names, or the name of the key, is itself a
    column, and does not have this form.
    """
    match = None if name == text or text in names else _ELEMENT_KEY.fullmatch(text)
    if match is None:
        return None
    inner = match[1].strip()
    quoted_name = re.fullmatch(r"'([^']+)'|\"([^\"]+)\"", inner)
    column = (quoted_name[1] or quoted_name[2]) if quoted_name else inner
    if column in names:
        return str(column)
    read = columns_in(inner, names)
    path = sql.column_of(inner)
    return path if path in read else inner


def _type_of(text: str, schema: pa.Schema) -> pa.DataType:
    return schema.field(text).type if text in schema.names else type_in(text, schema)


def _entry_value_type(dtype: pa.DataType) -> pa.DataType | None:
    """Return the type of the values of a record.

    Return None if ``dtype`` is not the type of a record, or if `entry_types` raises an error because the fields of a
    struct do not have a common type.
    """
    if not is_record(dtype):
        return None
    try:
        return entry_types(dtype)[1]
    except TypeError:
        return None


def _key_type(name: str, text: str, schema: pa.Schema) -> pa.DataType:
    """Return the type in which the key ``name`` is stored for rows of a schema.

    Raise ``TypeError`` if values of the key cannot be grouped, and ``ValueError`` if ``text`` does not read a column.
    """
    column = _inside_each(name, text, schema.names)
    if column is not None:
        dtype = _type_of(column, schema)
        if is_record(dtype):
            dtype = entry_types(dtype)[0]
        elif not any(is_list(dtype) for is_list in _LISTS):
            raise TypeError(
                f"the key {shown(name)}: each needs a column of lists, or of structs, maps or lists of {{key, value}} "
                f"records; the column {shown(column)} has type {shown(dtype)}"
            )
        else:
            dtype = dtype.value_type
    else:
        dtype = schema.field(text).type if _is_column_of_same_name(name, text, schema.names) else type_in(text, schema)
        _check_not_constant(name, text, schema.names)
    _check_key_type(name, text, dtype, schema.names)
    return key_type(dtype)


def _check_key_type(name: str, text: str, dtype: pa.DataType, names: Collection[str]) -> None:
    """Raise ``TypeError`` if values of the type ``dtype`` cannot be grouped. ``text`` is the expression of the key
    ``name``, and ``names`` are the columns of the rows.
    """
    if pa.types.is_struct(dtype):
        _check_struct(name, quoted(text) if text in names else text, dtype)
    elif any(is_list(dtype) for is_list in _LISTS):
        hint = f"; {each(text)} takes their elements" if text in names else ""
        raise TypeError(f"the key {shown(name)} has type {shown(dtype)}; the type of a key must not be a list{hint}")
    elif not has_order(key_type(dtype)):
        raise TypeError(
            f"the key {shown(name)} has type {shown(dtype)}; use a column of numbers, texts, times, or structs of them"
        )


def _check_struct(path: str, text: str, dtype: pa.DataType) -> None:
    """Raise ``TypeError`` if a struct of the type ``dtype`` cannot be a key. ``path`` is the name of the key, followed
    by the names of the fields that lead to the struct. ``text`` is the expression that computes the struct.
    """
    names = [field.name for field in dtype]
    if not names:
        raise TypeError(f"the key {shown(path)} is a struct without fields; name another key")
    for field in dtype:
        if names.count(field.name) > 1:
            raise TypeError(f"the key {shown(path)} is a struct with two fields called {shown(field.name)}; rename one")
        if pa.types.is_struct(field.type):
            _check_struct(f"{path}.{field.name}", f"{text}.{quoted(field.name)}", field.type)
        elif not has_order(key_type(field.type)):
            plain = next((sibling.name for sibling in dtype if has_order(sibling.type)), None)
            hint = "" if plain is None else f", such as {{{plain!r}: {f'{text}.{quoted(plain)}'!r}}}"
            raise TypeError(
                f"the key {shown(path)} is a struct with the field {shown(field.name)} of type {shown(field.type)}; "
                f"fields of keys must be numbers, texts, times, or structs of them; group by single fields{hint}"
            )


def _check_not_constant(name: str, text: str, names: Collection[str]) -> None:
    """Raise ``ValueError`` if the expression of a key does not read a column, because the key would be constant."""
    if text in names or _is_column_of_same_name(name, text, names) or sql.columns_of(text, "expression"):
        return
    quoted_name = _QUOTED_NAME.fullmatch(text.strip())
    hint = f"quotes enclose text, as in Spark: write `{quoted_name[2]}` for the column" if quoted_name else ""
    hint = hint or "name a column, or leave out the key"
    raise ValueError(f"the key {shown(name)} is the constant {shown(text)}, but a key must use a column; {hint}")


def _as_large_lists(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column of any list type as an array of large lists, whose offsets have 64 bits."""
    lists = one_array(column)
    if pa.types.is_large_list(lists.type):
        return lists
    if not (versions.is_list_view(lists.type) or versions.is_large_list_view(lists.type)):
        return lists.cast(pa.large_list(lists.type.value_field))
    sizes = pc.fill_null(pc.list_value_length(lists).cast(pa.int64()), 0).to_numpy()
    list_ends = np.cumsum(sizes)
    positions = np.arange(list_ends[-1] if len(list_ends) else 0) + np.repeat(
        lists.offsets.to_numpy() - list_ends + sizes, sizes
    )
    values = lists.values.take(pa.array(positions))
    return pa.LargeListArray.from_arrays(pa.array(np.append(0, list_ends)), values, mask=lists.is_null())


def _elements_of(text: str, rows: pa.Table, timezone: str) -> Elements:
    """Return the elements for which ``each(text)`` repeats rows.

    They are the elements of lists, the keys of records, or the ``key`` fields of lists of records.
    """
    names = rows.column_names
    record = _record_in(text, names)
    if record is not None:
        column = rows.column(record) if record in names else values_in(record, rows, timezone)
        if _entry_value_type(column.type) is not None:
            entries = entries_of(column)
            return Elements(entries.rows, key_column(entries.keys), entries.values)
    lists = _as_large_lists(rows.column(text) if text in names else values_in(text, rows, timezone))
    valid_rows = np.flatnonzero(lists.is_valid().to_numpy(zero_copy_only=False))
    valid = lists.drop_null()
    return Elements(valid_rows[pc.list_parent_indices(valid).to_numpy()], key_column(pc.list_flatten(valid)), None)


def _with_columns(rows: pa.Table, columns: Mapping[str, pa.Array], needed: Collection[str]) -> pa.Table:
    """Return ``rows`` with additional columns: those in ``columns`` whose names are in ``needed``. Existing columns of
    ``rows`` are not replaced.
    """
    for name, column in columns.items():
        if name in needed and name not in rows.column_names:
            rows = versions.append_column(rows, name, column)
    return rows


def _combine_elements(
    lists: Mapping[str, Elements], rows: int
) -> tuple[np.ndarray[Any, Any], dict[str, pa.Array], dict[str, np.ndarray[Any, Any]]]:
    """Return all combinations of the elements of each row. A combination has one element of each list of the row.

    ``lists`` has the elements of each list column, by the name of its key, and ``rows`` is the number of rows. The
    function returns the row of each combination and two dicts by the name of the key. The first dict has the element of
    each combination. The second dict has the index of the element in the `Elements` of the key.
    """
    places = np.arange(rows)
    element_indices = dict[str, np.ndarray[Any, Any]]()
    for list_index, (name, elements) in enumerate(lists.items()):
        if list_index == 0:
            places = elements.rows
            element_indices = {name: np.arange(len(elements.rows))}
            continue
        sizes = np.bincount(elements.rows, minlength=rows)
        first_elements = np.cumsum(sizes) - sizes
        repeats = sizes[places]
        parents = np.repeat(np.arange(len(places)), repeats)
        element_offsets = np.arange(len(parents)) - np.repeat(np.cumsum(repeats) - repeats, repeats)
        element_indices = {key_name: indices[parents] for key_name, indices in element_indices.items()}
        element_indices[name] = first_elements[places[parents]] + element_offsets
        places = places[parents]
    is_single = len(lists) == 1
    keys = {
        name: lists[name].keys if is_single else lists[name].keys.take(pa.array(element_indices[name]))
        for name in lists
    }
    return places, keys, element_indices
