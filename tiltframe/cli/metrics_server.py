"""The HTTP server of a running stream: /metrics returns metrics in Prometheus' text format, and /healthz returns
whether the stream works.
"""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from aggr.arguments import shown
from tiltframe.metrics_text import CONTENT_TYPE

if TYPE_CHECKING:
    from http.server import ThreadingHTTPServer


def metrics_address(text: str) -> tuple[str, int]:
    """Return the host and the port in ``text``, the value of the option ``--metrics``. If the text has no host, return
    ``""`` as the host, which means all addresses of this machine.

    >>> metrics_address("127.0.0.1:9465"), metrics_address("[::1]:0"), metrics_address(":9465")
    (('127.0.0.1', 9465), ('::1', 0), ('', 9465))
    """
    read = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9.-]*)):([0-9]{1,5})", text)
    if not read or int(read[3]) > 65535:
        raise ValueError(
            f"cannot read the address {shown(text)} of --metrics; write HOST:PORT, such as 127.0.0.1:9465, or :9465 "
            "for all addresses of this machine"
        )
    return read[1] or read[2], int(read[3])


@contextmanager
def serving_metrics(
    address: tuple[str, int] | None, text: Callable[[], str], is_alive: Callable[[], bool]
) -> Iterator[int | None]:
    """Within the block, answer HTTP requests in separate threads, and yield the port. Without an address, yield None
    and answer no requests. The function ``text`` returns the metrics. The function ``is_alive`` returns whether the
    stream works.

    Raises
    ------
    ValueError
        If the server cannot listen at the address, for example because another process uses it.
    """
    if address is None:
        yield None
        return
    server = _server_at(address, text, is_alive)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()


def _server_at(address: tuple[str, int], text: Callable[[], str], is_alive: Callable[[], bool]) -> ThreadingHTTPServer:
    """Return an HTTP server that listens at an address and answers requests for /metrics and /healthz. Raise
    ``ValueError`` if it cannot listen at this address.
    """
    from http import HTTPStatus
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    class Handler(BaseHTTPRequestHandler):
        timeout = 10  # the maximum number of seconds until a client has sent its request

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/metrics":
                self._answer(HTTPStatus.OK, CONTENT_TYPE, text())
            elif path == "/healthz":
                alive = is_alive()
                status = HTTPStatus.OK if alive else HTTPStatus.SERVICE_UNAVAILABLE
                body = {"status": "ok" if alive else "the stream has not finished a batch for five minutes"}
                self._answer(status, "application/json", json.dumps(body) + "\n")
            else:
                self._answer(
                    HTTPStatus.NOT_FOUND,
                    "text/plain",
                    f"there is no page {shown(path)}; there are /metrics and /healthz\n",
                )

        def _answer(self, status: HTTPStatus, kind: str, body: str) -> None:
            data = body.encode()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *arguments: object) -> None:
            """Write no log, because the reports of the stream are written to standard error."""

    class Server(ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            """Ignore clients that close their connection early."""

    try:
        return Server(address, Handler)
    except OSError as error:
        host, port = address
        raise ValueError(
            f"--metrics cannot listen at {host}:{port}: {error.strerror or error}; name another address, or port 0"
        ) from None
