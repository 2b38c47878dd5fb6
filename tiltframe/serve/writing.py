"""Writing over HTTP: events are rolled up into a store, once, however often they are sent."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from aggr.arguments import shown
from aggr.tables.keys import columns_keys_may_read
from tiltframe.files.inputs import open_source
from tiltframe.serve.asking import read_body
from tiltframe.serve.errors import Refused
from tiltframe.serve.forms import ARROW, LINES
from tiltframe.serve.limits import BODY_BYTES, Limits
from tiltframe.serve.stores import Stores
from tiltframe.serve.worker_pool import WorkerPool
from tiltframe.store import FrameStore
from tiltframe.store.commit import check_writer
from tiltframe.store.types_from_store import settled

_CALLED = "the events"  # in messages, in place of a file


class Writing:
    """The route that writes."""

    def __init__(self, stores: Stores, pool: WorkerPool, limits: Limits) -> None:
        """Take the stores, and the threads that write."""
        self._stores, self._pool, self._limits = stores, pool, limits

    def routes(self) -> list[Route]:
        """List the routes."""
        return [Route("/v1/stores/{name}/events", self.events, methods=["POST"])]

    async def events(self, request: Request) -> Response:
        """Add events under a writer's number."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind not in (LINES, ARROW):
            raise Refused(415, f"events are {LINES} or {ARROW}; say which by Content-Type, got {shown(kind)}")
        words = dict(request.query_params.multi_items())
        if len(request.query_params.multi_items()) != 2 or set(words) != {"writer", "number"}:
            raise ValueError("say whose events these are, and nothing else: ?writer=NAME&number=N")
        if not (words["number"].isascii() and words["number"].isdigit()):
            raise ValueError(f"number is a whole number that grows with what is sent; got {shown(words['number'])}")
        check_writer(words["writer"], int(words["number"]))
        body = await read_body(request, BODY_BYTES, self._limits.seconds)

        def append() -> bool:
            store = self._stores[request.path_params["name"]]
            rows = _from_lines(body, store) if kind == LINES else _from_stream(body)
            return store.append_rows(rows, words["writer"], int(words["number"]))

        return JSONResponse({"added": await self._pool.run(append)})


def _from_lines(body: bytes, store: FrameStore) -> pa.Table:
    """Read JSON lines as files of them are read, in the types of the columns that the store was made of."""
    frame = store.frame
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as file:
        file.write(body)
        file.flush()
        try:
            source = open_source(
                [file.name], frame.time, columns_keys_may_read(frame.keyed_by), timezone=frame.timezone
            )
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
