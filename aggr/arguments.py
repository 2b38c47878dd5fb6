"""Arguments: checks shared by all public functions, and the text of values in error messages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

T = TypeVar("T")

# the maximum length of a value in a message, in characters
_MAX_LENGTH = 80
# the maximum length of a text, such as a path or an expression, that is shown completely, in characters
_MAX_TEXT_LENGTH = 120
# the maximum length of the list of names in a message, in characters
_MAX_LIST_LENGTH = 120


def shown(value: object) -> str:
    """Return a value as one short line for a message.

    The line is the repr, cut to 80 characters. A class is shown by its name, and an Arrow type as Arrow prints it. If
    the repr is empty, has several lines, begins with "<" or contains an address in memory, the line is the name of the
    value's type.

    >>> shown("1x"), shown(print), shown("x" * 1000) == repr("x" * 78)[:-1] + "…"
    ("'1x'", 'a builtin_function_or_method', True)
    """
    if isinstance(value, type):
        return f"the class {value.__name__}"
    try:
        to_text = str if isinstance(value, pa.DataType) else repr
        text = to_text(value[:1000] if isinstance(value, str | bytes) else value)
    except Exception:  # repr failed, for example because an integer has more digits than Python converts to text
        text = ""
    if not text or "\n" in text or "<" in text[:1] or " at 0x" in text:
        package = type(value).__module__.split(".")[0]
        name = f"{package}.{type(value).__name__}".removeprefix("builtins.").removeprefix("__main__.")
        return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"
    return text if len(text) <= _MAX_LENGTH else text[: _MAX_LENGTH - 1] + "…"


def nearest(name: str, candidates: Iterable[str], otherwise: str | None = None) -> str:
    """Return a hint that suggests the candidate that is most similar to ``name``. If no candidate is similar, return
    ``otherwise``, or by default a list of the candidates.

    >>> nearest("hots", ["host", "bytes"]), nearest("x", ["host", "bytes"])
    ("did you mean 'host'?", 'there are host, bytes')
    >>> nearest("HOST", ["host", "bytes"])  # names are case-sensitive, unlike in Spark
    "did you mean 'host'?"
    """
    import difflib  # imported here because only messages about misspelt names need it

    candidates = list(candidates)
    equal_except_case = [candidate for candidate in candidates if candidate.casefold() == name.casefold()]
    similar = equal_except_case or difflib.get_close_matches(name[:100], candidates, n=1)
    return f"did you mean {similar[0]!r}?" if similar else otherwise or f"there are {listed(candidates)}"


def listed(names: list[str]) -> str:
    """Join names by commas, for a message. Only the names that fit into 120 characters are listed; others are counted.

    >>> listed(["host", "bytes"]), listed([])
    ('host, bytes', 'none')
    """
    lengths = accumulate(len(name) + 2 for name in names)
    shown_names = names[: max(1, sum(length <= _MAX_LIST_LENGTH for length in lengths))]
    more = f" and {len(names) - len(shown_names)} more" if len(shown_names) < len(names) else ""
    return f"{', '.join(shown_names)}{more}" or "none"


def is_name(value: object) -> bool:
    """Return whether a value can name a column: text that is not blank and has neither NUL nor lone surrogates."""
    return isinstance(value, str) and bool(value.strip()) and "\0" not in value and is_unicode(value)


def is_unicode(text: str) -> bool:
    """Return whether text can be written as UTF-8, that is, has no surrogates."""
    return text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text)


def is_whole(value: object) -> bool:
    """Return whether a value is a whole number; True and False do not count as numbers."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool | np.timedelta64)


def checked_name(value: object, what: str) -> str:
    """Return a valid name unchanged; raises ``ValueError`` for a value that is not a name. ``what`` describes the value
    in the message.
    """
    if isinstance(value, str) and is_name(value):
        return value
    raise ValueError(f"{what} must be a name: text that is not blank; got {shown(value)}")


def checked_names(value: object, what: str, elements: str = "names") -> tuple[str, ...]:
    """Return a list of unique names as a tuple.

    Raises ``ValueError`` for other values, for a name that occurs twice, and for a string, which is not read as a list
    of its letters. The message calls the value ``what``, and its elements ``elements``.
    """
    unique_names: dict[str, None] = {}  # used as a set that keeps the order of the names
    for name in checked_list(value, what, elements):
        if not is_name(name):
            raise ValueError(
                f"{what} must be a list of {elements}, each of them text that is not blank; got {shown(name)}"
            )
        if name in unique_names:
            raise ValueError(f"{what} must be a list of {elements}, and {shown(name)} is listed twice; list it once")
        unique_names[str(name)] = None
    return tuple(unique_names)


