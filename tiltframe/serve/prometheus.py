"""The Prometheus HTTP API over stores: what Grafana, promtool and their like ask."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

import numpy as np
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from aggr.arguments import shown
from tiltframe.serve.answers import Answers, Question, WorkerPool, written
from tiltframe.serve.cost import Budget
from tiltframe.serve.errors import BadData, OutOfTime, Refused, Unanswerable, sentence_of
from tiltframe.serve.promql import response
from tiltframe.serve.promql.catalogue import Metrics, label_names, label_values, series_of
from tiltframe.serve.promql.evaluate import evaluate, range_alone, shown_of
from tiltframe.serve.promql.metrics import metrics_of
from tiltframe.serve.promql.parse import read_duration, read_expression, read_moment
from tiltframe.serve.promql.remote_read import remote_read
from tiltframe.serve.promql.select import LOOKBACK, Evaluation
from tiltframe.store import FrameStore, StoreError, UnreachableStore
from tiltframe.store.backends.protocol import Snapshot

Form = Mapping[str, list[str]]
Endpoint = Callable[[Request], Awaitable[Response]]

MOST_POINTS = 11_000  # of a series, as in Prometheus
_MOST_BYTES = 1 << 20
_API = "2.45.0"  # the release of Prometheus whose API and PromQL this is
_ERRORS: tuple[tuple[type[Exception] | tuple[type[Exception], ...], str, int], ...] = (
    (UnreachableStore, "unavailable", 503),
    (StoreError, "internal", 500),
    ((ValueError, OverflowError), Unanswerable.kind, Unanswerable.status),  # PromQL's errors have their own
)
_JSON = {"content-type": "application/json"}
_PACKED = {"content-type": "application/x-protobuf", "content-encoding": "snappy"}
_EMPTY: dict[str, Any] = {"rules": {"groups": []}, "alerts": {"alerts": []}, "query_exemplars": []}
_EMPTY |= {"targets": {"activeTargets": [], "droppedTargets": []}}


def routes(
    now: Callable[[], Mapping[str, tuple[FrameStore, Snapshot]]], pool: WorkerPool, answers: Answers, budget: Budget
) -> list[Route]:
    """Make the routes of the API; ``now`` looks at the stores as they are now, for each request.

    Raises ``ValueError`` if two measures or two keys of a store would have the same legal name.
    """
    metrics_of(now())
    api = _Api(budget)
    texts: dict[str, Callable[[Form, Metrics], str]] = {
        "query": api.query,
        "query_range": api.query_range,
        "series": api.series,
        "labels": api.labels,
        "metadata": api.metadata,
        "status/buildinfo": api.buildinfo,
        **{name: _constant(data) for name, data in _EMPTY.items()},
    }

    def asked(name: str, text_of: Callable[[Form, Metrics], str]) -> Endpoint:
        async def answer(request: Request) -> Response:
            form = await _form(request)
            if name == "query":
                form = {"time": [f"{time.time():.3f}"], **form}

            def ask() -> Question:
                metrics = metrics_of(now())
                versions = {each.store_name: each.snapshot.version for named in metrics.values() for each in named}
                return written(json.dumps([name, form, versions], sort_keys=True), lambda: text_of(form, metrics))

            return await answers.to(request, ask)

        return _saying_errors(name, answer)

    async def read(request: Request) -> Response:
        body = await _body(request)
        return Response(await pool.run(lambda: api.read(body, metrics_of(now()))), headers=_PACKED)

    made = [Route(f"/api/v1/{n}", asked(n, text_of), methods=["GET", "POST"]) for n, text_of in texts.items()]
    values = Route("/api/v1/label/{name}/values", asked("label_values", api.label_values), methods=["GET"])
    return [*made, values, Route("/api/v1/read", _saying_errors("read", read), methods=["POST"])]


@dataclass(frozen=True)
class _Api:
    """The answers, each the JSON of a form's parameters."""

    budget: Budget

    def query(self, form: Form, metrics: Metrics) -> str:
        expression = read_expression(_one(form, "query"))
        evaluation = self._evaluation(form, metrics, np.array([read_moment(_one(form, "time"), "time")]), None)
        alone = range_alone(expression, evaluation)
        if alone is not None:
            vector, moments = alone
            return response.success(response.matrix(vector, moments), evaluation.warnings)
        value = shown_of(evaluate(expression, evaluation))
        return response.success(response.instant(value, evaluation.moments), evaluation.warnings)

    def query_range(self, form: Form, metrics: Metrics) -> str:
        expression = read_expression(_one(form, "query"))
        start, end = (read_moment(_one(form, name), name) for name in ("start", "end"))
        step = read_duration(_one(form, "step"), "step")
        if end < start:
            raise BadData("the end of the range is before its start; exchange them")
        if (end - start) // step >= MOST_POINTS:
            raise BadData(
                f"a series has at most {MOST_POINTS:,} points; this range has {(end - start) // step + 1:,}; ask for "
                "greater steps"
            )
        evaluation = self._evaluation(form, metrics, np.arange(start, end + 1, step), step)
        value = shown_of(evaluate(expression, evaluation))
        if isinstance(value, str):
            raise BadData("a text has no range; ask for it by /api/v1/query")
        return response.success(response.matrix(value, evaluation.moments), evaluation.warnings)

    def read(self, body: bytes, metrics: Metrics) -> bytes:
        return remote_read(body, lambda: self._evaluation({}, metrics, np.zeros(0, np.int64), None))

    def _evaluation(self, form: Form, metrics: Metrics, moments: Any, step: int | None) -> Evaluation:
        lookback = read_duration(form["lookback_delta"][-1], "lookback_delta") if "lookback_delta" in form else LOOKBACK
        seconds: float = self.budget.limits.seconds
        if "timeout" in form:
            seconds = min(seconds, read_duration(form["timeout"][-1], "timeout") / 1e6)
        deadline = time.monotonic() + seconds
        return Evaluation(metrics, moments, step, self.budget, lookback, deadline)

    def series(self, form: Form, metrics: Metrics) -> str:
        if not form.get("match[]"):
            raise BadData("series are asked for by at least one match[], such as match[]=requests_total")
        return self._listed(series_of(metrics, form["match[]"], _within(form), self.budget), form)

    def labels(self, form: Form, metrics: Metrics) -> str:
        found = label_names(metrics, form.get("match[]", []), _within(form), self.budget)
        return self._listed(found, form)

    def label_values(self, form: Form, metrics: Metrics) -> str:
        name, matches = form["name"][0], form.get("match[]", [])
        return self._listed(label_values(metrics, name, matches, _within(form), self.budget), form)

    def _listed(self, found: list[Any], form: Form) -> str:
        return response.success(json.dumps(found[: _limit(form)], ensure_ascii=False))

    def metadata(self, form: Form, metrics: Metrics) -> str:
        wanted = form.get("metric")
        described = {n: [m.described for m in ms] for n, ms in metrics.items() if wanted is None or n in wanted}
        return response.success(json.dumps(dict(list(described.items())[: _limit(form)]), ensure_ascii=False))

    def buildinfo(self, form: Form, metrics: Metrics) -> str:
        names = ("revision", "branch", "buildUser", "buildDate", "goVersion")
        return response.success(json.dumps({"version": _API, **dict.fromkeys(names, "")}))


