"""The Prometheus HTTP API over stores, for Grafana, promtool and similar clients."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

import numpy as np
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from aggr.extend.arguments import shown
from tiltframe.serve.answers import Answers, Question, text_question
from tiltframe.serve.cost import QUERY_BYTES, Budget
from tiltframe.serve.deadline import Deadline
from tiltframe.serve.errors import ERROR, BadData, prometheus_error_response, status_of
from tiltframe.serve.http import read_body
from tiltframe.serve.promql import response
from tiltframe.serve.promql.catalogue import Listing, MetricsByName, label_names, label_values, series_of
from tiltframe.serve.promql.classic_buckets import DEFAULT_BOUNDS, BucketBounds
from tiltframe.serve.promql.evaluate import evaluate, range_values, response_value
from tiltframe.serve.promql.metrics import metrics_by_name
from tiltframe.serve.promql.parse import read_bound, read_duration, read_expression, read_moment
from tiltframe.serve.promql.remote_read import ReadRequest, chunked_response, sampled_response
from tiltframe.serve.promql.select import LOOKBACK, Evaluation
from tiltframe.serve.promql.status import CONSTANT_ANSWERS, flags_of, runtime_information, store_statistics
from tiltframe.serve.promql.syntax_tree import syntax_tree
from tiltframe.serve.workers import WorkerPool, stream
from tiltframe.store import StoreError, StoreView
from windows import Instants

Form = Mapping[str, list[str]]
TextOf = Callable[[Form, MetricsByName, Deadline], str]
Endpoint = Callable[[Request], Awaitable[Response]]

MOST_STEPS = 11_000  # the maximum number of steps of a range, as in Prometheus
_MAX_BYTES = QUERY_BYTES
# the release of Prometheus that this API and PromQL follow
_PROMETHEUS_RELEASE = "2.45.0"
# the maximum number of parameters in a URL, and of parameters in a body
_MAX_PARAMETERS = 1000
# parameters for which an empty text means the same as a missing parameter
_OPTIONAL_PARAMETERS = ("time", "start", "end", "timeout", "lookback_delta", "limit", "metric")
_STREAM_HEADERS = {"content-type": "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse"}
# the minimum number of bytes that are sent at once; frames of a remote-read response are collected up to this size
_STREAM_PIECE_BYTES = 1 << 18
_SNAPPY_HEADERS = {"content-type": "application/x-protobuf", "content-encoding": "snappy"}


def routes(
    current_views: Callable[[], Mapping[str, StoreView]],
    pool: WorkerPool,
    answers: Answers,
    budget: Budget,
    buckets: BucketBounds = DEFAULT_BOUNDS,
) -> list[Route]:
    """Return the routes of the API. ``current_views`` is called for each request, and returns the current views of the
    stores by name.

    Raise ``ValueError`` if two measures or two keys of a store would have the same name in PromQL, where characters
    other than letters and digits are replaced by ``_``. Also raise ``ValueError`` if ``buckets`` names a measure that
    no store has.
    """
    metrics_by_name(current_views())
    buckets.check([measure for view in current_views().values() for measure in view.frame.measures])
    api = _Api(budget)
    texts: dict[str, TextOf] = {
        "query": api.query,
        "query_range": api.query_range,
        "series": api.series,
        "labels": api.labels,
        "metadata": api.metadata,
        "format_query": api.format_query,
        "parse_query": api.parse_query,
        "status/buildinfo": api.buildinfo,
        "status/runtimeinfo": api.runtimeinfo,
        "status/flags": api.flags,
        "status/tsdb": api.tsdb,
        **{name: _constant_text(data) for name, data in CONSTANT_ANSWERS.items()},
    }

    seconds = budget.limits.seconds

    def endpoint_of(name: str, text_of: TextOf) -> Endpoint:
        async def answer(request: Request) -> Response:
            form = await _read_form(request, seconds)
            if name == "query":
                form = {"time": [f"{time.time():.3f}"], **form}

            def make_question() -> Question:
                metrics = metrics_by_name(current_views(), buckets)
                versions = {
                    metric.store_name: metric.view.content_id
                    for metrics_of_name in metrics.values()
                    for metric in metrics_of_name
                }
                request_key = json.dumps([name, form], sort_keys=True)
                return text_question(request_key, versions, lambda deadline: text_of(form, metrics, deadline))

            return await answers.respond(request, make_question)

        return _with_error_responses(name, answer)

    async def read(request: Request) -> Response:
        body = await read_body(request, _MAX_BYTES, seconds, ("identity", "snappy"))
        read_request = await pool.look_up(ReadRequest.parse, body)
        deadline = Deadline(seconds)
        metrics = await pool.look_up(lambda: metrics_by_name(current_views(), buckets))
        all_metrics = [metric for named in metrics.values() for metric in named]
        if not await pool.look_up(read_request.is_streamed, all_metrics):
            answer = await pool.run(lambda: api.read(read_request, metrics, deadline))
            return Response(answer, headers=_SNAPPY_HEADERS)
        frames = await pool.look_up(lambda: api.read_chunks(read_request, metrics, deadline))
        pieces = _pieces_of(frames)
        # The first frames are computed before the response begins. If they raise an error, the response still has the
        # status of this error.
        first_piece = await pool.run(next, pieces, b"")
        return StreamingResponse(stream(pool, deadline, first_piece, pieces), headers=_STREAM_HEADERS)

    api_routes = [
        Route(f"/api/v1/{n}", endpoint_of(n, text_of), methods=["GET", "POST"]) for n, text_of in texts.items()
    ]
    values = Route("/api/v1/label/{name}/values", endpoint_of("label_values", api.label_values), methods=["GET"])
    return [*api_routes, values, Route("/api/v1/read", _with_error_responses("read", read), methods=["POST"])]


@dataclass(frozen=True)
class _Api:
    """The endpoints of the API. Most of them receive the parameters of a request, and return the JSON text of the
    response.
    """

    budget: Budget

    def query(self, form: Form, metrics: MetricsByName, deadline: Deadline) -> str:
        expression = read_expression(_only_value(form, "query"))
        moments = np.array([read_moment(_only_value(form, "time"), "time")])
        evaluation = self._evaluation(form, metrics, moments=moments, step=None, deadline=deadline)
        values_of_range = range_values(expression, evaluation)
        if values_of_range is not None:
            vector, moments = values_of_range
            return response.success(response.matrix(vector, moments), evaluation.warnings, evaluation.infos)
        value = response_value(evaluate(expression, evaluation))
        return response.success(response.instant(value, evaluation.moments), evaluation.warnings, evaluation.infos)

    def query_range(self, form: Form, metrics: MetricsByName, deadline: Deadline) -> str:
        expression = read_expression(_only_value(form, "query"))
        start, end = (read_moment(_only_value(form, name), name) for name in ("start", "end"))
        step = read_duration(_only_value(form, "step"), "step")
        if end < start:
            start_text = shown(form["start"][0])
            end_text = shown(form["end"][0])
            raise BadData(f"the end of the range, {end_text}, is before its start, {start_text}; exchange them")
        if (steps := (end - start) // step) > MOST_STEPS:
            raise BadData(f"a range has at most {MOST_STEPS:,} steps; this one has {steps:,}; use a greater step")
        moments = np.arange(start, end + 1, step)
        evaluation = self._evaluation(form, metrics, moments=moments, step=step, deadline=deadline)
        value = response_value(evaluate(expression, evaluation))
        if isinstance(value, str):
            raise BadData(f"the string {shown(value)} cannot be evaluated over a range; use /api/v1/query")
        return response.success(response.matrix(value, evaluation.moments), evaluation.warnings, evaluation.infos)

    def read(self, request: ReadRequest, metrics: MetricsByName, deadline: Deadline) -> bytes:
        return sampled_response(request, self._remote_read(metrics, deadline))

    def read_chunks(self, request: ReadRequest, metrics: MetricsByName, deadline: Deadline) -> Iterator[bytes]:
        return chunked_response(request, self._remote_read(metrics, deadline))

    def _remote_read(self, metrics: MetricsByName, deadline: Deadline) -> Evaluation:
        no_moments = np.zeros(0, np.int64)
        return Evaluation(metrics, no_moments, None, budget=self.budget, deadline=deadline, is_remote_read=True)

    def _evaluation(
        self, form: Form, metrics: MetricsByName, *, moments: Instants, step: int | None, deadline: Deadline
    ) -> Evaluation:
        lookback = read_duration(form["lookback_delta"][-1], "lookback_delta") if "lookback_delta" in form else LOOKBACK
        if "timeout" in form:
            deadline = deadline.within(read_duration(form["timeout"][-1], "timeout") / 1e6)
        return Evaluation(metrics, moments, step, budget=self.budget, lookback=lookback, deadline=deadline)

    def series(self, form: Form, metrics: MetricsByName, deadline: Deadline) -> str:
        if not form.get("match[]"):
            raise BadData("the parameter match[] is missing; pass at least one, such as match[]=requests_total")
        return self._list_response(series_of(metrics, form["match[]"], self._listing(form, deadline)), form)

    def labels(self, form: Form, metrics: MetricsByName, deadline: Deadline) -> str:
        names = label_names(metrics, form.get("match[]", []), self._listing(form, deadline))
        return self._list_response(names, form)

    def label_values(self, form: Form, metrics: MetricsByName, deadline: Deadline) -> str:
        name = form["name"][0]
        matches = form.get("match[]", [])
        return self._list_response(label_values(metrics, name, matches, self._listing(form, deadline)), form)

    def _listing(self, form: Form, deadline: Deadline) -> Listing:
        """Return the time range in which the request lists series, with the budget and the deadline of the request. If
        ``start`` or ``end`` is missing, the range is open on that side.
        """
        start, end = (read_bound(form[name][-1], name) if form.get(name) else None for name in ("start", "end"))
        if start is not None and end is not None and end < start:
            start_text = shown(form["start"][-1])
            end_text = shown(form["end"][-1])
            raise BadData(f"the end of the range, {end_text}, is before its start, {start_text}; exchange them")
        return Listing(start, end, self.budget, deadline)

    def _list_response(self, values: list[Any], form: Form) -> str:
        return response.success(json.dumps(values[: _limit(form)], ensure_ascii=False))

    def metadata(self, form: Form, metrics: MetricsByName, deadline: Deadline) -> str:
        metric = form.get("metric")
        metadata_by_name = {n: [m.metadata for m in ms] for n, ms in metrics.items() if metric is None or n in metric}
        return response.success(json.dumps(dict(list(metadata_by_name.items())[: _limit(form)]), ensure_ascii=False))

    def format_query(self, form: Form, metrics: MetricsByName, deadline: Deadline) -> str:
        expression = read_expression(_only_value(form, "query"))
        return response.success(json.dumps(expression.prettify(), ensure_ascii=False))

    def parse_query(self, form: Form, metrics: MetricsByName, deadline: Deadline) -> str:
        expression = read_expression(_only_value(form, "query"))
        return response.success(json.dumps(syntax_tree(expression), ensure_ascii=False))

    def runtimeinfo(self, form: Form, metrics: MetricsByName, deadline: Deadline) -> str:
        return response.success(json.dumps(runtime_information(_stores_of(metrics))))

    def flags(self, form: Form, metrics: MetricsByName, deadline: Deadline) -> str:
        return response.success(json.dumps(flags_of(self.budget.limits)))

    def tsdb(self, form: Form, metrics: MetricsByName, deadline: Deadline) -> str:
        return response.success(json.dumps(store_statistics(metrics), ensure_ascii=False))

    def buildinfo(self, form: Form, metrics: MetricsByName, deadline: Deadline) -> str:
        names = ("revision", "branch", "buildUser", "buildDate", "goVersion")
        return response.success(json.dumps({"version": _PROMETHEUS_RELEASE, **dict.fromkeys(names, "")}))


def _pieces_of(frames: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the frames of a remote-read response, joined to pieces of at least `_STREAM_PIECE_BYTES` bytes. The last
    piece may be shorter.
    """
    piece = bytearray()
    for frame in frames:
        piece += frame
        if len(piece) >= _STREAM_PIECE_BYTES:
            yield bytes(piece)
            piece.clear()
    yield bytes(piece)


