"""Casts: CAST and TRY_CAST, also of text to numbers and dates.

Both functions parse text in the same way. For a text that is not a value of the type, CAST raises an error, and
TRY_CAST returns null. Blanks around a value are ignored. A text with a point or an exponent is not a whole number, as
in Spark.
"""

from __future__ import annotations

from decimal import Decimal
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import expressions as exp

from aggr.arguments import shown
from aggr.arrow.normalize import is_number
from aggr.iso8601 import DATE
from aggr.sql.arithmetic import HALF_AWAY_FROM_ZERO
from aggr.sql.function_table import ANY, RAW, Argument, Compiler, maybe, reads
from aggr.sql.literals import text_as
from aggr.sql.term import BOOL, Term, Value, apply, constant, null
from aggr.sql.times import require_time
from aggr.sql.types import coerce, decimal_type
from aggr.sql.zones import in_zone

TYPES = {
    **{"BOOLEAN": BOOL, "TINYINT": pa.int8(), "SMALLINT": pa.int16(), "INT": pa.int32(), "BIGINT": pa.int64()},
    **{"FLOAT": pa.float32(), "DOUBLE": pa.float64(), "TEXT": pa.string(), "VARCHAR": pa.string(), "DATE": pa.date32()},
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMPNTZ"), pa.timestamp("us")),
    **dict.fromkeys(("TIMESTAMPTZ", "TIMESTAMPLTZ"), pa.timestamp("us", "UTC")),
}
# the name of each type in error messages, which is its first name in `TYPES`
_NAMES = {kind: name for name, kind in reversed(TYPES.items())}

_FLOAT = r"(?i)^[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|nan|inf|infinity)$"
# texts of numbers that fit the type _WIDE
_PLAIN = r"^[+-]?0*[0-9]{0,38}(\.[0-9]{0,38})?$|(?i)^[+-]?[0-9]{0,18}(\.[0-9]{0,18})?e[+-]?1?[0-9]$"
_BEGINS = r"^[+-]?(\.?[0-9])"
_WIDE = pa.decimal256(76, 38)


def _type(compiler: Compiler, node: exp.Expr, name: str) -> pa.DataType:
    """Return the type that a CAST names. Raise ``ValueError`` for a type that is not supported."""
    written = node.args[name]
    word = str(getattr(written.this, "value", written.this))
    digits = [int(part.name) for part in written.expressions]
    if word == "DECIMAL":
        precision, scale = [*digits, 0][:2] if digits else (10, 0)
        if len(digits) > 2 or not 0 < precision <= 38 or not 0 <= scale <= precision:
            raise ValueError(
                "a decimal has 1 to 38 digits, and at most as many after the point; got "
                f"DECIMAL({', '.join(map(str, digits))}); write a type such as DECIMAL(18, 3)"
            )
        return pa.decimal128(precision, scale)
    if word not in TYPES or digits:
        raise ValueError(
            f"a CAST to {written.sql()} is not supported; the allowed types are {', '.join(TYPES)}, and DECIMAL(18, 3)"
        )
    return in_zone(TYPES[word], compiler.timezone)


@reads(exp.Cast, names="cast boolean date double float int string timestamp to_timestamp", this=ANY, to=Argument(_type))
@reads(exp.TryCast, names="try_cast", this=ANY, to=Argument(_type), safe=maybe(RAW, False))
def cast(term: Term, kind: pa.DataType, attempt: bool = False) -> Term:
    """Return the term for a cast to the type ``kind``.

    Values that cannot be cast raise an error when the term is evaluated. A cast whose result differs between engines
    raises ``ValueError`` immediately. With ``attempt``, as in TRY_CAST, the result is null for a text that is not a
    value of the type, and for a whole number beyond the range of the type. Other casts with ``attempt`` raise
    ``ValueError``.
    """
    old = term.type
    from_text, to_text = pa.types.is_string(old), pa.types.is_string(kind)
    if term.always_null or old == kind:
        return null(kind) if term.always_null else term
    if from_text and term.literal is not None and (pa.types.is_temporal(kind) or pa.types.is_boolean(kind)):
        return _written(term.literal.as_py(), kind, attempt)
    if from_text:
        return _read_column(term, kind, attempt)
    if attempt and pa.types.is_integer(old) and pa.types.is_integer(kind):
        return apply(partial(_whole_within, kind=kind), term, kind=kind)
    if attempt:
        raise ValueError(f"TRY_CAST from {old} to {kind} is not supported; use CAST")
    if (pa.types.is_floating(old) or pa.types.is_decimal(old)) and pa.types.is_integer(kind):
        raise ValueError(
            f"a CAST from {old} to {kind} is not supported, because it rounds in DuckDB, but not in Spark; use "
            "floor or round"
        )
    if to_text and not (pa.types.is_integer(old) or pa.types.is_boolean(old) or pa.types.is_date32(old)):
        raise ValueError(
            f"a CAST from {old} to text is not supported, because engines write such values differently; CAST only "
            "whole numbers, booleans and dates to text"
        )
    if pa.types.is_boolean(kind) or (pa.types.is_boolean(old) and not to_text):
        raise ValueError(f"a CAST from {old} to {kind} is not supported; write a comparison, or IF(x, 1, 0)")
    if pa.types.is_date32(kind):
        return apply(_date_of, require_time(term, "CAST"), kind=kind)
    if pa.types.is_timestamp(kind) and (pa.types.is_timestamp(old) or pa.types.is_date32(old)):
        nanoseconds = pa.types.is_timestamp(old) and old.unit == "ns"
        return coerce(term, pa.timestamp("ns", kind.tz) if nanoseconds else kind)
    if pa.types.is_timestamp(kind):
        raise ValueError(f"a CAST from {old} to a time is not supported; CAST a constant text, a date or another time")
    if not to_text and not (is_number(old) and is_number(kind)):
        raise ValueError(
            f"a CAST from {old} to {kind} is not supported; CAST only numbers and text to a number, and use epoch for "
            "times"
        )
    return _rounded(term, kind) if pa.types.is_decimal(kind) else coerce(term, kind)