def _constant(data: Any) -> Callable[[Form, Metrics], str]:
    return lambda form, metrics: response.success(json.dumps(data))


def _saying_errors(name: str, answer: Endpoint) -> Endpoint:
    """Say errors as Prometheus does; the name is the route's in metrics."""

    async def respond(request: Request) -> Response:
        try:
            return await answer(request)
        except Refused as error:  # over a limit, or by who runs the answer
            kind = Unanswerable.kind if error.status_code == Unanswerable.status else OutOfTime.kind
            body = response.failure(kind, error.detail)
            return Response(body, error.status_code, headers=_JSON)
        except Exception as error:
            for errors, kind, status in _ERRORS:
                if isinstance(error, errors):
                    body = response.failure(getattr(error, "kind", kind), sentence_of(error))
                    return Response(body, getattr(error, "status", status), headers=_JSON)
            raise

    respond.__name__ = name
    return respond


async def _form(request: Request) -> Form:
    body = await _body(request)
    try:
        given = parse_qs(request.url.query, True, errors="strict", max_num_fields=1000)
        for name, values in parse_qs(body.decode(), True, errors="strict", max_num_fields=1000).items():
            given[name] = given.get(name, []) + values
    except ValueError as error:
        raise BadData(f"cannot read the parameters: {error}") from None
    return given | {name: [value] for name, value in request.path_params.items()}


async def _body(request: Request) -> bytes:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MOST_BYTES:
            raise BadData(f"the body of a request has at most {_MOST_BYTES:,} bytes; this one has more")
    return body


def _one(form: Form, name: str) -> str:
    values = form.get(name, [])
    if len(values) > 1:
        raise BadData(f"{name} is given {len(values)} times; give it once")
    if not values or not values[0]:
        raise BadData(f"the parameter {name} is missing; give {name}=…")
    return values[0]


def _within(form: Form) -> tuple[int | None, int | None]:
    """Read the range in which series are looked for; an end that is not given is open."""
    start, end = (read_moment(form[name][-1], name) if form.get(name) else None for name in ("start", "end"))
    if start is not None and end is not None and end < start:
        raise BadData("the end of the range is before its start; exchange them")
    return start, end


def _limit(form: Form) -> int | None:
    if not form.get("limit"):
        return None
    text = form["limit"][-1]
    if not text.isascii() or not text.isdigit():
        raise BadData(f"limit must be a whole number from 0, which is no limit; got {shown(text)}")
    return int(text[:9]) or None
