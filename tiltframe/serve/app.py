"""The web application: its routes, the middleware that checks, counts and logs each request, and the server,
uvicorn.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from aggr.extend.arguments import because, shown
from tiltframe.serve import prometheus
from tiltframe.serve.access import AccessControl, is_loopback
from tiltframe.serve.answers import Answers
from tiltframe.serve.asking import Asking
from tiltframe.serve.connections import bounded_connections
from tiltframe.serve.cost import Budget, Limits
from tiltframe.serve.errors import Refused, message_with_place
from tiltframe.serve.gauges import WindowAges
from tiltframe.serve.joining import Joining
from tiltframe.serve.maintaining import Maintenance
from tiltframe.serve.observed import LOG, Metrics, RequestObserver, log_to_stderr
from tiltframe.serve.openapi import openapi, page
from tiltframe.serve.promql.classic_buckets import DEFAULT_BOUNDS, BucketBounds
from tiltframe.serve.pushed import PushedChanges
from tiltframe.serve.redaction import Redaction
from tiltframe.serve.stores import Stores
from tiltframe.serve.workers import WorkerPool
from tiltframe.serve.writing import Writing
from tiltframe.store import StoreError
from tiltframe.store.backends import set_cache_memory

_CORS_OPTIONS: dict[str, Any] = {"allow_methods": ["GET", "POST"], "allow_headers": ["*"]}
_CORS_OPTIONS |= {"expose_headers": ["ETag", "Warning"]}
_PAGE_FOLDER = Path(__file__).parent / "page"
_MEDIA_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".txt": "text/plain"}
_FILE_NAMES = sorted(str(path.relative_to(_PAGE_FOLDER)) for path in _PAGE_FOLDER.rglob("*.*"))
_FILES_BY_PATH = {
    "/": "index.html",
    **{f"/page/{name}": name for name in _FILE_NAMES if Path(name).suffix in _MEDIA_TYPES},
}
# the paths that return no data of stores, and so need no token
PATHS = frozenset({*_FILES_BY_PATH, "/api", "/openapi.json"})
# The interval, in seconds, after which a thread lets another thread run Python code. A request runs Python code between
# many calls of Arrow. With Python's default of 5 ms, the request may wait for 5 ms after each call.
_SWITCH_INTERVAL = 0.0005
_GRACE_SECONDS = 5  # the maximum seconds for which a stopping server waits for running requests


def app_of(
    stores: Stores,
    pool: WorkerPool,
    limits: Limits,
    token: bytes | None = None,
    origins: Sequence[str] = (),
    is_writable: bool = False,
    metrics: Metrics | None = None,
    buckets: BucketBounds = DEFAULT_BOUNDS,
) -> Starlette:
    """Return the application. ``origins`` are the origins of web pages whose scripts may send requests to the
    application. If ``is_writable`` is true, the application accepts events. ``buckets`` are the bounds of classic
    histograms in the Prometheus API.
    """
    metrics = Metrics() if metrics is None else metrics
    metrics.registry.register(WindowAges(stores))
    budget = Budget(limits, metrics)
    answers = Answers(pool, limits, metrics)

    async def healthz(request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def metrics_text(request: Request) -> Response:
        running, waiting = pool.count_calls()
        metrics.queries_running.set(running)
        metrics.queries_waiting.set(waiting)
        return Response(await pool.look_up(metrics.text), media_type=Metrics.MEDIA_TYPE)

    async def readyz(request: Request) -> Response:
        try:
            await pool.look_up(stores.check_can_open)
        except StoreError as error:
            LOG.info({"message": "a store cannot be read", "error": message_with_place(error)})
            raise Refused(503, "a store cannot be read; the server's log has the reason") from None
        return JSONResponse({"status": "ready"})

    document = openapi(is_writable)

    async def described(request: Request) -> Response:
        return JSONResponse(document)

    async def described_to_people(request: Request) -> Response:
        return Response(page(document), media_type="text/html")

    routes = [
        Route("/openapi.json", described),
        Route("/api", described_to_people),
        *(_page_file(path, name) for path, name in _FILES_BY_PATH.items()),
        Route("/healthz", healthz),
        Route("/readyz", readyz),
        Route("/metrics", metrics_text),
        *Asking(stores, answers, budget).routes(),
        *Joining(stores, answers, budget).routes(),
        *PushedChanges(stores, pool).routes(),
        *prometheus.routes(stores.current_views, pool, answers=answers, budget=budget, buckets=buckets),
        *(Writing(stores, pool, limits, metrics).routes() if is_writable else _rejecting_routes()),
    ]
    app = Starlette(
        routes=routes,
        middleware=[
            *([Middleware(CORSMiddleware, allow_origins=origins, **_CORS_OPTIONS)] if origins else []),
            Middleware(RequestObserver, metrics),
            Middleware(AccessControl, token, PATHS | {"/healthz", "/readyz"}),
        ],
        exception_handlers={HTTPException: _error_response},
    )
    app.router.redirect_slashes = False
    return app


def _rejecting_routes() -> list[Route]:
    """Return the routes of a read-only server for requests that write. They reject each request with status 403."""

    async def refuse(request: Request) -> Response:
        raise Refused(403, "this server is read-only; start it with --writable to accept events")

    return [Route(f"/v1/stores/{{name}}/{what}", refuse, methods=["POST"]) for what in ("events", "metrics")]


def _error_response(request: Request, error: Exception) -> Response:
    """Handle an HTTP error that Starlette raises, such as 404 from its router: raise `Refused` with a message that
    contains the path. An error that is a `Refused` already, or has another status than 404 and 405, is raised again.
    """
    assert isinstance(error, HTTPException)
    if isinstance(error, Refused) or error.status_code not in (404, 405):
        raise error
    path = shown(request.url.path)
    if error.status_code == 404:
        raise Refused(404, f"there is no page {path}; the page / and /openapi.json list all addresses", error.headers)
    raise Refused(
        405, f"{path} does not support the method {request.method}; /openapi.json lists the methods", error.headers
    )


def _page_file(path: str, name: str) -> Route:
    """Return a route for a file of the web page. The file contains no data of stores, so it needs no token."""
    content = (_PAGE_FOLDER / name).read_bytes()

    async def page_file(request: Request) -> Response:
        kind = _MEDIA_TYPES[Path(name).suffix]
        return Response(content, media_type=kind, headers={"cache-control": "max-age=60"})

    return Route(path, page_file)


def run(
    stores: Stores,
    address: tuple[str, int],
    limits: Limits,
    token: bytes | None,
    origins: Sequence[str],
    is_writable: bool,
    should_maintain: bool = False,
    buckets: BucketBounds = DEFAULT_BOUNDS,
) -> None:
    """Serve stores until the process receives SIGINT or SIGTERM. Raise ``ValueError`` if the server cannot listen at
    the address, or if ``buckets`` has bounds for a measure that no store has.
    """
    sys.setswitchinterval(_SWITCH_INTERVAL)
    pool = WorkerPool(limits)
    metrics = Metrics()
    set_cache_memory(limits.memory // 2)
    app = app_of(
        stores, pool, limits, token=token, origins=origins, is_writable=is_writable, metrics=metrics, buckets=buckets
    )
    maintenance = Maintenance(stores, metrics)
    host, port = address
    listening = _listening_socket(host, port)
    log_to_stderr(Redaction(token))
    config = uvicorn.Config(
        app, http=bounded_connections(limits.seconds), log_config=None, access_log=False, lifespan="off", ws="none",
        server_header=False, proxy_headers=False, timeout_graceful_shutdown=_GRACE_SECONDS,
        h11_max_incomplete_event_size=1 << 16,
    )  # fmt: skip
    for signum in (signal.SIGINT, signal.SIGTERM):
        # After uvicorn has stopped, it sends the signal to the process again. This handler ignores the signal, so that
        # the lines after ``server.run`` are executed.
        signal.signal(signum, lambda *_: None)
    shown_host = f"[{host}]" if ":" in host else host
    audience = "for this machine only" if is_loopback(host) else "for other machines too"
    token_text = "with a token" if token else "without a token"
    mode = f"{token_text}, {'writable' if is_writable else 'read-only'}"
    url = f"http://{shown_host}:{listening.getsockname()[1]}/"
    LOG.info({"message": f"serving {', '.join(stores)} at {url}, {audience}, {mode}"})
    server = uvicorn.Server(config)
    app.state.is_stopping = lambda: server.should_exit
    if should_maintain:
        maintenance.start()
    try:
        server.run(sockets=[listening])
    finally:
        is_maintaining = maintenance.stop()
        is_answering = pool.close()
    LOG.info({"message": "stopped"})
    if is_answering or is_maintaining:
        # At a normal exit, Python would wait for threads that still run, and could abort while the thread for
        # maintenance runs. The process can end at once, because the results of the threads are not needed, and
        # commits are atomic.
        os._exit(0)


def _listening_socket(host: str, port: int) -> socket.socket:
    """Return a socket that listens at an address. Its protocol, TCP, is passed explicitly, because asyncio disables
    Nagle's algorithm only for sockets whose protocol was passed explicitly.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.create_server((host, port), family=family)
    except OSError as error:
        raise ValueError(
            f"cannot listen at {host}:{port}: {because(error)}; name another address or port with --listen"
        ) from None
    return socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, listening.detach())
