"""Errors of tasks: replace Spark's long error for a failed job by the error that a task raised."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException

from tiltframe import StoreError

_ERROR_CLASSES: list[type[Exception]] = [StoreError, *StoreError.__subclasses__(), ValueError, TypeError, OverflowError]
_CLASSES_BY_NAME = {error_class.__name__: error_class for error_class in _ERROR_CLASSES}
_ERROR_LINE = re.compile(rf"^\W*(?:[\w.]+\.)?({'|'.join(_CLASSES_BY_NAME)}): (.+)$", re.MULTILINE)


def parse_task_error(text: str) -> tuple[str, str] | None:
    """Return the name of the class and the message of an error that a store or a measure raised in a task. ``text`` is
    the text of Spark's error for the failed job. Return None if the job failed for another reason.
    """
    classes_and_messages = _ERROR_LINE.findall(text)
    return classes_and_messages[-1] if classes_and_messages else None


@contextmanager
def unwrapped_task_errors() -> Iterator[None]:
    """A context manager that replaces Spark's error for a failed job in its block. If a task of the job has raised an
    error of a store or a measure, this error is raised instead. Other errors are not changed.
    """
    try:
        yield
    except PySparkException as error:
        class_and_message = parse_task_error(str(error))
        if class_and_message is None:
            raise
        class_name, message = class_and_message
        raise _CLASSES_BY_NAME[class_name](message) from None
