"""Errors as HTTP responses. The HTTP status depends on the class of the error. The body of a response has the format of
this server or, for requests of the Prometheus API, the format of Prometheus.
"""

from __future__ import annotations

import json
import traceback
from typing import ClassVar

import pyarrow as pa
from starlette.exceptions import HTTPException
from starlette.responses import Response

from aggr import UnknownFunction
from aggr.extend.arguments import MissingExtra
from tiltframe.store import CommitConflict, DamagedStore, MissingStore, StoreError, UnreachableStore

_MAX_MESSAGE_LENGTH = 300  # the maximum length of a message, in characters


class Refused(HTTPException):
    """An error that rejects a request, with an HTTP status, a message and headers."""


class PromQLError(ValueError):
    """An error that rejects a request of the Prometheus API."""

    kind: ClassVar[str]
    status: ClassVar[int]


class BadData(PromQLError):
    """An error: the request cannot be read."""

    kind = "bad_data"
    status = 400


class Unanswerable(PromQLError):
    """An error: the request can be read, but its answer cannot be computed by merging states, or exceeds a limit."""

    kind = "execution"
    status = 422


class OutOfTime(PromQLError):
    """An error: computing the answer took longer than the limit."""

    kind = "timeout"
    status = 503


# the key under which the ASGI scope of a request contains the error that ended the request
ERROR = "tiltframe.error"
_STATUSES: tuple[tuple[type[BaseException] | tuple[type[BaseException], ...], int], ...] = (
    (OutOfTime, 503),
    (Unanswerable, 422),
    (MissingStore, 404),
    (CommitConflict, 409),
    (DamagedStore, 500),
    (UnreachableStore, 503),
    ((StoreError, MissingExtra), 422),
    ((ValueError, TypeError, OverflowError, RecursionError, UnknownFunction, pa.ArrowException), 400),
)
# HTTP status → type of the error in Prometheus' format
_PROMETHEUS_TYPES = {404: "not_found", 408: "timeout", 422: Unanswerable.kind, 503: "unavailable"}

# HTTP status → the reason of a refusal, in the metrics
_REASONS = {
    400: BadData.kind,
    401: "token",
    403: "forbidden",
    404: "not_found",
    405: "method",
    406: "media_type",
    408: OutOfTime.kind,
    409: "conflict",
    413: "too_large",
    415: "media_type",
    421: "host",
    422: Unanswerable.kind,
    503: "unavailable",
}


def status_of(error: BaseException) -> int:
    """Return the HTTP status for an error. The status is 500 if the class of the error is not in `_STATUSES`."""
    if isinstance(error, HTTPException):
        return error.status_code
    return next((status for kinds, status in _STATUSES if isinstance(error, kinds)), 500)


def reason_of(error: BaseException) -> str:
    """Return the reason of a refusal as a word for the metrics, such as ``too_large``. The reason is ``internal`` if
    the status of the error is not in `_REASONS`.
    """
    return error.kind if isinstance(error, PromQLError) else _REASONS.get(status_of(error), "internal")


def client_message(error: BaseException) -> str:
    """Return the message of an error in one line, for the client. If the class of the error is not in `_STATUSES`, the
    message contains only the name of the class.
    """
    if isinstance(error, HTTPException):
        return error.detail
    if not isinstance(error, tuple(kind for kind, _ in _STATUSES)):
        return f"the server has an internal error ({type(error).__name__}); its log contains the details"
    line = " ".join((str(error).splitlines() or [type(error).__name__])[0].split())
    return line if len(line) <= _MAX_MESSAGE_LENGTH else f"{line[: _MAX_MESSAGE_LENGTH - 1]}…"


def message_with_place(error: BaseException) -> str:
    """Return an error's class and message, and the file and line of the code that raised it, for the log."""
    last = traceback.extract_tb(error.__traceback__)[-1:]
    return f"{type(error).__name__}: {error}" + "".join(f" ({at.filename}:{at.lineno})" for at in last)


def error_response(error: BaseException) -> Response:
    """Return the response for an error: its status and its message."""
    return _response({"error": client_message(error)}, status_of(error), error)


def prometheus_error_response(error: BaseException) -> Response:
    """Return the response for an error in Prometheus' format: status, type and message."""
    status = status_of(error)
    kind = _PROMETHEUS_TYPES.get(status, "internal" if status >= 500 else BadData.kind)
    if isinstance(error, PromQLError):
        kind = error.kind
    elif isinstance(error, HTTPException):
        if status == 413:  # Prometheus has no error type for the status 413, so 400 is sent instead
            status = BadData.status
        kind = OutOfTime.kind if status == 503 else kind
    elif status == 400:
        # The error is not a `PromQLError`, so the expression is valid, but the store cannot evaluate it.
        status = Unanswerable.status
        kind = Unanswerable.kind
    return _response({"status": "error", "errorType": kind, "error": client_message(error)}, status, error)


def _response(body: dict[str, str], status: int, error: BaseException) -> Response:
    headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
    text = json.dumps(body, ensure_ascii=False).encode(errors="backslashreplace")
    return Response(text, status, headers | {"cache-control": "no-store"}, "application/json")
