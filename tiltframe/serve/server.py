"""The server: uvicorn on one socket, until it is told to stop."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Sequence

import uvicorn

from aggr.arguments import because
from tiltframe.serve.access import is_loopback
from tiltframe.serve.app import app_of
from tiltframe.serve.cost import Limits
from tiltframe.serve.observed import LOG, log_to_stderr
from tiltframe.serve.stores import Stores
from tiltframe.serve.worker_pool import WorkerPool

_GRACE = 5  # seconds that answers have to end in


def run(
    stores: Stores,
    address: tuple[str, int],
    limits: Limits,
    token: bytes | None,
    origins: Sequence[str],
    writable: bool,
) -> None:
    """Serve stores until SIGINT or SIGTERM; raises ``ValueError`` if nobody can listen at the address."""
    pool = WorkerPool(limits)
    app = app_of(stores, pool, limits, token, origins, writable)
    host, port = address
    listening = _listening(host, port)
    log_to_stderr()
    config = uvicorn.Config(
        app, log_config=None, access_log=False, lifespan="off", ws="none", server_header=False, proxy_headers=False,
        timeout_graceful_shutdown=_GRACE, h11_max_incomplete_event_size=1 << 16,
    )  # fmt: skip
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, lambda *_: None)  # uvicorn raises again what has stopped it
    shown_host = f"[{host}]" if ":" in host else host
    who = "to this machine alone" if is_loopback(host) else "to all who can reach it"
    LOG.info(
        {
            "message": f"serving {', '.join(stores)} at http://{shown_host}:{listening.getsockname()[1]}/, {who}, "
            f"{'without a token' if token is None else 'who bring the token'}{', who may write' if writable else ''}"
        }
    )
    uvicorn.Server(config).run(sockets=[listening])
    LOG.info({"message": "stopped"})
    if pool.close():
        os._exit(0)  # Python would wait for the threads; nobody does for what they compute, and commits are whole


def _listening(host: str, port: int) -> socket.socket:
    """Listen at an address, by a socket whose protocol is named: asyncio sends small answers at once by such alone."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.create_server((host, port), family=family)
    except OSError as error:
        raise ValueError(f"cannot listen at {host}:{port}: {because(error)}") from None
    return socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, listening.detach())
