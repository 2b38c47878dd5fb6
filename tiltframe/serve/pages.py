"""The page's files, which come with the package: they hold nothing of the stores, and are sent to everyone."""

from __future__ import annotations

from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

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


def page_routes() -> list[Route]:
    """Make a route for each file."""
    return [_route(path, _FOLDER / name, kind) for path, (name, kind) in _FILES.items()]


def _route(path: str, file: Path, kind: str) -> Route:
    content = file.read_bytes()

    async def page_file(request: Request) -> Response:
        return Response(content, media_type=kind, headers={"cache-control": "max-age=60"})

    return Route(path, page_file)
