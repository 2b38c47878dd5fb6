"""Errors as answers: a status and one sentence; of PromQL as Prometheus has them, with a kind."""

from __future__ import annotations

import json
import traceback
from typing import ClassVar

import pyarrow as pa
from starlette.exceptions import HTTPException
from starlette.responses import Response

from aggr import UnknownFunction
from aggr.extras import MissingExtra
from tiltframe.store import CommitConflict, DamagedStore, MissingStore, StoreError, UnreachableStore

_LONGEST = 300  # letters of a sentence
_STATUSES: tuple[tuple[type[BaseException] | tuple[type[BaseException], ...], int], ...] = (
    (MissingStore, 404),
    (CommitConflict, 409),
    (DamagedStore, 500),
    (UnreachableStore, 503),
    ((StoreError, MissingExtra), 422),
    ((ValueError, TypeError, OverflowError, RecursionError, UnknownFunction, pa.ArrowException), 400),
)


class Refused(HTTPException):
    """A request that is not answered: its status, a sentence, and headers."""


def status_of(error: BaseException) -> int:
    """Say which status an error is answered with; one that nobody foresaw is the server's own."""
    if isinstance(error, HTTPException):
        return error.status_code
    return next((status for kinds, status in _STATUSES if isinstance(error, kinds)), 500)


def sentence_of(error: BaseException) -> str:
    """Say in one line what is wrong, without the inside of an error that nobody foresaw."""
    if isinstance(error, HTTPException):
        return error.detail
    if not isinstance(error, tuple(kind for kind, _ in _STATUSES)):
        return f"the server could not answer ({type(error).__name__}); its log says where"
    line = " ".join((str(error).splitlines() or [type(error).__name__])[0].split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"


def place_of(error: BaseException) -> str:
    """Say for the log what happened where."""
    last = traceback.extract_tb(error.__traceback__)[-1:]
    return f"{type(error).__name__}: {error}" + "".join(f" ({at.filename}:{at.lineno})" for at in last)


def failure(error: BaseException) -> Response:
    """Answer with an error's status and sentence."""
    headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
    body = json.dumps({"error": sentence_of(error)}, ensure_ascii=False).encode(errors="backslashreplace")
    return Response(body, status_of(error), headers | {"cache-control": "no-store"}, "application/json")


class PromQLError(ValueError):
    """A request that is not answered."""

    kind: ClassVar[str]
    status: ClassVar[int]


class BadData(PromQLError):
    """What was given cannot be read."""

    kind = "bad_data"
    status = 400


class Unanswerable(PromQLError):
    """What was given can be read, but is no merge of states, or too much."""

    kind = "execution"
    status = 422


class OutOfTime(PromQLError):
    """It took longer than it may."""

    kind = "timeout"
    status = 503
