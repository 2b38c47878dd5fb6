"""Parsing: convert the expressions, moments, steps and durations in a request."""

from __future__ import annotations

import math
import re
from typing import TypeAlias

import promql_parser

from aggr.extend.arguments import read_time, shown
from aggr.sql import count_regex_steps, plain_texts
from tiltframe.serve.errors import BadData, Unanswerable
from tiltframe.serve.promql.function_table import (
    REMOTE_READ_ADVICE,
    USE_PROMETHEUS,
    register_older_functions,
)

register_older_functions()

Expression: TypeAlias = promql_parser.Expr

SECOND = 1_000_000
_MAX_CHARACTERS = 1_000_000
# The maximum number of characters outside strings. This number limits the depth of an expression, because parsing and
# evaluation are recursive.
_MAX_CODE_CHARACTERS = 2_000
# the maximum number of operators and parentheses; the time of parsing grows with the square of their nesting depth
_MAX_OPERATORS = 500
# The maximum number of steps of all regular expressions together. Each character counts as one step, times its
# repetitions. The number is limited because all other threads wait while the parser compiles regular expressions.
_MAX_REGEX_STEPS = 3_000
_STRINGS = re.compile(r"""#[^\n]*|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|`[^`]*`""")
# syntax that newer releases of Prometheus support, but the parser does not: modifiers of ranges, operators that trim
# histograms, and arithmetic with durations
_NEWER_SYNTAX = re.compile(
    r"\b(anchored|smoothed)\b|</|>/|\[[^\]]*(\b(step|range|min|max|min_of|max_of)\s*\(|[-+*/%^])|\boffset\s*-?\("
)
_OPERATORS = re.compile(r"[(+\-*/%^<>]|==|!=|\b(?:and|or|unless|atan2)\b", re.IGNORECASE)
_REGEXES = re.compile(r"""[=!]~\s*("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|`[^`]*`)""")
# A class of Unicode characters, such as \pL or \w. Each such class counts three times for `_MAX_REGEX_STEPS`, because
# the parser compiles it to some hundred ranges of bytes.
_UNICODE_CLASS = re.compile(r"\\(?:[pP](?:\{[^}]*\}|.)|[wWdDsS])")
# the first and the last time for which windows exist, in seconds since 1970: the years 5 to 9987
_EARLIEST = -62_000_000_000
_LATEST = 253_000_000_000


def read_expression(text: str) -> Expression:
    """Return the parsed PromQL expression. Raise `BadData` if it is invalid or too large, and `Unanswerable` if only
    newer releases of Prometheus have its syntax.
    """
    if len(text) > _MAX_CHARACTERS or len(_STRINGS.sub("", text)) > _MAX_CODE_CHARACTERS:
        raise BadData(
            f"an expression has at most {_MAX_CODE_CHARACTERS:,} characters outside of strings; this one has more; "
            f"split it into several expressions, or {USE_PROMETHEUS}"
        )
    _check_nesting(text)
    _check_regexes(text)
    try:
        return promql_parser.parse(_STRINGS.sub(_in_double_quotes, text))
    except ValueError as error:
        if _NEWER_SYNTAX.search(_STRINGS.sub("", text)):
            raise Unanswerable(
                f"{shown(text)} has syntax that only newer releases of Prometheus read; {REMOTE_READ_ADVICE}"
            ) from None
        raise BadData(
            f"cannot read {shown(text)} as PromQL: {' '.join(str(error).split())[:150]}; correct its syntax"
        ) from None


def _check_nesting(text: str) -> None:
    """Raise `BadData` if an expression has too many operators and parentheses, because the time of parsing grows with
    the square of their nesting depth.
    """
    operators = len(_OPERATORS.findall(_STRINGS.sub("", text)))
    if operators > _MAX_OPERATORS:
        raise BadData(
            f"an expression has at most {_MAX_OPERATORS} operators and parentheses; this one has {operators:,}; split "
            f"it into several expressions, or {USE_PROMETHEUS}"
        )


