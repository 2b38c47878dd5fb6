"""Errors of tasks: replace Spark's long error for a failed job by the error that a task raised."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException

from tiltframe import StoreError

_ERROR_CLASSES: list[type[Exception]] = [StoreError, *StoreError.__subclasses__(), ValueError, TypeError, OverflowError]
_CLASSES_BY_NAME = {error_class.__name__: error_class for error_class in _ERROR_CLASSES}
_SENTENCE = re.compile(rf"^\W*(?:[\w.]+\.)?({'|'.join(_CLASSES_BY_NAME)}): (.+)$", re.MULTILINE)


def task_sentence(text: str) -> tuple[str, str] | None:
    """Return the name of the class and the message of an error that a store or a measure raised in a task. ``text`` is
    the text of Spark's error for the failed job. Return None if the job failed for another reason.
    """
    sentences = _SENTENCE.findall(text)
    return sentences[-1] if sentences else None


@contextmanager
def raise_task_error() -> Iterator[None]:
    """Within the block, if a job fails because a task has raised an error of a store or measure, raise this error.
    Other errors are not changed.
    """
    try:
        yield
    except PySparkException as error:
        class_and_sentence = task_sentence(str(error))
        if class_and_sentence is None:
            raise
        class_name, sentence = class_and_sentence
        raise _CLASSES_BY_NAME[class_name](sentence) from None
