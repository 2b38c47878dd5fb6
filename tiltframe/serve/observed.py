"""Observation of requests: each request is logged and counted, and an error becomes a response."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any, NamedTuple

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tiltframe.metrics_text import metric_lines
from tiltframe.serve.errors import client_message, error_response, message_with_place, status_of
from tiltframe.serve.redaction import Redaction

_HELP = {
    "requests_total": "Number of answered requests, by route and status.",
    "rows_read_total": "Approximate number of rows of states that queries have read, by store.",
    "rejected_points_total": "Number of OpenTelemetry data points that were rejected, by store.",
    "cache_hits_total": "Number of answers that the server or the client had in its cache.",
    "cache_misses_total": "Number of computed answers.",
    "maintenance_rounds_total": "Number of rounds of compaction, expiry and removal of old files, by store.",
    "maintenance_failures_total": "Number of rounds of maintenance that ended with an error, by store.",
}
_DURATIONS = "request_seconds"
# the bounds, in seconds, of the buckets of the histogram of durations
_DURATION_BOUNDS = (0.005, 0.025, 0.1, 0.25, 1.0, 2.5, 10.0, 30.0)
LOG = logging.getLogger("tiltframe.serve")
_SEND_SECONDS = 30  # the time, in seconds, after which a client that reads nothing is disconnected
_MAX_TEXT_LENGTH = 1000  # the maximum length of a text in the log, in characters
_CONTENT_SECURITY_POLICY = (
    b"default-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
_SECURITY_HEADERS = [(b"x-content-type-options", b"nosniff"), (b"referrer-policy", b"no-referrer")]
_SECURITY_HEADERS += [(b"content-security-policy", _CONTENT_SECURITY_POLICY)]


class Metrics:
    """The counters of the server, by name and labels, and a histogram of durations for each route. Any thread may add
    to them.
    """

    def __init__(self) -> None:
        """Create counters without values."""
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, tuple[tuple[str, str], ...]]] = Counter()
        # route → number of requests per bucket, number of requests above the last bound, and sum of seconds
        self._seconds: dict[str, list[float]] = {}

    def add(self, name: str, amount: float = 1, **labels: str) -> None:
        """Add ``amount`` to the counter with the name ``name`` and these labels."""
        with self._lock:
            self._counts[name, tuple(labels.items())] += amount  # type: ignore[assignment]

    def add_seconds(self, route: str, seconds: float) -> None:
        """Add the duration of a request, in seconds, to the histogram of its route."""
        with self._lock:
            cells = self._seconds.setdefault(route, [0.0] * (len(_DURATION_BOUNDS) + 2))
            cells[bisect_left(_DURATION_BOUNDS, seconds)] += 1
            cells[-1] += seconds

    def text(self, gauges: Iterable[Gauge] = ()) -> str:
        """Return all counters and histograms, and the passed gauges, in Prometheus' text format."""
        with self._lock:
            counts = dict(self._counts)
            seconds = {route: list(cells) for route, cells in self._seconds.items()}
        lines = []
        for name, sentence in _HELP.items():
            samples = [
                (dict(labels), amount) for (counter, labels), amount in sorted(counts.items()) if counter == name
            ]
            lines += metric_lines(f"tiltframe_{name}", help=sentence, kind="counter", samples=samples)
        lines += _histogram_lines(seconds)
        for gauge in gauges:
            lines += [f"# HELP tiltframe_{gauge.name} {gauge.help}", f"# TYPE tiltframe_{gauge.name} gauge"]
            lines += [f"tiltframe_{gauge.name}{labels} {value:.17g}" for labels, value in gauge.values.items()]
        return "\n".join(lines) + "\n"


class Gauge(NamedTuple):
    """A metric whose values are computed when Prometheus scrapes it. ``values`` maps labels, as text such as
    ``{store="web"}`` or ``""``, to values.
    """

    name: str
    help: str
    values: Mapping[str, float]


