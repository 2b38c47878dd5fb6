"""Observation of requests: each request is logged and counted, and an error becomes a response."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    disable_created_metrics,
    generate_latest,
)
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tiltframe.serve.errors import ERROR, client_message, error_response, message_with_place, reason_of, status_of
from tiltframe.serve.redaction import Redaction

# the bounds, in seconds, of the buckets of the histogram of durations
_DURATION_BOUNDS = (0.005, 0.025, 0.1, 0.25, 1.0, 2.5, 10.0, 30.0)
# the reason, in the metrics, of an error that occurred after the status of the response was sent
_INTERRUPTED = "interrupted"
LOG = logging.getLogger("tiltframe.serve")
# the time, in seconds, after which a client that reads nothing is disconnected
_SEND_SECONDS = 30
# the maximum length of a text in the log, in characters
_MAX_TEXT_LENGTH = 1000
_CONTENT_SECURITY_POLICY = (
    b"default-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
_SECURITY_HEADERS = [(b"x-content-type-options", b"nosniff"), (b"referrer-policy", b"no-referrer")]
_SECURITY_HEADERS += [(b"content-security-policy", _CONTENT_SECURITY_POLICY)]


# By default, each counter has a second series, whose value is the time at which the counter was created. Prometheus
# does not need the second series.
disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics:
    """The metrics of a server, in a registry of their own. Any thread may change them."""

    MEDIA_TYPE = "text/plain; version=0.0.4"  # the media type of the text that the method `text` returns

    def __init__(self) -> None:
        """Create the metrics without values."""
        self.registry = CollectorRegistry()
        options: dict[str, Any] = {"namespace": "tiltframe", "registry": self.registry}
        counter: Callable[..., Counter] = partial(Counter, **options)
        gauge: Callable[..., Gauge] = partial(Gauge, **options)
        self.requests = counter("requests", "Number of answered requests, by route and status.", ["route", "status"])
        self.seconds = Histogram(
            "request_seconds",
            "Duration of requests in seconds, by route.",
            ["route"],
            buckets=_DURATION_BOUNDS,
            **options,
        )
        self.refusals = counter(
            "refusals",
            "Number of requests that ended with an error, by route and reason. The reason interrupted means that the "
            "error came after the status 200 was sent.",
            ["route", "reason"],
        )
        self.rows_read = counter(
            "rows_read", "Approximate number of rows of states that queries have read, by store.", ["store"]
        )
        self.rejected_points = counter(
            "rejected_points", "Number of OpenTelemetry data points that were rejected, by store.", ["store"]
        )
        self.cache_hits = counter("cache_hits", "Number of answers that the server or the client had in its cache.")
        self.cache_misses = counter("cache_misses", "Number of computed answers.")
        self.maintenance_rounds = counter(
            "maintenance_rounds",
            "Number of rounds of compaction, expiry and removal of old files, by store.",
            ["store"],
        )
        self.maintenance_failures = counter(
            "maintenance_failures", "Number of rounds of maintenance that ended with an error, by store.", ["store"]
        )
        self.queries_running = gauge("queries_running", "Number of queries, look-ups and writes that run.")
        self.queries_waiting = gauge("queries_waiting", "Number of queries, look-ups and writes that wait for others.")
        Info("build", "The release of the server.", **options).info({"version": version("tiltframe")})

    def text(self) -> str:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self.registry).decode()


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
            scope[ERROR] = error
            if not sent["status"]:
                await error_response(error)(scope, receive, send_observed)
        finally:
            self._record(scope, time.monotonic() - began, {**sent, **response})
        return None

    def _record(self, scope: Scope, seconds: float, sent: dict[str, Any]) -> None:
        """Add an answered request to the metrics and to the log."""
        route = getattr(scope.get("endpoint"), "__name__", "none")
        self.metrics.requests.labels(route, str(sent["status"])).inc()
        self.metrics.seconds.labels(route).observe(seconds)
        address = scope["path"] + (f"?{scope['query_string'].decode('latin-1')}" if scope["query_string"] else "")
        client = (scope.get("client") or ["?"])[0]
        request = {"method": scope["method"], "address": address, "client": client}
        error = scope.get(ERROR)
        if error is not None:
            is_interrupted = sent["status"] < 400
            self.metrics.refusals.labels(route, _INTERRUPTED if is_interrupted else reason_of(error)).inc()
            sent["error"] = message_with_place(error) if status_of(error) == 500 else client_message(error)
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
