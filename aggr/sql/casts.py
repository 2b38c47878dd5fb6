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
from aggr.sql.function_table import ANY, RAW, Argument, Compiler, optional, term_rule
from aggr.sql.literals import text_as
from aggr.sql.term import BOOL, Term, Value, apply, constant, null
from aggr.sql.times import require_time
from aggr.sql.types import coerce, decimal_type
from aggr.sql.zones import in_zone, to_local

TYPES = {
    **{"BOOLEAN": BOOL, "TINYINT": pa.int8(), "SMALLINT": pa.int16(), "INT": pa.int32(), "BIGINT": pa.int64()},
    **{"FLOAT": pa.float32(), "DOUBLE": pa.float64(), "TEXT": pa.string(), "VARCHAR": pa.string(), "DATE": pa.date32()},
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMPNTZ"), pa.timestamp("us")),
    **dict.fromkeys(("TIMESTAMPTZ", "TIMESTAMPLTZ"), pa.timestamp("us", "UTC")),
}
# the first name of each type in `TYPES`, for error messages
_NAMES = {kind: name for name, kind in reversed(TYPES.items())}

_FLOAT_PATTERN = r"(?i)^[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|nan|inf|infinity)$"
# matches the text of a number, with or without an exponent, that fits the type `_WIDE_DECIMAL`
_DECIMAL_PATTERN = r"^[+-]?0*[0-9]{0,38}(\.[0-9]{0,38})?$|(?i)^[+-]?[0-9]{0,18}(\.[0-9]{0,18})?e[+-]?1?[0-9]$"
_NUMBER_START = r"^[+-]?(\.?[0-9])"
_WIDE_DECIMAL = pa.decimal256(76, 38)


def _read_type(compiler: Compiler, node: exp.Expr, name: str) -> pa.DataType:
    """Return the type that a CAST names. Raise ``ValueError`` for a type that is not supported."""
    type_node = node.args[name]
    type_name = str(getattr(type_node.this, "value", type_node.this))
    digits = [int(part.name) for part in type_node.expressions]
    if type_name == "DECIMAL":
        precision, scale = [*digits, 0][:2] if digits else (10, 0)
        if len(digits) > 2 or not 0 < precision <= 38 or not 0 <= scale <= precision:
            raise ValueError(
                "a decimal has 1 to 38 digits in total, and no more digits after the point than in total; got "
                f"DECIMAL({', '.join(map(str, digits))}); write a type such as DECIMAL(18, 3)"
            )
        return pa.decimal128(precision, scale)
    if type_name not in TYPES or digits:
        raise ValueError(
            f"a CAST to {type_node.sql()} is not supported; the allowed types are {', '.join(TYPES)}, and DECIMAL(18, "
            "3)"
        )
    return in_zone(TYPES[type_name], compiler.timezone)


@term_rule(
    exp.Cast,
    names="cast boolean date double float int string timestamp to_timestamp",
    this=ANY,
    to=Argument(_read_type),
)
@term_rule(exp.TryCast, names="try_cast", this=ANY, to=Argument(_read_type), safe=optional(RAW, False))
def cast(term: Term, target_type: pa.DataType, is_try: bool = False) -> Term:
    """Return the term for a cast to the type ``target_type``.

    Values that cannot be cast raise an error when the term is evaluated. A cast whose result differs between engines
    raises ``ValueError`` immediately. With ``is_try``, as in TRY_CAST, the result is null for a text that is not a
    value of the type, and for a whole number beyond the range of the type. Other casts with ``is_try`` raise
    ``ValueError``.
    """
    source_type = term.type
    from_text = pa.types.is_string(source_type)
    to_text = pa.types.is_string(target_type)
    if term.is_constant_null or source_type == target_type:
        return null(target_type) if term.is_constant_null else term
    if (
        from_text
        and term.literal is not None
        and (pa.types.is_temporal(target_type) or pa.types.is_boolean(target_type))
    ):
        return _cast_text_constant(term.literal.as_py(), target_type, is_try)
    if from_text:
        return _parse_column(term, target_type, is_try)
    if is_try and pa.types.is_integer(source_type) and pa.types.is_integer(target_type):
        return apply(partial(_cast_whole_numbers, kind=target_type), term, kind=target_type)
    if is_try:
        raise ValueError(f"TRY_CAST from {source_type} to {target_type} is not supported; use CAST")
    if (pa.types.is_floating(source_type) or pa.types.is_decimal(source_type)) and pa.types.is_integer(target_type):
        raise ValueError(
            f"a CAST from {source_type} to {target_type} is not supported, because it rounds in DuckDB, but not in "
            "Spark; use floor or round"
        )
    if to_text and not (
        pa.types.is_integer(source_type) or pa.types.is_boolean(source_type) or pa.types.is_date32(source_type)
    ):
        raise ValueError(
            f"a CAST from {source_type} to text is not supported, because engines write such values differently; CAST "
            "only whole numbers, booleans and dates to text"
        )
    if pa.types.is_boolean(target_type) or (pa.types.is_boolean(source_type) and not to_text):
        raise ValueError(
            f"a CAST from {source_type} to {target_type} is not supported; write a comparison, or IF(x, 1, 0)"
        )
    if pa.types.is_date32(target_type):
        return apply(_dates_of, require_time(term, "CAST"), kind=target_type)
    if pa.types.is_timestamp(target_type) and (pa.types.is_timestamp(source_type) or pa.types.is_date32(source_type)):
        nanoseconds = pa.types.is_timestamp(source_type) and source_type.unit == "ns"
        return coerce(term, pa.timestamp("ns", target_type.tz) if nanoseconds else target_type)
    if pa.types.is_timestamp(target_type):
        raise ValueError(
            f"a CAST from {source_type} to a time is not supported; CAST a constant text, a date or another time"
        )
    if not to_text and not (is_number(source_type) and is_number(target_type)):
        raise ValueError(
            f"a CAST from {source_type} to {target_type} is not supported; CAST only numbers and text to a number, and "
            "use epoch for times"
        )
    return _cast_to_decimal(term, target_type) if pa.types.is_decimal(target_type) else coerce(term, target_type)


