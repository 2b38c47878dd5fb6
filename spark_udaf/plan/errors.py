"""Errors of tasks: the message of a task, without the tracebacks around it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException

from tiltframe import StoreError

_CLASSES: list[type[Exception]] = [StoreError, *StoreError.__subclasses__(), ValueError, TypeError, OverflowError]
_KINDS = {kind.__name__: kind for kind in _CLASSES}
_SENTENCE = re.compile(rf"^\W*(?:[\w.]+\.)?({'|'.join(_KINDS)}): (.+)$", re.MULTILINE)


def task_sentence(text: str) -> tuple[str, str] | None:
    """Return the class and the message of an error of stores or measures from the text of a failed job, or None."""
    sentences = _SENTENCE.findall(text)
    return sentences[-1] if sentences else None


@contextmanager
def raise_task_error() -> Iterator[None]:
    """Raise errors of stores and measures in tasks with their own class and message; do not change other failures."""
    try:
        yield
    except PySparkException as error:
        class_and_sentence = task_sentence(str(error))
        if class_and_sentence is None:
            raise
        kind, sentence = class_and_sentence
        raise _KINDS[kind](sentence) from None
