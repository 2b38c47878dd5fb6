"""Text: LIKE, regular expressions and functions of strings. Lengths and positions are counted in characters, not
bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import expressions as exp

from aggr.arguments import shown
from aggr.sql.function_table import (
    RAW,
    SKIP,
    TEXT,
    Argument,
    Compiler,
    error_name_of,
    kernel_rule,
    literal_argument,
    literal_text,
    optional,
    require_text,
    term_rule,
    whole_number,
)
from aggr.sql.regular_expressions import check_regex_size
from aggr.sql.term import Term, Value, apply
from aggr.sql.types import coerce

# The texts that stand for the wildcards % (any text) and _ (any character) in the list of the parts of a LIKE pattern.
# They have two characters, so that they differ from literal parts, which have one character.
_ANY_TEXT = "\0%"
_ANY_CHARACTER = "\0_"
_STRING = pa.string()
_SEARCH_TEXT = literal_argument("the text that {} searches for")
_REPLACEMENT = literal_argument("the replacement of {}")

_kind: type[exp.Expr]
for _kind, _names, _kernel in (
    (exp.Lower, "lower lcase", pc.utf8_lower),
    (exp.Upper, "upper ucase", pc.utf8_upper),
    (exp.Length, "length len char_length character_length", pc.utf8_length),
    (exp.Reverse, "reverse", pc.utf8_reverse),
):
    kernel_rule(_kind, names=_names, this=TEXT)(_kernel)

for _kind, _names, _kernel in (
    (exp.StartsWith, "startswith starts_with", pc.starts_with),
    (exp.EndsWith, "endswith ends_with", pc.ends_with),
    (exp.Contains, "contains", pc.match_substring),
):
    kernel_rule(_kind, names=_names, this=TEXT, expression=_SEARCH_TEXT)(_kernel)


def _read_escape(compiler: Compiler, node: exp.Expr, name: str) -> str:
    escape = literal_text(compiler, node.args[name], "ESCAPE")
    if escape is None or len(escape) != 1:
        received = "NULL" if escape is None else shown(escape)
        raise ValueError(f"ESCAPE needs exactly one character, such as LIKE '10!%' ESCAPE '!'; got {received}")
    return escape


def like(ignore_case: bool, text: Value, pattern: str, escape: str, negate: bool) -> Value:
    """Return whether each text matches a LIKE pattern completely; with ``negate``, whether it does not.

    ``%`` stands for any text and ``_`` for any character, unless ``escape`` precedes them. As in Spark, ``escape``
    before a character other than ``%``, ``_`` and itself raises ``ValueError``.
    """
    parts = _like_parts(pattern, escape)
    any_before = parts[:1] == [_ANY_TEXT]
    any_after = parts[1:] != [] and parts[-1] is _ANY_TEXT
    inner = parts[any_before : len(parts) - any_after]
    if ignore_case or _ANY_TEXT in inner or _ANY_CHARACTER in inner:
        regex = "".join({_ANY_TEXT: ".*", _ANY_CHARACTER: "."}.get(part) or _escape_for_regex(part) for part in parts)
        check_regex_size(regex)
        matches = pc.match_substring_regex(text, f"(?s)\\A{regex}\\z", ignore_case=ignore_case)
    elif any_before and any_after:
        matches = pc.match_substring(text, "".join(inner))
    elif any_before or any_after:
        find = pc.ends_with if any_before else pc.starts_with
        matches = find(text, "".join(inner))
    else:
        matches = pc.equal(text, pa.scalar("".join(inner)))
    return pc.invert(matches) if negate else matches


def _like_parts(pattern: str, escape: str) -> list[str]:
    parts = list[str]()
    is_escaped = False
    for character in pattern:
        if is_escaped:
            if character not in ("%", "_", escape):
                break
            parts.append(character)
            is_escaped = False
        elif character == escape:
            is_escaped = True
        else:
            parts.append({"%": _ANY_TEXT, "_": _ANY_CHARACTER}.get(character, character))
    if is_escaped:
        raise ValueError(
            f"in the pattern {pattern!r} the escape {escape!r} must be followed by %, _ or itself; write it twice to "
            "match it literally"
        )
    return parts


def _escape_for_regex(character: str) -> str:
    return re.escape(character) if character.isascii() and character.isprintable() else rf"\x{{{ord(character):x}}}"


for _kind in (exp.Like, exp.ILike):
    kernel_rule(
        _kind,
        names=_kind.key,
        error_name="LIKE",
        this=TEXT,
        expression=literal_argument("the pattern of {}"),
        escape=optional(Argument(_read_escape), "\\"),
        negate=optional(RAW, False),
    )(partial(like, _kind is exp.ILike))


def _read_regular_expression(compiler: Compiler, node: exp.Expr, name: str) -> str | None:
    """Return the text of a literal regular expression, or None for NULL.

    Raise ``ValueError`` if RE2 rejects the regular expression, or if its compiled program would be too large.
    """
    regex = literal_text(compiler, node.args[name], f"the regular expression of {error_name_of(node)}")
    if regex is not None:
        check_regex_size(regex)
    try:
        if regex is not None:
            pc.match_substring_regex(pa.array([""]), pattern=regex)
    except pa.ArrowException:
        raise ValueError(
            f"the regular expression {regex!r} is not valid in RE2, which does not support look-arounds, "
            "back-references and possessive quantifiers; write it without them"
        ) from None
    return regex


_REGEX = Argument(_read_regular_expression)


kernel_rule(exp.RegexpLike, names="rlike regexp_like", error_name="RLIKE", this=TEXT, expression=_REGEX)(
    pc.match_substring_regex
)


@kernel_rule(
    exp.RegexpReplace,
    names="regexp_replace",
    error_name="REGEXP_REPLACE",
    null_type=_STRING,
    this=TEXT,
    expression=_REGEX,
    replacement=_REPLACEMENT,
)
def regexp_replace(text: Value, regex: str, replacement: str) -> Value:
    """Return texts in which ``replacement`` replaces all matches of ``regex``.

    ``$1`` in the replacement stands for the first group, as in Spark.
    """
    re2_replacement = _to_re2(replacement)
    try:
        return pc.replace_substring_regex(text, regex, re2_replacement)
    except pa.ArrowException:
        raise ValueError(
            f"the replacement {replacement!r} uses a group that the regular expression {regex!r} does not have; put "
            "parentheses around this group"
        ) from None


def _to_re2(replacement: str) -> str:
    """Convert the replacement of regexp_replace from Spark's to RE2's form: ``$1`` becomes ``\\1``.

    An escaped dollar becomes a plain dollar, because RE2 does not interpret dollars. An escaped backslash remains
    escaped.
    """
    pieces = re.findall(r"\\[$\\]|\$[0-9](?![0-9])|[^$\\]+|.", replacement, re.DOTALL)
    for piece in pieces:
        if piece in ("$", "\\"):
            raise ValueError(
                f"the replacement {replacement!r} of REGEXP_REPLACE is not valid; write $1 for the first group, and "
                "put a backslash before a literal dollar or backslash"
            )
    replacements = {"\\$": "$", "\\\\": "\\\\"}
    return "".join(replacements.get(piece) or (f"\\{piece[1]}" if piece[0] == "$" else piece) for piece in pieces)


_START = whole_number("the start of a substring")
_LENGTH = whole_number("the length of a substring")


@kernel_rule(exp.Substring, names="substr substring", this=TEXT, start=_START, length=optional(_LENGTH, 2**31))
def substring(text: Value, start: int, length: int) -> Value:
    """Return at most ``length`` characters of each text from ``start`` on.

    The first character has the position 1, and the last the position -1.
    """
    if start == 0:
        raise ValueError(
            "positions in a substring count from 1, or from -1 at the end; 0 is not allowed, because "
            "engines treat it differently"
        )
    if length < 0:
        raise ValueError(f"the length of a substring must be at least 0; got {length}")
    begin = start - 1 if start > 0 else start
    return pc.utf8_slice_codeunits(text, begin, None if begin < 0 <= begin + length else begin + length)


def left_or_right(is_left: bool, text: Value, length: int) -> Value:
    """Return the first ``length`` characters of each text; if ``is_left`` is false, the last ``length`` characters."""
    if length < 0:
        raise ValueError(f"{'left' if is_left else 'right'} needs a number of characters of at least 0; got {length}")
    return pc.utf8_slice_codeunits(text, *((0, length) if is_left or length == 0 else (-length, None)))


for _kind in (exp.Left, exp.Right):
    kernel_rule(_kind, names=_kind.key, this=TEXT, expression=_LENGTH)(partial(left_or_right, _kind is exp.Left))


@kernel_rule(
    exp.Trim,
    names="trim ltrim rtrim",
    error_name="TRIM",
    null_type=_STRING,
    this=TEXT,
    expression=optional(literal_argument("the characters that {} removes"), " "),
    position=optional(RAW, "BOTH"),
)
def trim(text: Value, characters: str, position: str) -> Value:
    """Return texts without the characters of ``characters`` at their ends.

    ``position`` selects the ends: BOTH, LEADING or TRAILING.
    """
    trim_kernel = {"BOTH": pc.utf8_trim, "LEADING": pc.utf8_ltrim, "TRAILING": pc.utf8_rtrim}[str(position)]
    return trim_kernel(text, characters) if characters else text


@kernel_rule(
    exp.Replace,
    names="replace",
    error_name="REPLACE",
    null_type=_STRING,
    this=TEXT,
    expression=_SEARCH_TEXT,
    replacement=_REPLACEMENT,
)
def replace(text: Value, old: str, new: str) -> Value:
    """Return texts in which ``new`` replaces all occurrences of ``old``."""
    return pc.replace_substring(text, old, new) if old else text


def _read_concatenated_terms(compiler: Compiler, node: exp.Expr, name: str) -> list[Term]:
    parts = list[exp.Expr]()
    while isinstance(node, exp.DPipe):
        parts.append(node.expression)
        node = node.this
    parts += reversed(node.expressions) if isinstance(node, exp.Concat) else [node]
    return [compiler.term(part) for part in reversed(parts)]


@term_rule(exp.Concat, names="concat", expressions=Argument(_read_concatenated_terms), safe=SKIP)
@term_rule(exp.DPipe, this=Argument(_read_concatenated_terms), expression=SKIP, safe=SKIP)
def concat(parts: Iterable[Term]) -> Term:
    """Return the term for the concatenation of texts and whole numbers. It is null if one of them is null."""
    whole_as_text = [coerce(part, _STRING) if pa.types.is_integer(part.type) else part for part in parts]
    texts = [require_text(part, "CONCAT") for part in whole_as_text]

    def kernel(*values: Value) -> Value:
        return pc.binary_join_element_wise(*values, pa.scalar(""))

    return texts[0] if len(texts) == 1 else apply(kernel, *texts)