def _stores_of(metrics: MetricsByName) -> list[StoreView]:
    """Return the views of the stores of all metrics, one view per store."""
    return list(
        {metric.store_name: metric.view for metrics_of_name in metrics.values() for metric in metrics_of_name}.values()
    )


def _constant_text(data: Any) -> TextOf:
    return lambda form, metrics, deadline: response.success(json.dumps(data))


def _with_error_responses(name: str, answer: Endpoint) -> Endpoint:
    """Return an endpoint that calls ``answer``. If ``answer`` raises an error, the endpoint returns a response in
    Prometheus' format. ``name`` is the name of the route in the metrics.
    """

    async def respond(request: Request) -> Response:
        try:
            return await answer(request)
        except ClientDisconnect:
            raise
        except Exception as error:
            if status_of(error) == 500 and not isinstance(error, StoreError):
                raise  # `RequestObserver` logs the details of an internal error, and does not send them to the client.
            request.scope[ERROR] = error
            return prometheus_error_response(error)

    respond.__name__ = name
    return respond


async def _read_form(request: Request, seconds: int) -> Form:
    """Return all parameters of a request, as name → values: those of the URL, of the form in the body, and of the path.
    Optional parameters with empty texts are left out. Raise `BadData` if the parameters are not UTF-8, or if there are
    too many parameters.
    """
    body = await read_body(request, _MAX_BYTES, seconds)
    try:
        form = parse_qs(request.url.query, True, errors="strict", max_num_fields=_MAX_PARAMETERS)
        for name, values in parse_qs(body.decode(), True, errors="strict", max_num_fields=_MAX_PARAMETERS).items():
            form[name] = form.get(name, []) + values
    except UnicodeDecodeError:
        raise BadData("cannot read the parameters, because they are not UTF-8; URL-encode them as UTF-8") from None
    except ValueError:
        raise BadData(
            f"cannot read the parameters, because there are more than {_MAX_PARAMETERS:,}; send fewer"
        ) from None
    present = {name: values for name, values in form.items() if name not in _OPTIONAL_PARAMETERS or any(values)}
    return present | {name: [value] for name, value in request.path_params.items()}


def _only_value(form: Form, name: str) -> str:
    values = form.get(name, [])
    if len(values) > 1:
        raise BadData(f"{name} is passed {len(values)} times; pass it once")
    if not values or not values[0]:
        raise BadData(f"the parameter {name} is missing; pass {name}=…")
    return values[0]


def _limit(form: Form) -> int | None:
    if not form.get("limit"):
        return None
    text = form["limit"][-1]
    if not text.isascii() or not text.isdigit():
        raise BadData(f"the parameter limit must be a whole number; 0 means without limit; got {shown(text)}")
    return int(text[:9]) or None
