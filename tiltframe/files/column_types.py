"""Declared types: ``--type COL=TYPE``, for where a text file alone does not say what its digits are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from aggr.arguments import shown

_TYPES = {
    "text": pa.string(),
    "int64": pa.int64(),
    "uint64": pa.uint64(),
    "float64": pa.float64(),
    "bool": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
}
_UNITS = {"seconds": "s", "milliseconds": "ms", "microseconds": "us", "nanoseconds": "ns"}
_ALLOWED = f"{', '.join(_TYPES)}, decimal(digits, fraction); of the time column also {', '.join(_UNITS)}"


@dataclass(frozen=True)
class DeclaredTypes:
    """The types of some columns, and the unit of whole numbers in the time column, if they are no milliseconds."""

    types: Mapping[str, pa.DataType]
    unit: str | None = None

    def check(self, time: str, columns: Iterable[str]) -> None:
        """Raise ``ValueError`` for a column that is not read."""
        for name in self.types:
            if name not in columns:
                raise ValueError(f"no key, measure or time reads a column {shown(name)}, of which a type is given")
        kind = self.types.get(time)
        if kind is not None and not (pa.types.is_string(kind) or pa.types.is_temporal(kind) or kind == pa.int64()):
            raise ValueError(
                f"--type {time}={kind}: the time column is text, date, timestamp, int64 (Unix milliseconds), or one "
                f"of {', '.join(_UNITS)}"
            )


def read_declared_types(types: Iterable[str], texts: Iterable[str], time: str) -> DeclaredTypes:
    """Read ``COL=TYPE``, and columns that are text; raises ``ValueError`` for what is none, and contradictions.

    >>> read_declared_types(["zip=int64", "n=decimal(20, 0)", "ts=seconds"], ["id"], "ts").unit
    's'
    """
    declared: dict[str, pa.DataType] = {}
    unit = None
    for given in [*types, *(f"{name}=text" for name in texts)]:
        name, equals, kind = (part.strip() for part in given.rpartition("="))
        if not equals or not name:
            raise ValueError(f"cannot read the type {shown(given)}; write COL=TYPE such as zip=text")
        if name in declared:
            raise ValueError(f"the type of {shown(name)} is given twice; give it once")
        if kind in _UNITS and name != time:
            raise ValueError(f"cannot read the type {shown(given)}: only the time column, {time!r}, is in {kind}")
        unit = _UNITS.get(kind, unit)
        declared[name] = pa.int64() if kind in _UNITS else _type(kind, given)
    return DeclaredTypes(declared, unit)


def _type(kind: str, given: str) -> pa.DataType:
    decimal = re.fullmatch(r"decimal\(\s*([0-9]{1,2})\s*(?:,\s*([0-9]{1,2})\s*)?\)", kind)
    if decimal:
        digits, fraction = int(decimal[1]), int(decimal[2] or 0)
        if not 1 <= digits <= 38 or fraction > digits:
            said = "a decimal has 1 to 38 digits, and at most as many of them a fraction"
            raise ValueError(f"cannot read the type {shown(given)}: {said}")
        return pa.decimal128(digits, fraction)
    if kind not in _TYPES:
        raise ValueError(f"cannot read the type {shown(given)}; there are {_ALLOWED}")
    return _TYPES[kind]
