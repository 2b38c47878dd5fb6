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


@contextmanager
def raise_task_error() -> Iterator[None]:
    """Raise errors of stores and measures in tasks with their own class and message; do not change other failures."""
    try:
        yield
    except PySparkException as error:
        sentences = _SENTENCE.findall(str(error))
        if not sentences:
            raise
        kind, sentence = sentences[-1]
        raise _KINDS[kind](sentence) from None
