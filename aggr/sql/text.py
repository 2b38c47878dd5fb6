"""Text: LIKE, regular expressions and functions of strings. Lengths and places count characters, not bytes."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from aggr.sql.term import BOOL, Kernel, Term, Value, apply, null

_SPACE = " "
_TRIMS = {"BOTH": pc.utf8_trim, "LEADING": pc.utf8_ltrim, "TRAILING": pc.utf8_rtrim}


def text(term: Term, what: str) -> Term:
    """Take a term as text; raises ``ValueError`` for other types."""
    if term.null:
        return null(pa.string())
    if not pa.types.is_string(term.type):
        raise ValueError(f"{what} takes text, got {term.type}; CAST it AS STRING")
    return term


def constant_text(term: Term, what: str) -> str | None:
    """Read a constant text, None for NULL; raises ``ValueError`` where it is not written out."""
    if term.null:
        return None
    if term.literal is None or not pa.types.is_string(term.type):
        raise ValueError(f"{what} must be written out, as a text in quotes")
    value: str | None = term.literal.as_py()
    return value


def like(term: Term, pattern: Term, escape: str, ignore_case: bool) -> Term:
    """Match the whole text with a pattern: ``%`` is any text, ``_`` any character, each itself after ``escape``.

    Raises ``ValueError`` where the escape stands before anything but ``%``, ``_`` and itself, as Spark does.
    """
    term, written = text(term, "LIKE"), constant_text(pattern, "the pattern of LIKE")
    if written is None:
        return null(BOOL)
    parts = _like_parts(written, escape)
    if not ignore_case:
        fixed = "".join(part for part in parts if part not in (_ANY, _ONE))
        ends = (bool(parts) and parts[0] is _ANY, bool(parts) and parts[-1] is _ANY)
        inner = parts[ends[0] : len(parts) - ends[1]]
        if _ANY not in inner and _ONE not in inner and not (len(parts) == 1 and parts[0] is _ANY):
            return _fixed(term, fixed, ends)
    regex = "".join({_ANY: ".*", _ONE: "."}.get(part) or _quoted(part) for part in parts)
    return _regex(term, f"(?s)\\A{regex}\\z", ignore_case)


_ANY, _ONE = "\0%", "\0_"  # no part of a pattern is equal to them: parts are single characters


def _like_parts(written: str, escape: str) -> list[str]:
    parts, escaped = list[str](), False
    for character in written:
        if escaped:
            if character not in ("%", "_", escape):
                break
            parts.append(character)
            escaped = False
        elif character == escape:
            escaped = True
        else:
            parts.append({"%": _ANY, "_": _ONE}.get(character, character))
    if escaped:
        raise ValueError(
            f"in the pattern {written!r} the escape {escape!r} must stand before %, _ or itself; write it twice"
        )
    return parts


def _fixed(term: Term, fixed: str, ends: tuple[bool, bool]) -> Term:
    match ends:
        case (True, True):
            return apply(lambda value: pc.match_substring(value, pattern=fixed), term, kind=BOOL)
        case (False, True):
            return apply(lambda value: pc.starts_with(value, pattern=fixed), term, kind=BOOL)
        case (True, False):
            return apply(lambda value: pc.ends_with(value, pattern=fixed), term, kind=BOOL)
    return apply(lambda value: pc.equal(value, pa.scalar(fixed)), term, kind=BOOL)


def _quoted(character: str) -> str:
    return re.escape(character) if character.isascii() and character.isprintable() else rf"\x{{{ord(character):x}}}"


def _regex(term: Term, regex: str, ignore_case: bool = False) -> Term:
    return apply(lambda v: pc.match_substring_regex(v, pattern=regex, ignore_case=ignore_case), term, kind=BOOL)


def rlike(term: Term, pattern: Term) -> Term:
    """Say whether a regular expression of RE2 is found anywhere in the text; raises ``ValueError`` where it is none."""
    term, regex = text(term, "RLIKE"), constant_text(pattern, "the regular expression of RLIKE")
    if regex is None:
        return null(BOOL)
    _check_regex(regex)
    return _regex(term, regex)


def regex_replaced(term: Term, pattern: Term, new: Term) -> Term:
    """Replace whatever a regular expression of RE2 finds; ``$1`` in the new text is the first group, as in Spark."""
    regex = constant_text(pattern, "the regular expression of REGEXP_REPLACE")
    written = constant_text(new, "what REGEXP_REPLACE puts")
    if regex is None or written is None:
        return null(pa.string())
    _check_regex(regex)
    put = _of_re2(written)
    try:
        pc.replace_substring_regex(pa.array([""]), pattern=regex, replacement=put)
    except pa.ArrowException:
        raise ValueError(f"{written!r} names a group that the regular expression {regex!r} does not have") from None
    return apply(
        lambda value: pc.replace_substring_regex(value, pattern=regex, replacement=put),
        text(term, "REGEXP_REPLACE"),
        kind=pa.string(),
    )


def _of_re2(replacement: str) -> str:
    """Write groups as RE2 has them: ``$1`` as ``\\1``, and a backslash twice."""
    pieces = re.findall(r"\\[$\\]|\$[0-9](?![0-9])|[^$\\]+|.", replacement, re.DOTALL)
    for piece in pieces:
        if piece in ("$", "\\"):
            raise ValueError(
                f"REGEXP_REPLACE puts {replacement!r}: write $1 for the first group, and a backslash before a dollar "
                "or a backslash that stands for itself"
            )
    named = {"\\$": "$", "\\\\": "\\\\"}
    return "".join(named.get(piece) or (f"\\{piece[1]}" if piece[0] == "$" else piece) for piece in pieces)


def _check_regex(regex: str) -> None:
    try:
        pc.match_substring_regex(pa.array([""]), pattern=regex)
    except pa.ArrowException:
        raise ValueError(
            f"the regular expression {regex!r} is none of RE2's: look-arounds, references back and possessive "
            "quantifiers are not known"
        ) from None


def contains(kernel: Kernel, term: Term, pattern: Term, what: str) -> Term:
    """Look for a constant text by one of Arrow's kernels."""
    term, written = text(term, what), constant_text(pattern, f"what {what} looks for")
    if written is None:
        return null(BOOL)
    return apply(lambda value: kernel(value, pattern=written), term, kind=BOOL)


