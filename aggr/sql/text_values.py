"""Values in text: the numbers and dates that a column of text writes; null where it writes none.

One reading serves CAST and TRY_CAST: what the one refuses is null by the other. Blanks around a value do not count; a
text with a point or an exponent is no whole number, as in Spark.
"""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from aggr.arguments import shown
from aggr.kernels.normalize import is_number
from aggr.sql.term import Term, Value, apply

_FLOAT = r"(?i)^[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|nan|inf|infinity)$"
_PLAIN = r"^[+-]?0*[0-9]{0,38}(\.[0-9]{0,38})?$|(?i)^[+-]?[0-9]{0,18}(\.[0-9]{0,18})?e[+-]?1?[0-9]$"  # fits _WIDE
_BEGINS = r"^[+-]?(\.?[0-9])"
_LEAP = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
_DATE = (
    "^(?:[0-9]{4}-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)|"
    rf"{_LEAP}-02-29)$"
)
_WIDE = pa.decimal256(76, 38)
_NAMES = {"double": "DOUBLE", "float": "FLOAT", "int32": "INT", "int64": "BIGINT", "date32[day]": "DATE"}


def read_values(term: Term, kind: pa.DataType, attempt: bool) -> Term:
    """Read a column of text as numbers or dates; what is none is an error.

    It is null with ``attempt``, and in an expression of Arrow, which cannot tell that a row has not taken a branch.
    """
    if not (is_number(kind) or pa.types.is_date32(kind)):
        raise ValueError(f"a CAST of a column of text to {kind} is not known; CAST it to numbers or DATE")

    def kernel(value: Value) -> Value:
        found = _read(pc.utf8_trim_whitespace(value), kind)
        return found if attempt or isinstance(value, pc.Expression) else _checked(found, value, kind)

    return apply(kernel, term, kind=kind)


def whole_within(value: Value, kind: pa.DataType) -> Value:
    """Give whole numbers in a narrower type; null beyond it."""
    bits = kind.bit_width
    low, high = (0, 2**bits) if pa.types.is_unsigned_integer(kind) else (-(2 ** (bits - 1)), 2 ** (bits - 1))
    number = value.cast(pa.decimal128(38, 0))
    inside = pc.and_kleene(pc.greater_equal(number, _decimal(low)), pc.less(number, _decimal(high)))
    return pc.if_else(inside, number, pa.scalar(None, pa.decimal128(38, 0))).cast(kind)


def _read(text: Value, kind: pa.DataType) -> Value:
    if pa.types.is_date32(kind):
        day = pc.replace_substring_regex(text, r"[T ].*$", "")
        for _ in range(2):  # 2024-5-1
            day = pc.replace_substring_regex(day, r"-([0-9])(-|$)", r"-0\1\2")
        return _where(_DATE, day).cast(kind)
    if pa.types.is_floating(kind):
        return pc.replace_substring_regex(_where(_FLOAT, text), r"^\+", "").cast(kind)
    if pa.types.is_integer(kind):
        digits = pc.replace_substring_regex(_where("^[+-]?0*[0-9]{1,38}$", text), r"^([+-]?)0*([0-9])", r"\1\2")
        return whole_within(digits, kind)
    cut = pc.replace_substring_regex(text, r"^([^.]*\.[0-9]{38})[0-9]+$", r"\1")
    number = _where(_BEGINS, _where(_PLAIN, cut)).cast(_WIDE)
    rounded = pc.round(_below(number, kind), ndigits=kind.scale, round_mode="half_towards_infinity")
    return _below(rounded, kind).cast(kind)


def _where(pattern: str, text: Value) -> Value:
    return pc.if_else(pc.match_substring_regex(text, pattern), text, pa.scalar(None, pa.string()))


def _below(number: Value, kind: pa.DataType) -> Value:
    """Give numbers that have no more digits before the point than a type of decimals; others as null."""
    whole = kind.precision - kind.scale
    if whole == 38:
        return number
    most = pa.scalar(Decimal(10**whole), _WIDE)
    return pc.if_else(pc.less(pc.abs(number), most), number, pa.scalar(None, _WIDE))


def _decimal(value: int) -> pa.Scalar:
    return pa.scalar(Decimal(value), pa.decimal128(38, 0))


def _checked(found: Value, text: Value, kind: pa.DataType) -> Value:
    if isinstance(text, pa.Scalar):
        text, values = pa.array([text.as_py()], pa.string()), pa.array([found.as_py()], kind)
    else:
        values = found
    wrong = text.filter(pc.and_(pc.is_null(values), pc.is_valid(text)))
    if len(wrong):
        named = {"double": "DOUBLE", "float": "FLOAT", "int64": "BIGINT", "date32[day]": "DATE"}.get(
            str(kind), str(kind)
        )
        raise ValueError(f"the text {shown(wrong[0].as_py())} is no {named}; TRY_CAST gives null for it")
    return found
