"""Writing over HTTP: events are added to a store exactly once, even if they are sent several times."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TypeVar

import pyarrow as pa
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from aggr.extend.arguments import shown
from tiltframe.extend import open_source
from tiltframe.serve.appended_once import append_once
from tiltframe.serve.arrow_bodies import read_stream
from tiltframe.serve.cost import BODY_BYTES, Limits
from tiltframe.serve.errors import Refused, client_message, status_of
from tiltframe.serve.group_commits import GroupCommits
from tiltframe.serve.http import checked_parameters, read_body
from tiltframe.serve.observed import LOG, Metrics
from tiltframe.serve.otlp_rows import table_from_rows
from tiltframe.serve.response_formats import ARROW, JSON, LINES, PROTOBUF
from tiltframe.serve.stores import Stores
from tiltframe.serve.workers import WorkerPool
from tiltframe.store import FrameStore, OtherFrame, StoreError, check_writer

T = TypeVar("T")

# the maximum number of attempts to add rows; an attempt fails if another process changes the frame of the store
_MAX_ATTEMPTS = 10
# advice in messages of errors that clients cannot follow: options of commands, and arguments in Python
_ADVICE_FOR_FILES = re.compile(r"; [^;]*(types=|--[a-z]).*")
# the names of the writers that `append_once` uses
_OTLP_WRITER = re.compile("otlp-[0-9a-f]{2}")
# the name of a request's body in error messages; messages about JSON lines would otherwise name a temporary file
_BODY_NAME = "the events"


class Writing:
    """The HTTP routes for writing."""

    def __init__(self, stores: Stores, pool: WorkerPool, limits: Limits, metrics: Metrics) -> None:
        """Create the routes for ``stores``. Commits run in threads of ``pool``. Rejected data points are counted in
        ``metrics``.
        """
        self._stores = stores
        self._pool = pool
        self._limits = limits
        self._metrics = metrics
        self._commits = {name: GroupCommits() for name in stores}

    def routes(self) -> list[Route]:
        """Return the routes for events and for metrics."""
        return [
            Route("/v1/stores/{name}/events", self.events, methods=["POST"]),
            Route("/v1/stores/{name}/metrics", self.metrics, methods=["POST"]),
        ]

    async def events(self, request: Request) -> Response:
        """Add the events in the body of a request, once per writer and number. Return a response that says whether this
        request added them.
        """
        kind = _media_type(request, "events", LINES, ARROW)
        writer, number = _writer_and_number(request)
        body = await read_body(request, BODY_BYTES, self._limits.seconds)

        notes: list[str] = []

        def append(store: FrameStore, commits: GroupCommits) -> bool:
            rows = read_lines(body, store) if kind == LINES else read_stream(body, BODY_BYTES, _BODY_NAME)
            return commits.commit(store, store.prepare_rows(rows, writer, number, note=notes.append))

        added = await self._pool.write(partial(self._append_to_current, request.path_params["name"], append))
        return JSONResponse({"added": added, **({"warnings": notes} if notes else {})})

    async def metrics(self, request: Request) -> Response:
        """Add the data points that an OpenTelemetry exporter sends, once per writer and number. A request without a
        writer and a number is identified by the bytes of its body: the same bytes are added only once.
        """
        kind = _media_type(request, "metrics", PROTOBUF, JSON)
        writer_and_number = _writer_and_number(request) if request.url.query else None
        body = await read_body(request, BODY_BYTES, self._limits.seconds, ("identity", "gzip"))
        # The module is imported here, because importing it takes a tenth of the time in which the server starts.
        from aggr.interchange.otlp_metrics import encode_response, rows_of_metrics

        is_compressed = request.headers.get("content-encoding") == "gzip"
        rejections: list[str] = []
        notes: list[str] = []

        def append(store: FrameStore, commits: GroupCommits) -> None:
            message = _decompress_gzip(body) if is_compressed else body
            rejections.clear()
            rows = rows_of_metrics(message, kind == JSON, store.frame.time, rejections)
            events = table_from_rows(rows, store, rejections) if rows else None
            if rejections and not (events and events.num_rows):
                raise ValueError(_rejection_text(rejections))
            if events is None:
                return
            commit = partial(commits.commit, store)
            if writer_and_number:
                commit(store.prepare_rows(events, *writer_and_number, note=notes.append))
            else:
                append_once(store, events, message, commit=commit, note=notes.append)

        try:
            await self._pool.write(partial(self._append_to_current, request.path_params["name"], append))
        finally:
            self._record_rejections(request.path_params["name"], rejections)
        reasons = [_rejection_text(rejections)] if rejections else []
        return Response(encode_response(len(rejections), "; ".join([*reasons, *notes]), kind == JSON), media_type=kind)

    def _append_to_current(self, name: str, append: Callable[[FrameStore, GroupCommits], T]) -> T:
        """Call ``append`` with a store and its group commits, and return the result. If another process changes the
        frame of the store before the commit, call ``append`` again with the reopened store.
        """
        store = self._stores[name]
        for _ in range(_MAX_ATTEMPTS):
            with _with_store_name(store, name):
                try:
                    return append(store, self._commits[name])
                except OtherFrame:
                    current = self._stores[name]
                    # The error has another reason, such as the types of the rows.
                    if current is store:
                        raise
            store = current
        raise Refused(
            503,
            f"the frame of the store {name} has changed {_MAX_ATTEMPTS} times while the rows were added; send the "
            "request again",
            {"retry-after": "1"},
        )

    def _record_rejections(self, store: str, rejections: Sequence[str]) -> None:
        """Count data points that were rejected for the reasons ``rejections``, and write the first reason to the log,
        because exporters ignore such reasons in responses.
        """
        if rejections:
            self._metrics.rejected_points.labels(store).inc(len(rejections))
            LOG.info(
                {
                    "message": f"{len(rejections)} data points for {store} were rejected",
                    "error": _rejection_text(rejections),
                }
            )


@contextmanager
def _with_store_name(store: FrameStore, name: str) -> Iterator[None]:
    """Within the block, replace the address of the store by ``name`` in the messages of errors, because clients know
    only the name.
    """
    try:
        yield
    except StoreError as error:
        raise Refused(status_of(error), client_message(error).replace(store.backend.display_uri, name)) from error


def _rejection_text(rejections: Sequence[str]) -> str:
    """Return the first reason for which data points were rejected, and the number of other reasons."""
    reasons = list(dict.fromkeys(rejections))
    further = len(reasons) - 1
    if not further:
        return reasons[0]
    return f"{reasons[0]}; and {further} other {'reason' if further == 1 else 'reasons'}"


def _media_type(request: Request, what: str, *kinds: str) -> str:
    """Return the media type of a request's body. Raise `Refused`, with status 415, if it is not one of ``kinds``. The
    message calls the body ``what``, such as "events".
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in kinds:
        raise Refused(
            415, f"{what} must be {' or '.join(kinds)}; name the type in the header Content-Type; got {shown(kind)}"
        )
    return kind