term_rule(exp.TsOrDsToDate, this=ANY)(partial(cast, target_type=pa.date32()))


def _cast_text_constant(text: str, kind: pa.DataType, is_try: bool) -> Term:
    try:
        return constant(text_as(text, kind))
    except ValueError:
        if is_try:
            return null(kind)
        raise


def _dates_of(value: Value) -> Value:
    """Return the local date of each time, in the time zone that the type of ``value`` contains."""
    return pc.floor_temporal(to_local(value), unit="day").cast(pa.date32())


def _cast_to_decimal(term: Term, kind: pa.DataType) -> Term:
    if pa.types.is_integer(term.type):
        return coerce(coerce(term, decimal_type(term.type)), kind)
    rounding = partial(pc.round, ndigits=kind.scale, round_mode=HALF_AWAY_FROM_ZERO)
    return apply(lambda value: rounding(value).cast(kind), term, kind=kind)


def _parse_column(term: Term, kind: pa.DataType, is_try: bool) -> Term:
    """Return the term that parses a column of text as numbers or dates of the type ``kind``.

    The evaluation of the term raises ``ValueError`` for invalid text. With ``is_try``, invalid text becomes null. In an
    expression of Arrow, invalid text always becomes null. It must not raise an error, because Arrow evaluates every
    branch of CASE for all rows, also for rows for which another branch is chosen.
    """
    if not (is_number(kind) or pa.types.is_date32(kind)):
        raise ValueError(f"a CAST of a column of text to {kind} is not supported; CAST it to a number or to DATE")

    def kernel(value: Value) -> Value:
        parsed_values = _parse_texts(pc.utf8_trim_whitespace(value), kind)
        if not is_try and not isinstance(value, pc.Expression):
            texts, values = (
                pa.array([v.as_py()], v.type) if isinstance(v, pa.Scalar) else v for v in (value, parsed_values)
            )
            invalid_texts = texts.filter(pc.and_(pc.is_null(values), pc.is_valid(texts)))
            if len(invalid_texts):
                type_name = _NAMES.get(kind, str(kind))
                raise ValueError(
                    f"the text {shown(invalid_texts[0].as_py())} cannot be read as {type_name}; TRY_CAST returns null "
                    "for such text"
                )
        return parsed_values

    return apply(kernel, term, kind=kind)


def _parse_texts(text: Value, kind: pa.DataType) -> Value:
    """Return texts as dates or numbers of the type ``kind``. A text that is not such a value becomes null."""
    if pa.types.is_date32(kind):
        day = pc.replace_substring_regex(text, r"[T ].*$", "")
        # Two passes for a text such as 2024-5-1: the first adds a zero to the month, the second adds a zero to the day.
        for _ in range(2):
            day = pc.replace_substring_regex(day, r"-([0-9])(-|$)", r"-0\1\2")
        return _null_unless_match(f"^{DATE}$", day).cast(kind)
    if pa.types.is_floating(kind):
        return pc.replace_substring_regex(_null_unless_match(_FLOAT_PATTERN, text), r"^\+", "").cast(kind)
    if pa.types.is_integer(kind):
        digits = pc.replace_substring_regex(
            _null_unless_match("^[+-]?0*[0-9]{1,38}$", text), r"^([+-]?)0*([0-9])", r"\1\2"
        )
        return _cast_whole_numbers(digits, kind)
    cut = pc.replace_substring_regex(text, r"^([^.]*\.[0-9]{38})[0-9]+$", r"\1")
    number = _null_unless_match(_NUMBER_START, _null_unless_match(_DECIMAL_PATTERN, cut)).cast(_WIDE_DECIMAL)
    rounded = pc.round(_null_if_too_large(number, kind), ndigits=kind.scale, round_mode=HALF_AWAY_FROM_ZERO)
    return _null_if_too_large(rounded, kind).cast(kind)


def _null_unless_match(pattern: str, text: Value) -> Value:
    return pc.if_else(pc.match_substring_regex(text, pattern), text, pa.scalar(None, pa.string()))


def _cast_whole_numbers(value: Value, kind: pa.DataType) -> Value:
    """Return whole numbers as ``kind``, a signed integer type. Numbers beyond the range of this type become null."""
    limit = 2 ** (kind.bit_width - 1)
    wide = pa.decimal128(38, 0)
    number = value.cast(wide)
    low, high = (pa.scalar(Decimal(bound), wide) for bound in (-limit, limit))
    is_in_range = pc.and_kleene(pc.greater_equal(number, low), pc.less(number, high))
    return pc.if_else(is_in_range, number, pa.scalar(None, wide)).cast(kind)


def _null_if_too_large(number: Value, kind: pa.DataType) -> Value:
    """Replace numbers by null if they have too many digits before the point for the decimal type ``kind``."""
    digits = kind.precision - kind.scale
    if digits == 38:
        return number
    bound = pa.scalar(Decimal(10**digits), _WIDE_DECIMAL)
    return pc.if_else(pc.less(pc.abs(number), bound), number, pa.scalar(None, _WIDE_DECIMAL))
