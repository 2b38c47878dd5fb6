"""The app: all routes, behind what checks, counts and logs every request."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from aggr.arguments import shown
from tiltframe.serve import prometheus
from tiltframe.serve.access import Access
from tiltframe.serve.answers import Answers
from tiltframe.serve.asking import Asking
from tiltframe.serve.cost import Budget, Limits
from tiltframe.serve.errors import Refused
from tiltframe.serve.observed import Metrics, Observed
from tiltframe.serve.openapi import openapi, page
from tiltframe.serve.stores import Stores
from tiltframe.serve.worker_pool import WorkerPool
from tiltframe.serve.writing import Writing

_SAID = {
    404: "there is nothing at {path}; the page at / and /openapi.json say what there is",
    405: "{path} takes no {method}",
}
_CORS: dict[str, Any] = {
    "allow_methods": ["GET", "POST"],
    "allow_headers": ["*"],
    "expose_headers": ["ETag", "Warning"],
}
_FOLDER = Path(__file__).parent / "page"
_FILES = {
    "/": ("index.html", "text/html"),
    "/page.js": ("page.js", "text/javascript"),
    "/heat.js": ("heat.js", "text/javascript"),
    "/page.css": ("page.css", "text/css"),
    "/uplot.js": ("uplot.js", "text/javascript"),
    "/uplot.css": ("uplot.css", "text/css"),
    "/uplot-licence.txt": ("uplot-licence.txt", "text/plain"),
}
PATHS = frozenset(_FILES)


def app_of(
    stores: Stores,
    pool: WorkerPool,
    limits: Limits,
    token: bytes | None = None,
    origins: Sequence[str] = (),
    writable: bool = False,
) -> Starlette:
    """Make the app; pages at ``origins`` may ask it by their scripts, and ``writable`` stores take events."""
    metrics = Metrics()
    budget, answers = Budget(limits, metrics), Answers(pool, limits, metrics)

    async def healthz(request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def metrics_text(request: Request) -> Response:
        return Response(metrics.text(), media_type="text/plain; version=0.0.4")

    document = openapi(writable)

    async def described(request: Request) -> Response:
        return JSONResponse(document)

    async def described_to_people(request: Request) -> Response:
        return Response(page(document), media_type="text/html")

    routes = [
        Route("/openapi.json", described),
        Route("/api", described_to_people),
        *page_routes(),
        Route("/healthz", healthz),
        Route("/metrics", metrics_text),
        *Asking(stores, answers, budget).routes(),
        *prometheus.routes(stores.all_now, pool, answers, budget),
        *(Writing(stores, pool, limits).routes() if writable else _refusals()),
    ]
    app = Starlette(
        routes=routes,
        middleware=[
            *([Middleware(CORSMiddleware, allow_origins=origins, **_CORS)] if origins else []),
            Middleware(Observed, metrics),
            Middleware(Access, token, PATHS | {"/healthz"}),
        ],
        exception_handlers={HTTPException: _said},
    )
    app.router.redirect_slashes = False
    return app


def _refusals() -> list[Route]:
    """Say of the routes that write that this server does not."""

    async def refuse(request: Request) -> Response:
        raise Refused(403, "this server changes nothing; who starts it with --writable has it take events")

    return [Route(f"/v1/stores/{{name}}/{what}", refuse, methods=["POST"]) for what in ("events", "metrics")]


def _said(request: Request, error: Exception) -> Response:
    """Say in a sentence what the router means."""
    assert isinstance(error, HTTPException)
    if isinstance(error, Refused) or error.status_code not in _SAID:
        raise error
    sentence = _SAID[error.status_code].format(path=shown(request.url.path), method=request.method)
    raise Refused(error.status_code, sentence, error.headers)


def page_routes() -> list[Route]:
    """Make a route for each file."""
    return [_route(path, _FOLDER / name, kind) for path, (name, kind) in _FILES.items()]


def _route(path: str, file: Path, kind: str) -> Route:
    content = file.read_bytes()

    async def page_file(request: Request) -> Response:
        return Response(content, media_type=kind, headers={"cache-control": "max-age=60"})

    return Route(path, page_file)
