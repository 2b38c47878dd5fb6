"""job_errors: put an explanation before the error of a failed Spark job, which is often the traceback of a task.

PySpark converts errors of the JVM in a single function. This module wraps the function to put a sentence before Spark's
text. If a release of PySpark does not have the function, users see only Spark's text.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeAlias

from spark_udaf.plan.errors import task_sentence
from spark_udaf.versions.error_converters import replace_converters
from spark_udaf.versions.grouped_data import refuse_measures

Explanation: TypeAlias = Callable[[str], str | None]

# Texts in the traceback of a task. They show that the error was raised by a function whose messages are for the user.
_TRACEBACK_TEXTS = ("in error_label", "in check_version")
_WRAPPER_MARK = "_tiltframe_explains"
_explanations: list[Explanation] = []


def explain_errors(explanation: Explanation) -> None:
    """Register a function that receives the text of Spark's error, and returns an explanation or None."""
    if explanation not in _explanations:
        _explanations.append(explanation)
    replace_converters(_with_explanation)
    refuse_measures()  # again, because the classes of Spark Connect may have been imported since the last call


def explain_task_errors() -> None:
    """Register an explanation of tasks that fail with an error of this library. The text of Spark's error then begins
    with the message of that error.
    """
    explain_errors(_sentence_of_task)


def _sentence_of_task(text: str) -> str | None:
    sentence = task_sentence(text) if any(frame in text for frame in _TRACEBACK_TEXTS) else None
    return None if sentence is None else sentence[1]


def _with_explanation(convert: Callable[..., Any]) -> Callable[..., Any]:
    if hasattr(convert, _WRAPPER_MARK):
        return convert

    @functools.wraps(convert)
    def convert_and_explain(*arguments: Any, **named: Any) -> Any:
        error = convert(*arguments, **named)
        with suppress(Exception):  # an error in an explanation must not replace Spark's error
            text = str(error)
            sentences = (explanation(text) for explanation in _explanations)
            sentence = next((sentence for sentence in sentences if sentence is not None), None)
            if sentence is not None:
                _begin_with(error, sentence)
        return error

    setattr(convert_and_explain, _WRAPPER_MARK, True)
    return convert_and_explain


def _begin_with(error: Exception, sentence: str) -> None:
    """Change an error so that its text begins with a sentence. PySpark computes the text of some errors only when the
    text is read. The class of the error is therefore replaced by a subclass, which adds the sentence at that time.
    """
    error_class = type(error)

    def text_of(self: Exception) -> str:
        return f"{sentence}\n{error_class.__str__(self)}"

    error.__class__ = type(
        error_class.__name__, (error_class,), {"__str__": text_of, "__module__": error_class.__module__}
    )
