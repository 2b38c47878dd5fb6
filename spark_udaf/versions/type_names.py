"""Parse the names of types that Spark's ``typeof`` returns. Workers need this, because they have no Spark session."""

from __future__ import annotations

import pyarrow as pa

_PLAIN = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
}


def parse_type_name(text: str) -> pa.DataType:
    """Return the Arrow type of a name such as ``"array<struct<a:int,b:decimal(5,2)>>"``.

    Raise ``TypeError`` for a name that cannot be parsed. This includes structs whose field names contain a colon, a
    comma or a bracket, because ``typeof`` does not quote names.
    """
    if text in _PLAIN:
        return _PLAIN[text]
    if text.startswith("decimal("):
        precision, scale = text[len("decimal(") : -1].split(",")
        return pa.decimal128(int(precision), int(scale))
    if text.startswith("interval day") or text.startswith("interval hour") or text.startswith("interval minute"):
        return pa.duration("us")
    if text.startswith("array<"):
        return pa.list_(pa.field("element", parse_type_name(text[len("array<") : -1])))
    if text.startswith("struct<"):
        pairs = [part.partition(":") for part in _split(text[len("struct<") : -1])]
        return pa.struct([(name, parse_type_name(type_name)) for name, _, type_name in pairs])
    raise TypeError(f"a function on this version of PySpark cannot read a column of type {text}; cast it to string")


def _split(text: str) -> list[str]:
    """Split a text at its commas, except those inside brackets."""
    parts = [""]
    depth = 0
    for character in text:
        depth += (character in "<(") - (character in ">)")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts if text else []
