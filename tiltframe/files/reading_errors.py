"""Reading errors: messages about files that cannot be read, which name the wrong line or value."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from tiltframe.files.formats import (
    delimiter_of,
    has_types,
)
from tiltframe.files.read_options import ReadOptions
from tiltframe.files.soundness import check_text
from tiltframe.parameter_names import parameter_text


def check_text_file(file: Path, reading: ReadOptions) -> None:
    """Raise ``ValueError`` if a text file cannot be read as text, as `check_text` does. Other files are not checked."""
    if not has_types(file):
        # These errors are ignored here, because they occur again when the file is read.
        with suppress(OSError, pa.ArrowException):
            check_text(file, reading.encoding, delimiter_of(file, reading))


def reading_error(file: Path, error: Exception, find_cause: Callable[[], ValueError | None]) -> ValueError:
    """Return the error for a file that cannot be read. ``find_cause`` is a function that returns an error which names
    the wrong value, or None. If ``find_cause`` returns None, the returned error has the message of ``error``.
    """
    with suppress(pa.ArrowException, OSError, UnicodeError):
        if not has_types(file) and isinstance(error, pa.ArrowInvalid) and (explanation := find_cause()):
            return explanation
    return ValueError(f"cannot read {file}: {first_line(error)}{_advice(error)}")


def _advice(error: Exception) -> str:
    """Return the advice at the end of the message about ``error``, which was raised while a file was read. Return
    ``""`` if the data is not the cause of the error, as for errors of the operating system.
    """
    if not isinstance(error, pa.ArrowInvalid | UnicodeError):
        return ""
    if not re.search(r"CSV parse error: (Row #\d+: )?Expected \d+ columns", str(error)):
        return "; correct the data"
    option = parameter_text("bad_rows")
    return "; correct the line" + (f", or leave such lines out by {option} skip" if option.startswith("--") else "")


def first_line(error: Exception) -> str:
    """Return the first line of the message of an error, without the text that Arrow adds before the cause."""
    return re.sub(r"^Error creating dataset.*?\?: ", "", str(error).splitlines()[0]).rstrip(". ")


def type_hint(error: Exception, reading: ReadOptions) -> str:
    """Return the end of the message about an error of a type: how to declare the type of a column. Return ``""`` for
    other errors.
    """
    type_messages = (
        "conversion error to",
        "changed from",
        "incompatible types",
        "Failed to parse",
        "would cause data loss",
    )
    hint = (
        f"; declare the type of a column with {reading.type_option_text('COL', 'TYPE')}, or "
        f"{reading.type_option_text('COL', 'text')}"
    )
    return hint if any(message in str(error) for message in type_messages) else ""
