"""list_errors: a message for the error with which Spark fails a query whose lists exceed their limit.

Spark's error says that intervals overflow. PySpark converts errors of the JVM in one function, wrapped here: it
shows the sentence first, then Spark's words. A release of PySpark without that function shows Spark's error alone.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

_OVERFLOW = "INTERVAL_ARITHMETIC_OVERFLOW"
_CONVERTERS = ("pyspark.errors.exceptions.captured", "pyspark.sql.connect.client.core")
_MOST_LABELS = 3
_WRAPPED = "_tiltframe_explains"
_labels: dict[str, int] = {}  # the calls that bound a list in this process -> the bound, the latest last


def explain_overflow(label: str, limit: int) -> None:
    """Add a message to the error of a list with more than ``limit`` values: the call, and how to avoid the error."""
    _labels.pop(label, None)
    _labels[label] = limit
    for name in _CONVERTERS:
        try:
            module = importlib.import_module(name)
        except ImportError:  # such as Spark Connect, which needs more packages
            continue
        convert = getattr(module, "convert_exception", None)
        if convert is not None and not hasattr(convert, _WRAPPED):
            setattr(module, "convert_exception", _explaining(convert))  # noqa: B010


def sentence() -> str:
    """Return a message that names the calls whose list may be too long, and how to avoid it."""
    latest = list(_labels.items())[-_MOST_LABELS:]
    labels = " or ".join(label for label, _ in reversed(latest))
    return (
        f"{labels}: a group has more than {latest[-1][1]:,} values, too many for a list in the memory of a task; use "
        "su.group_by(df, …).agg(…), which reduces rows where they are, or groups='large'"
    )


def _explaining(convert: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(convert)
    def explained(*arguments: Any, **named: Any) -> Any:
        error = convert(*arguments, **named)
        if _labels and _OVERFLOW in str(error):
            for attribute in ("_desc", "_message"):  # of classic Spark, and of Spark Connect
                text = getattr(error, attribute, None)
                if isinstance(text, str) and _OVERFLOW in text:
                    setattr(error, attribute, f"{sentence()}\n{text}")
        return error

    setattr(explained, _WRAPPED, True)
    return explained
