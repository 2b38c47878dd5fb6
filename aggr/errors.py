"""Copies of errors with other messages, for example with the name of the measure that caused the error."""

from __future__ import annotations

from aggr.arrow.damaged_state import DamagedState

_KINDS = (DamagedState, TypeError, ValueError, OverflowError)  # classes of errors that can be constructed from one text


def with_text(error: Exception, text: str) -> Exception:
    """Return an error like the original with another message, and with the traceback of the original.

    The class of the new error is the first of `DamagedState`, ``TypeError``, ``ValueError`` and ``OverflowError`` to
    which the original belongs: a ``JSONDecodeError``, for example, becomes a ``ValueError``. Only these classes are
    used, because they can be created from a single text, unlike some of their subclasses. If the classes of the two
    errors differ, the original error is the cause of the new error.

    Parameters
    ----------
    error : TypeError, ValueError, OverflowError, or a subclass
        The original error.
    text : str
        The new message.

    Returns
    -------
    DamagedState, TypeError, ValueError or OverflowError
        The new error. Raise it by ``raise new_error from new_error.__cause__``, so that its cause is preserved.

    Examples
    --------
    >>> import json
    >>> try:
    ...     json.loads("x")
    ... except ValueError as error:
    ...     with_text(error, f"first line: {error}")
    ValueError('first line: Expecting value: line 1 column 1 (char 0)')
    """
    kind = next((kind for kind in _KINDS if isinstance(error, kind)), ValueError)
    new_error = kind(text).with_traceback(error.__traceback__)
    new_error.__cause__ = None if type(error) is kind else error
    return new_error
