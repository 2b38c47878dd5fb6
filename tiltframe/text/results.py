"""Results as text: JSON lines, and cells of CSV; every time as ISO 8601 in the zone of its column."""

from __future__ import annotations

import datetime as dt
import json
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa

from aggr.arrow import compute as pc


def json_lines(table: pa.Table) -> str:
    """Write every row of a table as an object on a line of its own.

    Parameters
    ----------
    table : table
        Of results, nested ones too.

    Returns
    -------
    str
        Times as ISO 8601, lengths of time too; whole numbers with all of their digits, which readers that take them for
        doubles round beyond 2^53; decimals, NaN and infinities as text; bytes as hexadecimal digits.

    Examples
    --------
    >>> print(json_lines(pa.table({"n": [2**63 - 1], "x": [math.nan]})), end="")
    {"n": 9223372036854775807, "x": "NaN"}
    """
    return "".join(json_text(row) + "\n" for row in table.to_pylist())


def json_text(value: Any) -> str:
    """Write a value of a result as JSON."""
    return json.dumps(plain(value), ensure_ascii=False, allow_nan=False)


def iso_times(times: pa.ChunkedArray) -> pa.ChunkedArray:
    """Write instants as ISO 8601 in their zone.

    >>> iso_times(pa.chunked_array([pa.array([0, 500_000], pa.timestamp("us", "UTC"))])).to_pylist()
    ['1970-01-01T00:00:00Z', '1970-01-01T00:00:00.500000Z']
    >>> iso_times(pa.chunked_array([pa.array([0], pa.timestamp("us", "Asia/Tokyo"))])).to_pylist()
    ['1970-01-01T09:00:00+09:00']
    """
    texts = pc.strftime(times, "%Y-%m-%dT%H:%M:%S%z")
    texts = pc.replace_substring_regex(texts, r"\.0+([+-])", r"\1")
    texts = pc.replace_substring_regex(texts, r"([+-]\d\d)(\d\d)$", r"\1:\2")
    return pc.replace_substring_regex(texts, r"\+00:00$", "Z")


def plain(value: Any) -> Any:
    """Write what JSON has no form for as text."""
    if isinstance(value, dict):
        return {name: plain(v) for name, v in value.items()}
    if isinstance(value, list):
        return [plain(v) for v in value]
    if isinstance(value, dt.date):
        return _iso(value)
    if isinstance(value, float) and not math.isfinite(value):
        return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dt.timedelta):
        return _iso_length(value)
    return str(value) if isinstance(value, Decimal | dt.time) else value


def _iso_length(value: dt.timedelta) -> str:
    """Write a length of time in seconds, as ISO 8601 has it.

    >>> _iso_length(dt.timedelta(minutes=1, milliseconds=500)), _iso_length(dt.timedelta(seconds=-2))
    ('PT60.5S', '-PT2S')
    """
    seconds = Decimal(abs(value) // dt.timedelta(microseconds=1)).scaleb(-6)
    return f"{'-' * (value < dt.timedelta())}PT{f'{seconds:f}'.rstrip('0').rstrip('.') or '0'}S"


def _iso(value: dt.date) -> str:
    text = value.isoformat()
    return f"{text[:-6]}Z" if isinstance(value, dt.datetime) and text.endswith("+00:00") else text
