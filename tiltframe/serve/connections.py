"""Connections of clients: close connections whose requests arrive too slowly, and limit the number of connections.

                   headers complete              body complete
connected ──────────────▶ reading a body ──────────────▶ answered ──▶ next request
    │ _HEADER_SECONDS           │ body_seconds + margin               │ keep-alive of uvicorn
    ▼                           ▼                                     ▼
  closed                      closed                                closed
"""

from __future__ import annotations

import asyncio
import resource
from collections import OrderedDict
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

# the maximum number of seconds until the headers of a request are complete, counted from the connection or from the
# first byte of a later request
_HEADER_SECONDS = 10.0
# Seconds that are added to the time limit of a body before the connection is closed. In this time, the route that reads
# the body can still answer with status 408.
_BODY_MARGIN_SECONDS = 2.0
_MAX_CONNECTIONS = 1000
_OTHER_OPEN_FILES = 200  # an estimate of the file descriptors that the process has open in addition to connections


class BoundedConnection(H11Protocol):
    """An HTTP/1.1 connection that is closed if a request arrives too slowly. `bounded_connections` makes a subclass for
    each server.
    """

    body_seconds: float
    max_connections: int
    # connection → its timer, for connections whose request is not complete; the connection that has waited longest is
    # the first
    incomplete_requests: OrderedDict[BoundedConnection, asyncio.TimerHandle]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timer for the headers. If there are too many connections, close the connection that has waited
        longest for a complete request.
        """
        super().connection_made(transport)
        self._start_timer(_HEADER_SECONDS)
        if len(self.connections) > self.max_connections:
            next(iter(self.incomplete_requests)).transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer of the connection."""
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Process bytes of a request. One timer limits the time until the headers are complete, and a second timer the
        time until the body is complete.
        """
        cycle = self.cycle
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete and not self.cycle.more_body:
            self._stop_timer()
            return
        has_headers = self.cycle is not cycle
        if has_headers:
            self._stop_timer()
            self._start_timer(self.body_seconds + _BODY_MARGIN_SECONDS)
        elif self not in self.incomplete_requests:
            self._start_timer(_HEADER_SECONDS)

    def _start_timer(self, seconds: float) -> None:
        self.incomplete_requests[self] = self.loop.call_later(seconds, self.transport.abort)

    def _stop_timer(self) -> None:
        if timer := self.incomplete_requests.pop(self, None):
            timer.cancel()


def bounded_connections(body_seconds: float) -> type[BoundedConnection]:
    """Return the class of the connections of a server.

    Parameters
    ----------
    body_seconds : float
        The maximum number of seconds from the headers of a request to the end of its body.
    """
    members: dict[str, Any] = {
        "body_seconds": body_seconds,
        "max_connections": max(min(_MAX_CONNECTIONS, _max_open_files() - _OTHER_OPEN_FILES), 10),
        "incomplete_requests": OrderedDict(),
    }
    return type("ServerConnection", (BoundedConnection,), members)


def _max_open_files() -> int:
    """Return the number of files that the process may open. If this number is too small for the connections, first
    raise the soft limit as far as the hard limit allows.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed_files = 4 * _MAX_CONNECTIONS
    if soft != resource.RLIM_INFINITY and soft < needed_files:
        soft = needed_files if hard == resource.RLIM_INFINITY else min(needed_files, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return needed_files if soft == resource.RLIM_INFINITY else soft
