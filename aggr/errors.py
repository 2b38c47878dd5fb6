"""Errors with a place: the same error, with the measure, window or key that caused it before its text."""

from __future__ import annotations

from aggr.arrow.damaged_state import DamagedState

_KINDS = (DamagedState, TypeError, ValueError, OverflowError)  # each is constructed from one text


def with_text(error: Exception, text: str) -> Exception:
    """Make an error of the nearest kind that takes one text, with the traceback of the original.

    Errors such as ``JSONDecodeError`` take other arguments, so the new error is never constructed by the class of the
    original. If the class changes, the original is the cause of the new error.

    Parameters
    ----------
    error : TypeError, ValueError, OverflowError, or a subclass
    text : str

    Returns
    -------
    DamagedState, TypeError, ValueError or OverflowError
        To be raised by the caller, ``from`` its own ``__cause__``.

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
    renamed = kind(text).with_traceback(error.__traceback__)
    renamed.__cause__ = None if type(error) is kind else error
    return renamed
