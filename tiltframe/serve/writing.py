"""Writing over HTTP: events are rolled up into a store, once, however often they are sent."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import threading
import uuid
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from aggr.arguments import shown
from tiltframe.files.inputs import open_source
from tiltframe.serve.answers import WorkerPool
from tiltframe.serve.cost import BODY_BYTES, Limits
from tiltframe.serve.errors import Refused
from tiltframe.serve.forms import ARROW, JSON, LINES, PROTOBUF
from tiltframe.serve.http import read_body
from tiltframe.serve.stores import Stores
from tiltframe.store import FrameStore
from tiltframe.store.changes.append import check_writer
from tiltframe.store.types_from_store import settled

_CALLED = "the events"  # in messages, in place of a file
_REMEMBERED = 10_000  # requests without a number


class Writing:
    """The routes that write."""

    def __init__(self, stores: Stores, pool: WorkerPool, limits: Limits) -> None:
        """Take the stores, and the threads that write."""
        self._stores, self._pool, self._limits, self._once = stores, pool, limits, _Once()

    def routes(self) -> list[Route]:
        """List the routes."""
        return [
            Route("/v1/stores/{name}/events", self.events, methods=["POST"]),
            Route("/v1/stores/{name}/metrics", self.metrics, methods=["POST"]),
        ]

    async def events(self, request: Request) -> Response:
        """Add events under a writer's number."""
        kind = _kind(request, "events", LINES, ARROW)
        writer, number = _numbered(request)
        body = await read_body(request, BODY_BYTES, self._limits.seconds)

        def append() -> bool:
            store = self._stores[request.path_params["name"]]
            rows = read_lines(body, store) if kind == LINES else _from_stream(body)
            return store.append_rows(rows, writer, number)

        return JSONResponse({"added": await self._pool.run(append)})

    async def metrics(self, request: Request) -> Response:
        """Add what an exporter of OpenTelemetry sends, under a writer's number, or once while this server runs."""
        kind = _kind(request, "metrics", PROTOBUF, JSON)
        numbered = _numbered(request) if request.query_params else None
        body = await read_body(request, BODY_BYTES, self._limits.seconds, ("identity", "gzip"))
        from aggr.interchange.otlp_metrics import rows_of_metrics  # a tenth of the time in which a server starts

        is_packed = request.headers.get("content-encoding") == "gzip"

        def append() -> None:
            name = request.path_params["name"]
            store = self._stores[name]
            rows = rows_of_metrics(_unpacked(body) if is_packed else body, kind == JSON, store.frame.time)
            if not rows:
                return
            events = read_lines("".join(json.dumps(row) + "\n" for row in rows).encode(), store)
            if numbered:
                store.append_rows(events, *numbered)
            else:
                self._once.append(name, store, events, body)

        await self._pool.run(append)
        return Response(b"{}" if kind == JSON else b"", media_type=kind)


class _Once:
    """What came without a number: the same bytes count once, as long as the server runs and has not met many others."""

    def __init__(self) -> None:
        self._lock, self._writer, self._number = threading.Lock(), f"otlp-{uuid.uuid4().hex}", 0
        self._met: OrderedDict[bytes, None] = OrderedDict()

    def append(self, name: str, store: FrameStore, events: pa.Table, body: bytes) -> None:
        digest = hashlib.sha256(name.encode() + b" " + body).digest()
        with self._lock:
            if digest in self._met:
                return
            self._number += 1  # of one that failed too: it may be there
            store.append_rows(events, self._writer, self._number)
            self._met[digest] = None
            if len(self._met) > _REMEMBERED:
                self._met.popitem(last=False)


def _kind(request: Request, what: str, *kinds: str) -> str:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in kinds:
        raise Refused(415, f"{what} are {' or '.join(kinds)}; say which by Content-Type, got {shown(kind)}")
    return kind


def _numbered(request: Request) -> tuple[str, int]:
    words = dict(request.query_params.multi_items())
    if len(request.query_params.multi_items()) != 2 or set(words) != {"writer", "number"}:
        raise ValueError("say whose events these are, and nothing else: ?writer=NAME&number=N")
    if not (words["number"].isascii() and words["number"].isdigit()):
        raise ValueError(f"number is a whole number that grows with what is sent; got {shown(words['number'])}")
    check_writer(words["writer"], int(words["number"]))
    return words["writer"], int(words["number"])


def _unpacked(body: bytes) -> bytes:
    try:
        unpacked: bytes = pa.CompressedInputStream(pa.BufferReader(body), "gzip").read(BODY_BYTES + 1)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"the body is no gzip: {str(error).splitlines()[0]}") from None
    if len(unpacked) > BODY_BYTES:
        raise Refused(413, f"the body has more than {BODY_BYTES:,} bytes, the server's limit; send less at once")
    return unpacked


def read_lines(body: bytes, store: FrameStore) -> pa.Table:
    """Read JSON lines as files of them are read, in the types of the columns that the store was made of."""
    frame = store.frame
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as file:
        file.write(body)
        file.flush()
        try:
            source = open_source([file.name], frame.time, frame.column_uses(), timezone=frame.timezone)
            source = replace(source, schema=settled(source.schema, frame, store, of_numbers=True))
            return pa.Table.from_batches(source.batches(frame.columns_in(source.schema.names)))
        except ValueError as error:
            raise ValueError(str(error).replace(os.path.realpath(file.name), _CALLED)) from None


def _from_stream(body: bytes) -> pa.RecordBatchReader:
    try:
        reader = pa.ipc.open_stream(body)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{_CALLED} are no stream of Arrow: {str(error).splitlines()[0]}") from None

    def sound() -> Iterator[pa.RecordBatch]:
        for batch in reader:
            batch.validate(full=True)  # lengths and offsets come from outside
            yield batch

    return pa.RecordBatchReader.from_batches(reader.schema, sound())