reads(exp.TsOrDsToDate, this=ANY)(partial(cast, kind=pa.date32()))


def _written(text: str, kind: pa.DataType, attempt: bool) -> Term:
    try:
        return constant(text_as(text, kind))
    except ValueError:
        if attempt:
            return null(kind)
        raise


def _date_of(value: Value) -> Value:
    """Return the date of each time, in the zone of its type."""
    return pc.floor_temporal(pc.local_timestamp(value), unit="day").cast(pa.date32())


def _rounded(term: Term, kind: pa.DataType) -> Term:
    if pa.types.is_integer(term.type):
        return coerce(coerce(term, decimal_type(term.type)), kind)
    rounding = partial(pc.round, ndigits=kind.scale, round_mode=HALF_AWAY_FROM_ZERO)
    return apply(lambda value: rounding(value).cast(kind), term, kind=kind)


def _read_column(term: Term, kind: pa.DataType, attempt: bool) -> Term:
    """Return the term that parses a column of text as numbers or dates of the type ``kind``.

    The evaluation of the term raises ``ValueError`` for a text that is not such a value. With ``attempt``, such a text
    becomes null. In an expression of Arrow, it becomes null also without ``attempt``: Arrow evaluates every branch of
    CASE for all rows, and must not raise an error for a row that does not take the branch.
    """
    if not (is_number(kind) or pa.types.is_date32(kind)):
        raise ValueError(f"a CAST of a column of text to {kind} is not supported; CAST it to a number or to DATE")

    def kernel(value: Value) -> Value:
        read = _read(pc.utf8_trim_whitespace(value), kind)
        if not attempt and not isinstance(value, pc.Expression):
            texts, values = (pa.array([v.as_py()], v.type) if isinstance(v, pa.Scalar) else v for v in (value, read))
            wrong = texts.filter(pc.and_(pc.is_null(values), pc.is_valid(texts)))
            if len(wrong):
                named = _NAMES.get(kind, str(kind))
                raise ValueError(
                    f"the text {shown(wrong[0].as_py())} cannot be read as {named}; TRY_CAST returns null for such text"
                )
        return read

    return apply(kernel, term, kind=kind)


def _read(text: Value, kind: pa.DataType) -> Value:
    """Return texts as dates or numbers of the type ``kind``. A text that is not such a value becomes null."""
    if pa.types.is_date32(kind):
        day = pc.replace_substring_regex(text, r"[T ].*$", "")
        for _ in range(2):  # adds a zero to a month and to a day of one digit, such as in 2024-5-1
            day = pc.replace_substring_regex(day, r"-([0-9])(-|$)", r"-0\1\2")
        return _where(f"^{DATE}$", day).cast(kind)
    if pa.types.is_floating(kind):
        return pc.replace_substring_regex(_where(_FLOAT, text), r"^\+", "").cast(kind)
    if pa.types.is_integer(kind):
        digits = pc.replace_substring_regex(_where("^[+-]?0*[0-9]{1,38}$", text), r"^([+-]?)0*([0-9])", r"\1\2")
        return _whole_within(digits, kind)
    cut = pc.replace_substring_regex(text, r"^([^.]*\.[0-9]{38})[0-9]+$", r"\1")
    number = _where(_BEGINS, _where(_PLAIN, cut)).cast(_WIDE)
    rounded = pc.round(_below(number, kind), ndigits=kind.scale, round_mode=HALF_AWAY_FROM_ZERO)
    return _below(rounded, kind).cast(kind)


def _where(pattern: str, text: Value) -> Value:
    return pc.if_else(pc.match_substring_regex(text, pattern), text, pa.scalar(None, pa.string()))


def _whole_within(value: Value, kind: pa.DataType) -> Value:
    """Return whole numbers as ``kind``, a signed integer type. Numbers beyond the range of this type become null."""
    end = 2 ** (kind.bit_width - 1)
    wide = pa.decimal128(38, 0)
    number = value.cast(wide)
    low, high = (pa.scalar(Decimal(bound), wide) for bound in (-end, end))
    inside = pc.and_kleene(pc.greater_equal(number, low), pc.less(number, high))
    return pc.if_else(inside, number, pa.scalar(None, wide)).cast(kind)


def _below(number: Value, kind: pa.DataType) -> Value:
    """Replace numbers by null if they have too many digits before the point for the decimal type ``kind``."""
    digits = kind.precision - kind.scale
    if digits == 38:
        return number
    bound = pa.scalar(Decimal(10**digits), _WIDE)
    return pc.if_else(pc.less(pc.abs(number), bound), number, pa.scalar(None, _WIDE))
