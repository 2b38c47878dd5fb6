"""job_errors: put an explanation before Spark's error for a failed job. Spark's text is often the traceback of a task.

PySpark converts errors of the JVM in a single function. This module wraps the function to put the explanation before
Spark's text. If a release of PySpark does not have the function, users see only Spark's text.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeAlias

from spark_udaf.plan.errors import parse_task_error
from spark_udaf.versions.error_converters import replace_converters
from spark_udaf.versions.grouped_data import reject_measures_in_pyspark_agg

ExplainError: TypeAlias = Callable[[str], str | None]

# If the traceback of a task contains such a text, this library has raised the error with a message for the user.
_TRACEBACK_TEXTS = ("in error_label", "in check_version")
_WRAPPER_MARK = "_tiltframe_explains"
_explain_functions: list[ExplainError] = []


def explain_errors(explain: ExplainError) -> None:
    """Register the function ``explain``, which receives the text of an error of Spark, and returns an explanation of
    the error, or None. The explanation is put before the text of the error.
    """
    if explain not in _explain_functions:
        _explain_functions.append(explain)
    replace_converters(_with_explanation)
    # `replace_converters` and `reject_measures_in_pyspark_agg` are called for every new explanation, because modules of
    # Spark Connect may have been imported since the previous call.
    reject_measures_in_pyspark_agg()


def explain_task_errors() -> None:
    """Register an explanation for jobs that fail because a task raised an error of this library. The text of Spark's
    error then begins with the message of the task's error.
    """
    explain_errors(_explain_task_error)


def _explain_task_error(text: str) -> str | None:
    class_and_message = parse_task_error(text) if any(frame in text for frame in _TRACEBACK_TEXTS) else None
    return None if class_and_message is None else class_and_message[1]


def _with_explanation(convert: Callable[..., Any]) -> Callable[..., Any]:
    if hasattr(convert, _WRAPPER_MARK):
        return convert

    @functools.wraps(convert)
    def convert_and_explain(*arguments: Any, **named: Any) -> Any:
        error = convert(*arguments, **named)
        with suppress(Exception):  # An error that occurs in this block must not replace Spark's error.
            text = str(error)
            explanations = (explain(text) for explain in _explain_functions)
            explanation = next((explanation for explanation in explanations if explanation is not None), None)
            if explanation is not None:
                _prepend_explanation(error, explanation)
        return error

    setattr(convert_and_explain, _WRAPPER_MARK, True)
    return convert_and_explain


def _prepend_explanation(error: Exception, explanation: str) -> None:
    """Change an error so that its text begins with an explanation.

    PySpark computes the text of some errors only when the text is read. The class of the error is therefore replaced by
    a subclass, which adds the explanation when the text is read.
    """
    error_class = type(error)

    def text_of(self: Exception) -> str:
        return f"{explanation}\n{error_class.__str__(self)}"

    error.__class__ = type(
        error_class.__name__, (error_class,), {"__str__": text_of, "__module__": error_class.__module__}
    )