def checked_list(value: object, what: str, elements: str) -> Iterable[Any]:
    """Return a value unchanged if it is iterable in a defined order.

    Raises ``ValueError`` for other values, such as a set, a dict or a string. The message calls the value
    ``what``, and its elements ``elements``.
    """
    if isinstance(value, str) and value:
        raise ValueError(f"{what} must be a list of {elements}; got {shown(value)}: write [{shown(value)}]")
    is_excluded = isinstance(value, str | bytes | bytearray | set | frozenset | Mapping | type)
    if is_excluded or not isinstance(value, Iterable):
        raise ValueError(f"{what} must be a list of {elements}; got {shown(value)}")
    return value


def checked_whole(value: object, what: str, low: int = 0, high: int = 2**63 - 1) -> int:
    """Return a whole number as an int.

    Raises ``ValueError`` for other values, and for numbers below ``low`` or above ``high``. The message calls the
    value ``what``.
    """
    if not is_whole(value) or not low <= int(value) <= high:  # type: ignore[call-overload]
        bounds = f"of at least {low}" if high == 2**63 - 1 else f"from {low} to {high:,}"
        raise ValueError(f"{what} must be a whole number {bounds}; got {shown(value)}")
    return int(value)  # type: ignore[call-overload, no-any-return]


def checked_truth(value: object, what: str) -> bool:
    """Return a boolean as a bool; raises ``ValueError`` for other values, including numbers.

    The message calls the value ``what``.
    """
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{what} must be True or False; got {shown(value)}")
    return bool(value)


def checked_type(value: object, expected: type[T], what: str, hint: str = "") -> T:
    """Return a value unchanged if it is an instance of the class ``expected``; otherwise raises ``ValueError``.

    The message calls the value ``what``. ``hint`` is added after the name of the class.
    """
    if not isinstance(value, expected):
        is_of_arrow = expected.__module__.startswith("pyarrow")
        name = f"pyarrow.{expected.__name__}" if is_of_arrow else expected.__name__
        raise ValueError(f"{what} must be a {name}{hint}; got {shown(value)}")
    return value


def checked_mapping(value: object, what: str, entries: str) -> Mapping[Any, Any]:
    """Return a mapping unchanged; raises ``ValueError`` for other values.

    The message calls the value ``what``, and its entries ``entries``.
    """
    if not isinstance(value, Mapping):
        raise ValueError(f"{what} must be a dict of {entries}; got {shown(value)}")
    return value


def because(error: OSError) -> str:
    """Return one line that describes an error of the operating system. It begins with the name of the file, if known.

    >>> because(FileNotFoundError(2, "No such file or directory", "x.csv"))
    'x.csv: no such file or directory'
    """
    if error.strerror is None or error.errno is None:
        return _without_number((str(error).splitlines() or [type(error).__name__])[0])
    reason = _without_number(error.strerror.split("\n")[0])
    prefix = "" if error.filename is None else f"{shortened(str(error.filename))}: "
    return prefix + reason[:1].lower() + reason[1:] if prefix else reason


def _without_number(reason: str) -> str:
    """Return the message of an error without the operating system's error number, which Arrow appends to it."""
    return re.sub(r"\[(Errno|errno|WinError) \d+\] ", "", reason.replace(". Detail: ", ": "))


def shortened(text: str) -> str:
    """Return a user's text for a message that shows it without quotes. A text of more than 120 characters is cut to
    80.
    """
    return text if len(text) <= _MAX_TEXT_LENGTH else f"{text[:_MAX_LENGTH]}…"


def frozen(value: Any) -> Any:
    """Return a value in which lists are converted to tuples at every depth, because the fields of frozen dataclasses
    must be hashable.

    >>> frozen([1, [2, 3]])
    (1, (2, 3))
    """
    if isinstance(value, list | tuple):
        return tuple(frozen(part) for part in value)
    return {name: frozen(part) for name, part in value.items()} if isinstance(value, dict) else value