def _check_regexes(text: str) -> None:
    """Raise `BadData` if the regular expressions in an expression are too large in total."""
    literals = [literal for literal in _REGEXES.findall(text) if literal]
    regexes = [literal[1:-1] if literal[0] == "`" else literal[1:-1].replace("\\\\", "\\") for literal in literals]
    weighted = [_UNICODE_CLASS.sub(r"(?:\\pL\\pL\\pL)", regex) for regex in regexes if plain_texts(regex) is None]
    steps = sum(map(count_regex_steps, weighted))
    if steps > _MAX_REGEX_STEPS:
        raise BadData(
            f"the regular expressions have about {steps:,} characters in total, with repetitions expanded, and at most "
            f"{_MAX_REGEX_STEPS:,} are allowed; use shorter ones, or plain texts such as a|b|c; if each one alone is "
            f"below the limit, {REMOTE_READ_ADVICE}"
        )


def _in_double_quotes(string: re.Match[str]) -> str:
    """Convert a backquoted string to a string in double quotes with the same value; return other strings unchanged.
    Between backquotes a backslash has no special meaning, but the parser would treat it as the start of an escape.
    """
    text = string[0]
    if not text.startswith("`"):
        return text
    inner = text[1:-1].replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{inner}"'


def read_bound(text: str, name: str) -> int:
    """Return the start or the end of a time range in microseconds UTC. A time before or after all possible windows is
    replaced by the first or the last possible time. ``name`` is the parameter, for messages.

    Clients that mean "all of time" send the least and greatest times of Go, in seconds or as RFC 3339 with a year of
    six digits.

    >>> read_bound("-9223309901257974", "start") == read_bound("-292273086-05-16T16:47:06Z", "start")
    True
    """
    is_far_away = re.match(r"(-?)[0-9]{5,}-[0-9]{2}-|(-)[0-9]{4}-[0-9]{2}-", text)
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if is_far_away or (math.isfinite(seconds) and not _EARLIEST <= seconds <= _LATEST):
        return (_EARLIEST if text.startswith("-") else _LATEST) * SECOND
    return read_moment(text, name)


def read_moment(text: str, name: str) -> int:
    """Convert a moment in Unix seconds or RFC 3339 to microseconds UTC. Raise `BadData` if the moment is invalid. The
    message contains ``name``, the name of the parameter.

    >>> read_moment("1.5", "time"), read_moment("1970-01-01T00:00:01.5Z", "time")
    (1500000, 1500000)
    """
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = read_time(text)[0].timestamp() if re.search(r"([zZ]|[+-]\d\d:\d\d)$", text) else math.nan
        except (ValueError, OverflowError):
            seconds = math.nan
    if not _EARLIEST <= seconds <= _LATEST:
        raise BadData(
            f"{name} must be a time from the year 5 to 9986, in Unix seconds or RFC 3339 such as 2026-03-28T14:00:00Z; "
            f"got {shown(text)}"
        )
    return round(seconds * 1000) * 1000


def read_duration(text: str, name: str) -> int:
    """Convert a positive duration in seconds or in the form ``1h30m`` to microseconds. Raise `BadData` if the duration
    is invalid. The message contains ``name``, the name of the parameter.

    >>> read_duration("15", "step"), read_duration("1m", "step")
    (15000000, 60000000)
    """
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = promql_parser.parse_duration(text).total_seconds()
        except (ValueError, OverflowError):
            seconds = math.nan
    micros = round(seconds * 1000) * 1000 if 0 < seconds <= _LATEST else 0
    if not micros:
        raise BadData(f"{name} must be a duration above 0, such as 15 (seconds) or 5m; got {shown(text)}")
    return micros


def duration_text(duration: int) -> str:
    """Return the text of a duration, which is in microseconds, in the notation of PromQL.

    >>> duration_text(90 * 1_000_000), duration_text(86_400 * 1_000_000)
    ('1m30s', '1d')
    """
    parts = []
    seconds = duration // 1000
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        count, seconds = divmod(seconds, size)
        parts += [f"{count}{unit}"] if count else []
    return "".join(parts)
