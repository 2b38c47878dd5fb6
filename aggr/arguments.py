"""Arguments: the checks that all public functions share, and how a message shows what was given."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

T = TypeVar("T")

_LONGEST = 80  # of what a message shows
_LONGEST_TEXT = 120  # of a path or an expression, which is cut to the former
_MOST_LISTED = 120  # characters of the names that a message lists


def shown(given: object) -> str:
    """Show what was given in one short line: as it is written, or by its type where that says nothing.

    >>> shown("1x"), shown(print), shown("x" * 1000) == repr("x" * 78)[:-1] + "…"
    ("'1x'", 'a builtin_function_or_method', True)
    """
    if isinstance(given, type):
        return f"the class {given.__name__}"
    try:
        as_written = str if isinstance(given, pa.DataType) else repr
        text = as_written(given[:1000] if isinstance(given, str | bytes) else given)
    except Exception:  # a type of anybody's, or a number of more digits than Python writes
        text = ""
    if not text or "\n" in text or "<" in text[:1] or " at 0x" in text:
        package = type(given).__module__.split(".")[0]
        name = f"{package}.{type(given).__name__}".removeprefix("builtins.").removeprefix("__main__.")
        return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def nearest(name: str, there: Iterable[str], otherwise: str | None = None) -> str:
    """Hint at what may have been meant: the nearest of the names that are there, or those that there are.

    >>> nearest("hots", ["host", "bytes"]), nearest("x", ["host", "bytes"])
    ("did you mean 'host'?", 'there are host, bytes')
    >>> nearest("HOST", ["host", "bytes"])  # names are told apart by case, unlike those of Spark
    "did you mean 'host'?"
    """
    import difflib  # only where something is misspelt

    there = list(there)
    in_other_case = [other for other in there if other.casefold() == name.casefold()]
    near = in_other_case or difflib.get_close_matches(name[:100], there, n=1)
    return f"did you mean {near[0]!r}?" if near else otherwise or f"there are {listed(there)}"


def listed(names: list[str]) -> str:
    """List names in a sentence: those that have room in it, and how many more there are.

    >>> listed(["host", "bytes"]), listed([])
    ('host, bytes', 'none')
    """
    lengths = accumulate(len(each) + 2 for each in names)
    shown_names = names[: max(1, sum(length <= _MOST_LISTED for length in lengths))]
    more = f" and {len(names) - len(shown_names)} more" if len(shown_names) < len(names) else ""
    return f"{', '.join(shown_names)}{more}" or "none"


def is_name(given: object) -> bool:
    """Say whether something can name a column: text that is not blank, without NUL and halves of letters."""
    return isinstance(given, str) and bool(given.strip()) and "\0" not in given and is_unicode(given)


def is_unicode(text: str) -> bool:
    """Say whether text can be written as UTF-8: surrogates stand for bytes that are none."""
    return text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text)


def is_whole(given: object) -> bool:
    """Say whether something is a whole number; True and False are none."""
    return isinstance(given, int | np.integer) and not isinstance(given, bool | np.timedelta64)


def checked_name(given: object, what: str) -> str:
    """Check the name of one thing; raises ``ValueError``."""
    if isinstance(given, str) and is_name(given):
        return given
    raise ValueError(f"{what} must be a name: text that is not blank; got {shown(given)}")


def checked_names(given: object, what: str, of: str = "names") -> tuple[str, ...]:
    """Check a list of names, each given once; raises ``ValueError``. Text is no list of its letters."""
    found: dict[str, None] = {}  # in order, and many are looked up at once
    for name in checked_list(given, what, of):
        if not is_name(name):
            raise ValueError(f"{what} must be a list of {of}, each of them text that is not blank; got {shown(name)}")
        if name in found:
            raise ValueError(f"{what} must be a list of {of}, and {shown(name)} is given twice; give it once")
        found[str(name)] = None
    return tuple(found)


def checked_list(given: object, what: str, of: str) -> Iterable[Any]:
    """Check that something can be gone through in a stated order; raises ``ValueError``."""
    if isinstance(given, str) and given:
        raise ValueError(f"{what} must be a list of {of}; got {shown(given)}: write [{shown(given)}]")
    loose = isinstance(given, str | bytes | bytearray | set | frozenset | Mapping | type)
    if loose or not isinstance(given, Iterable):
        raise ValueError(f"{what} must be a list of {of}; got {shown(given)}")
    return given


def checked_whole(given: object, what: str, low: int = 0, high: int = 2**63 - 1) -> int:
    """Check a whole number between bounds; raises ``ValueError``."""
    if not is_whole(given) or not low <= int(given) <= high:  # type: ignore[call-overload]
        bounds = f"from {low}" if high == 2**63 - 1 else f"from {low} to {high:,}"
        raise ValueError(f"{what} must be a whole number {bounds}; got {shown(given)}")
    return int(given)  # type: ignore[call-overload, no-any-return]


def checked_truth(given: object, what: str) -> bool:
    """Check a truth; raises ``ValueError``. Numbers are none."""
    if not isinstance(given, bool | np.bool_):
        raise ValueError(f"{what} must be True or False; got {shown(given)}")
    return bool(given)


def checked_type(given: object, dtype: type[T], what: str, hint: str = "") -> T:
    """Check that something is of a type; raises ``ValueError``."""
    if not isinstance(given, dtype):
        name = "pyarrow." * dtype.__module__.startswith("pyarrow") + dtype.__name__
        raise ValueError(f"{what} must be a {name}{hint}; got {shown(given)}")
    return given


def checked_mapping(given: object, what: str, of: str) -> Mapping[Any, Any]:
    """Check that something is a mapping; raises ``ValueError``."""
    if not isinstance(given, Mapping):
        raise ValueError(f"{what} must be a dict of {of}; got {shown(given)}")
    return given


def because(error: OSError) -> str:
    """Say in a line why the operating system refused: which file, and what is with it.

    >>> because(FileNotFoundError(2, "No such file or directory", "x.csv"))
    'x.csv: no such file or directory'
    """
    if error.strerror is None or error.errno is None:
        return _without_number((str(error).splitlines() or [type(error).__name__])[0])
    reason = _without_number(error.strerror.split("\n")[0])
    where = "" if error.filename is None else f"{shortened(str(error.filename))}: "
    return where + reason[:1].lower() + reason[1:] if where else reason


def _without_number(reason: str) -> str:
    """Leave out the numbers of the operating system's errors, which Arrow puts next to their words."""
    return re.sub(r"\[(Errno|errno|WinError) \d+\] ", "", reason.replace(". Detail: ", ": "))


def shortened(text: str) -> str:
    """Cut text that was given to what an error shows of it, where quotes would be in the way."""
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST]}…"


def frozen(value: Any) -> Any:
    """Turn lists into tuples, at every depth, as frozen dataclasses hold them.

    >>> frozen([1, [2, 3]])
    (1, (2, 3))
    """
    if isinstance(value, list | tuple):
        return tuple(frozen(part) for part in value)
    return {name: frozen(part) for name, part in value.items()} if isinstance(value, dict) else value