def substring(term: Term, start: int, length: int | None) -> Term:
    """Cut out a part of the text; places count from 1, or from -1 at the end."""
    term = text(term, "substring")
    if start == 0:
        raise ValueError("substring counts from 1, or from -1 at the end; engines differ in what 0 is")
    if length is not None and length < 0:
        raise ValueError(f"the length of a substring must be 0 or more; got {length}")
    begin = start - 1 if start > 0 else start
    stop = None if length is None or (begin < 0 <= begin + length) else begin + length
    return apply(lambda value: _sliced(value, begin, stop), term, kind=pa.string())


def _sliced(value: Value, begin: int, stop: int | None) -> Value:
    return pc.utf8_slice_codeunits(value, start=begin, stop=stop)


def ends(term: Term, length: int, left: bool) -> Term:
    """Cut out the first characters of the text, or the last."""
    what = "left" if left else "right"
    if length < 0:
        raise ValueError(f"{what} takes 0 characters or more; got {length}")
    if left or length == 0:
        return apply(lambda value: _sliced(value, 0, length), text(term, what), kind=pa.string())
    return apply(lambda value: _sliced(value, -length, None), text(term, what), kind=pa.string())


def trim(term: Term, characters: Term | None, position: str) -> Term:
    """Cut off blanks, or the given characters, at both ends or at one."""
    cut = _SPACE if characters is None else constant_text(characters, "what TRIM cuts off")
    if cut is None or (cut == "" and not term.null):
        return null(pa.string()) if cut is None else text(term, "TRIM")
    return apply(lambda value: _TRIMS[position](value, characters=cut), text(term, "TRIM"), kind=pa.string())


def joined(terms: Sequence[Term]) -> Term:
    """Join texts and whole numbers; null where one is null."""
    parts = [_written(term) for term in terms]

    def kernel(*values: Value) -> Value:
        return pc.binary_join_element_wise(*values, pa.scalar(""))

    return parts[0] if len(parts) == 1 else apply(kernel, *parts)


def _written(term: Term) -> Term:
    if pa.types.is_integer(term.type):
        return apply(lambda value: value.cast(pa.string()), term, kind=pa.string())
    return text(term, "CONCAT")


def replaced(term: Term, old: Term, new: Term) -> Term:
    """Replace a constant text everywhere by another."""
    before, after = constant_text(old, "what REPLACE looks for"), constant_text(new, "what REPLACE puts")
    if before is None or after is None:
        return null(pa.string())
    if not before:
        return text(term, "REPLACE")
    return apply(
        lambda value: pc.replace_substring(value, pattern=before, replacement=after),
        text(term, "REPLACE"),
        kind=pa.string(),
    )


def mapped(kernel: Kernel, term: Term, what: str) -> Term:
    """Apply a function of one text."""
    return apply(kernel, text(term, what))
