"""Check the outcome of a bad input: one clear message, an error of a documented type, and no written files."""

from __future__ import annotations

import hashlib
import inspect
import os
import re
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from tests.bad_inputs.world import World
from tiltframe import FrameStore, Query, ReadOptions, TiltFrame
from tiltframe.streaming import OpenWindows
from windows import TimeWindow

NOTHING = object()

# what is seen of Python, Arrow and other libraries where nobody has looked at an argument
ACCIDENTS = re.compile(
    r"object is not|has no attribute|NoneType|sysdeps|<class|sqlglot|pyarrow\.lib|Traceback|Errno| at 0x|0x[0-9a-f]{6}"
    r"|argument of type|unhashable|not supported between|invalid literal|positional argument|must be real number"
    r"|unexpected keyword|cannot unpack|not iterable|not subscriptable|bad operand|must be str|expected str"
    r"|sequence item|codec can't|Exceeds the limit|embedded null|Os \{|Generic|LocalFileSystem|Arrow error"
    r"|Kernel error|DataFusion|deltalake|ArrowInvalid|ArrowTypeError|\.py\b|libpq|truth value|dtype\(|__\w+__"
    r"|fromisoformat|<Token|TokenType|isoformat string|could not convert|Expected bytes|surrogates not allowed|[^\w]errno"
    r"|not convertible|dictionary update|length 2 is required|\x1b|\n"
)


@dataclass(frozen=True)
class Bad:
    """A bad input.

    ``call`` makes it, ``given`` is what the sentence must show, in its own words or by its type; ``says`` is what it
    must say besides, such as the name of the argument and what is allowed.
    """

    name: str
    call: Callable[[World], Any]
    says: tuple[str, ...] = ()
    given: Any = NOTHING


def cases_of(name: str, values: dict[str, Any], call: Callable[[World, Any], Any], *says: str) -> list[Bad]:
    """Make a row of each wrong value of one argument."""
    return [
        Bad(f"{name} = {label}", lambda world, value=value: call(world, value), says, value)
        for label, value in values.items()
    ]


def assert_sentence(sentence: str, bad: Bad) -> None:
    """Assert that a message is one line without accidents, and says what was given and what is allowed."""
    assert sentence.strip(), "no sentence at all"
    letters = len(re.sub(r"(?:/[^\s/:;,]+)+/", "", sentence))  # without folders, whose names are the test's
    assert letters <= 300, f"too long to read: {letters} letters"
    accident = ACCIDENTS.search(sentence)
    assert accident is None, f"{accident[0]!r} in {sentence!r}"
    sentence.encode()
    for word in bad.says:
        assert re.search(word, sentence), f"nothing of {word!r} in {sentence!r}"
    if bad.given is not NOTHING:
        shown = shown_as(bad.given)
        assert any(text in sentence for text in shown), f"none of {shown} in {sentence!r}"


def shown_as(value: Any) -> list[str]:
    """Give the ways in which a value may be shown: as it is written, its beginning, or by its type."""
    name = value.__name__ if isinstance(value, type) else type(value).__name__
    text = repr(value.strip(" \t\n") if isinstance(value, str) else value)
    texts = [name, repr(value), text if len(text) < 40 else text[:12], text[1:12]]
    if isinstance(value, Mapping):
        parts: list[Any] = [*value, *value.values()]
    elif isinstance(value, str):
        parts = value.split(",") if "," in value else value.split() if " " in value else []
        texts += [text[1:-1]] if text[1:-1] else []
    else:
        parts = list(value) if isinstance(value, list | tuple | set) else []
    texts += [str(value.dtype)] if isinstance(value, np.ndarray) else []
    texts += [value.name] if isinstance(value, TimeWindow) else []
    return texts + [text for part in parts for text in shown_as(part)]


def traces(folder: Path) -> dict[str, str]:
    """Take a print of everything below a folder: names, kinds, contents."""
    trace_lines = {}
    for path, _, files in os.walk(folder):
        trace_lines[path] = "folder"
        for name in files:
            file = Path(path, name)
            regular = stat.S_ISREG(file.lstat().st_mode)
            trace_lines[str(file)] = hashlib.sha256(file.read_bytes()).hexdigest() if regular else "special"
    return trace_lines


PYTHON_NAMES = {
    *inspect.signature(TiltFrame).parameters,
    *inspect.signature(OpenWindows).parameters,
    *inspect.signature(FrameStore.evolve).parameters,
    *(field.name for record in (Query, ReadOptions) for field in fields(record)),
}
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_CALL = re.compile(r" takes [^;]*| with no parameters but [^;]*")  # the parameters of a CALL, which an option contains
_ARGUMENTS = re.compile(rf"(?<![\w.-])({'|'.join(sorted(PYTHON_NAMES))})=")
_WITH_UNDERSCORE = re.compile(rf"(?<![\w.-])({'|'.join(sorted(name for name in PYTHON_NAMES if '_' in name))})\b")


def assert_names_options(sentence: str, argv: list[str]) -> None:
    """Assert that a message of the command line names options, and no parameters of Python, unless the user has typed them."""
    words = _CALL.sub("", _QUOTED.sub("''", sentence))
    typed = " ".join(argv)
    named = [name for name in _ARGUMENTS.findall(words) if f"{name}=" not in typed]
    named += [name for name in _WITH_UNDERSCORE.findall(words) if name not in typed]
    assert not named, f"{named} are names of Python in {sentence!r}"
    assert not re.search(r"\b(ReadOptions|TiltFrame|OpenWindows|Query|FrameStore)\(", sentence), sentence