def _writer_and_number(request: Request) -> tuple[str, int]:
    """Return the name of the writer and the number in the parameters of a request. Raise ``ValueError`` if the request
    has other parameters, or if a value is invalid.
    """
    items = checked_parameters(request).multi_items()
    parameters = dict(items)
    if len(items) != 2 or set(parameters) != {"writer", "number"}:
        names = [name for name, _ in items]
        raise ValueError(
            f"the request needs exactly the parameters writer and number: ?writer=NAME&number=N; "
            f"got {', '.join(names)[:80] or 'none'}"
        )
    if not (parameters["number"].isascii() and parameters["number"].isdigit()):
        raise ValueError(
            "the parameter number must be a whole number that grows with each request; "
            f"got {shown(parameters['number'])}"
        )
    if _OTLP_WRITER.fullmatch(parameters["writer"]):
        raise ValueError("the writers otlp-00 to otlp-ff are reserved for OTLP metrics; choose another name")
    check_writer(parameters["writer"], int(parameters["number"]))
    return parameters["writer"], int(parameters["number"])


def _decompress_gzip(body: bytes) -> bytes:
    """Return a body after decompression by gzip. Raise ``ValueError`` if it is not gzip, and `Refused` if it is too
    long.
    """
    try:
        decompressed: bytes = pa.CompressedInputStream(pa.BufferReader(body), "gzip").read(BODY_BYTES + 1)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(
            f"the body is not valid gzip: {str(error).splitlines()[0]}; compress it again, or send it without "
            "Content-Encoding"
        ) from None
    if len(decompressed) > BODY_BYTES:
        raise Refused(
            413, f"the body has more than {BODY_BYTES:,} bytes, the server's limit; send less data per request"
        )
    return decompressed


def read_lines(body: bytes, store: FrameStore) -> pa.Table:
    """Return the rows of a body of JSON lines. The body is read in the same way as a file of JSON lines, with the types
    of columns that the store requires.
    """
    frame = store.frame
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as file:
        file.write(body)
        file.flush()
        try:
            source = open_source([file.name], frame.time, frame.column_uses(), timezone=frame.timezone)
            source = replace(
                source,
                schema=store.with_stored_types(source.schema, change_numbers=True, guessed=source.replaceable_columns),
            )
            return pa.Table.from_batches(source.batches(frame.columns_in(source.schema.names)))
        except ValueError as error:
            message = str(error).replace(os.path.realpath(file.name), _BODY_NAME)
            raise ValueError(_ADVICE_FOR_FILES.sub("; correct the events", message)) from None