def _histogram_lines(seconds: Mapping[str, list[float]]) -> list[str]:
    """Return the lines of text for the histograms of durations. ``seconds`` maps each route to a list: the number of
    requests in each bucket, the number of requests above the last bound, and the sum of all durations in seconds.
    """
    name = f"tiltframe_{_DURATIONS}"
    lines = [f"# HELP {name} Duration of requests in seconds, by route.", f"# TYPE {name} histogram"]
    for route, (*counts, total) in sorted(seconds.items()):
        cumulative = list(accumulate(counts))
        bounds = [*(f"{bound:g}" for bound in _DURATION_BOUNDS), "+Inf"]
        lines += [
            f'{name}_bucket{{route="{route}",le="{bound}"}} {count:.17g}'
            for bound, count in zip(bounds, cumulative, strict=True)
        ]
        lines += [
            f'{name}_sum{{route="{route}"}} {total:.17g}',
            f'{name}_count{{route="{route}"}} {cumulative[-1]:.17g}',
        ]
    return lines


@dataclass
class RequestObserver:
    """ASGI middleware that turns errors into responses, and adds every request to the log and to the metrics."""

    app: ASGIApp
    metrics: Metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        began = time.monotonic()
        sent = {"status": 0, "bytes": 0}
        response: dict[str, Any] = {}

        async def send_observed(message: Message) -> None:
            if message["type"] == "http.response.start":
                sent["status"] = message["status"]
                message = {**message, "headers": [*message["headers"], *_SECURITY_HEADERS]}
            sent["bytes"] += len(message.get("body", b""))
            try:
                async with asyncio.timeout(_SEND_SECONDS):
                    await send(message)
            except TimeoutError:
                response["error"] = f"the client read nothing for {_SEND_SECONDS} s, and its connection was closed"
                raise ClientDisconnect from None

        try:
            await self.app(scope, receive, send_observed)
        except ClientDisconnect:
            response.setdefault("error", "the client closed the connection")
        except Exception as error:
            response["error"] = message_with_place(error) if status_of(error) == 500 else client_message(error)
            if not sent["status"]:
                await error_response(error)(scope, receive, send_observed)
        finally:
            self._record(scope, time.monotonic() - began, {**sent, **response})
        return None

    def _record(self, scope: Scope, seconds: float, sent: dict[str, Any]) -> None:
        """Add an answered request to the metrics and to the log."""
        route = getattr(scope.get("endpoint"), "__name__", "none")
        self.metrics.add("requests_total", route=route, status=str(sent["status"]))
        self.metrics.add_seconds(route, seconds)
        address = scope["path"] + (f"?{scope['query_string'].decode('latin-1')}" if scope["query_string"] else "")
        client = (scope.get("client") or ["?"])[0]
        request = {"method": scope["method"], "address": address, "client": client}
        LOG.info({**request, "seconds": round(seconds, 6), **sent})


class _JsonFormatter(logging.Formatter):
    """A log formatter that writes one JSON object per line, without secrets."""

    def __init__(self, redact: Redaction) -> None:
        super().__init__()
        self._redact = redact

    def format(self, record: logging.LogRecord) -> str:
        fields = record.msg if isinstance(record.msg, dict) else {"message": record.getMessage().splitlines()[0]}
        fields = {
            name: self._redacted_start(value) if isinstance(value, str) else value for name, value in fields.items()
        }
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        return json.dumps({"time": at.replace("+00:00", "Z"), **fields}, ensure_ascii=True, default=str)

    def _redacted_start(self, text: str) -> str:
        """Return the beginning of a text in which secrets are replaced. Secrets are replaced before the text is cut to
        its maximum length, so that no part of a secret remains.
        """
        return self._redact(text[: 2 * _MAX_TEXT_LENGTH])[:_MAX_TEXT_LENGTH]


def log_to_stderr(redact: Redaction) -> None:
    """Write the log of this server and of uvicorn to standard error, without secrets."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter(redact))
    levels = {"tiltframe.serve": logging.INFO, "uvicorn.error": logging.WARNING, "asyncio": logging.ERROR}
    for name, level in levels.items():
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(level)
