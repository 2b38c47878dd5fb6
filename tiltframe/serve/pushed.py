"""Pushed changes: server-sent events with the windows that change. A window has the form in which ``tiltframe watch``
prints it.

An event has the changes up to a version of the store, and this version is the id of the event. A client that reconnects
sends the id of the last event, and receives all later changes. For this, the server compares two versions of the store
by their lists of parts. The server keeps the lists of the latest 256 versions in memory. A client with an older id
receives all windows, so that the client misses no change.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import AsyncIterator

import pyarrow as pa
import pyarrow.compute as pc
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from aggr.extend.arguments import nearest, shown
from tiltframe.extend import json_lines
from tiltframe.serve.errors import Refused
from tiltframe.serve.http import checked_parameters
from tiltframe.serve.stores import Stores
from tiltframe.serve.workers import WorkerPool
from tiltframe.store import SeenParts
from tiltframe.store.backends import LEVEL

# the media type of the events
EVENTS = "text/event-stream"
# the maximum number of clients that wait for changes
_MAX_LISTENERS = 32
# the number of versions of a store that are kept in memory, so that clients can continue from them
_MAX_VERSIONS = 256
# the number of seconds between two checks of a store for a new version
_CHECK_SECONDS = 1.0
# the number of seconds between two checks of whether the server is stopping
_STEP_SECONDS = 0.2
# the number of seconds between two comment lines in the stream of events; they show that the connection is open
_HEARTBEAT_SECONDS = 15.0


class PushedChanges:
    """The HTTP route for pushed changes."""

    def __init__(self, stores: Stores, pool: WorkerPool) -> None:
        """Create the route for ``stores``. Versions are compared in threads of ``pool``."""
        self._stores = stores
        self._pool = pool
        self._parts_by_version: dict[str, OrderedDict[int, SeenParts]] = {}
        self._listeners = 0

    def routes(self) -> list[Route]:
        """Return a list with the route for changes."""
        return [Route("/v1/stores/{name}/changes", self.changes)]

    async def changes(self, request: Request) -> Response:
        """Return a response with the changes of a store as events. The response ends when the client disconnects or the
        server stops.
        """
        name, per, since = self._read_parameters(request)
        if self._listeners >= _MAX_LISTENERS:
            raise Refused(
                503,
                f"{_MAX_LISTENERS} clients wait for changes, which is the server's limit; try again later",
                {"retry-after": "5"},
            )
        seen = await self._pool.look_up(self._parts_to_compare, name, per, since)
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(self._events(request, name, per, seen), 200, headers, EVENTS)

    @staticmethod
    def _read_parameters(request: Request) -> tuple[str, str | None, int | None]:
        """Return the store's name, the level and the version in a request; the level and the version may be None. Raise
        ``ValueError`` for other parameters.
        """
        parameters = dict(checked_parameters(request))
        for parameter in parameters:
            if parameter not in ("per", "since"):
                raise ValueError(
                    f"the request for changes has no parameter {shown(parameter)}; "
                    f"{nearest(parameter, ['per', 'since'])}"
                )
        since = request.headers.get("last-event-id") or parameters.get("since")
        if since is not None and not re.fullmatch("[0-9]{1,18}", since):
            raise ValueError(f"the parameter since must be a version of the store, a whole number; got {shown(since)}")
        return request.path_params["name"], parameters.get("per"), None if since is None else int(since)

    def _parts_to_compare(self, name: str, per: str | None, since: int | None) -> SeenParts | None:
        """Return the list of parts with which later versions are compared: the list of the version ``since``, or of the
        current version if ``since`` equals None. Return None if the list of the version ``since`` is no longer in
        memory.
        """
        view = self._stores.current_view(name)
        if per is not None:
            view.frame.level(per)  # This call raises an error if the store does not have the level ``per``.
        self._remember(name, view.seen)
        return view.seen if since is None else self._parts_by_version[name].get(since)

    def _remember(self, name: str, seen: SeenParts) -> None:
        versions = self._parts_by_version.setdefault(name, OrderedDict())
        versions[seen.version] = seen
        while len(versions) > _MAX_VERSIONS:
            versions.popitem(last=False)

    async def _events(
        self, request: Request, name: str, per: str | None, seen: SeenParts | None
    ) -> AsyncIterator[bytes]:
        """Yield an event for each version of a store that is newer than the version of the list of parts ``seen``.
        After some time without events, yield a comment line, so that the connection stays open.
        """
        self._listeners += 1
        is_stopping = getattr(request.app.state, "is_stopping", lambda: False)
        silent_seconds = 0.0
        try:
            yield b"retry: 1000\n\n" if seen is None else f"retry: 1000\nid: {seen.version}\n\n".encode()
            while True:
                seen, event = await self._pool.look_up(self._event, name, per, seen)
                if event:
                    yield event
                    silent_seconds = 0.0
                for _ in range(round(_CHECK_SECONDS / _STEP_SECONDS)):
                    if is_stopping():
                        return
                    await asyncio.sleep(_STEP_SECONDS)
                silent_seconds += _CHECK_SECONDS
                if silent_seconds >= _HEARTBEAT_SECONDS:
                    yield b":\n\n"
                    silent_seconds = 0.0
        finally:
            self._listeners -= 1

    def _event(self, name: str, per: str | None, seen: SeenParts | None) -> tuple[SeenParts, bytes]:
        """Return the current list of parts of a store, and an event with the windows that changed since the list
        ``seen``. If ``per`` is passed, the event has only windows of this level. The event is empty if the store still
        has the version of ``seen``. If the store has a new version but no window changed, the event has an id and no
        windows.
        """
        changes = self._stores.current_view(name).changes(seen)
        if seen is not None and changes.seen == seen:
            return seen, b""
        self._remember(name, changes.seen)
        windows = changes.windows
        if per is not None:
            windows = windows.filter(pc.equal(windows.column(LEVEL), self._stores[name].frame.level(per).name))
        if not windows.num_rows:
            return changes.seen, f"id: {changes.seen.version}\n\n".encode()
        version = pa.repeat(pa.scalar(changes.seen.version), windows.num_rows)
        # `splitlines` would also divide a line at other signs in a key, such as U+2028.
        lines = json_lines(windows.add_column(0, "version", version)).removesuffix("\n").split("\n")
        data = "".join(f"data: {line}\n" for line in lines)
        return changes.seen, f"id: {changes.seen.version}\nevent: changes\n{data}\n".encode()
