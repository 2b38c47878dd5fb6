"""Reading over HTTP: results of queries, and descriptions of stores. A query consists of URL parameters or of JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from aggr import Measure
from aggr.extend import BucketState
from aggr.extend.arguments import nearest, shown
from tiltframe.extend import as_text, json_value, python_values
from tiltframe.serve.answers import Answers, Question, object_question
from tiltframe.serve.cost import QUERY_BYTES, Budget
from tiltframe.serve.deadline import Deadline
from tiltframe.serve.errors import Refused
from tiltframe.serve.http import check_word_count, checked_parameters, pop_store_name, read_body, read_members
from tiltframe.serve.promql.catalogue import columns_in_promql
from tiltframe.serve.promql.metrics import label_of
from tiltframe.serve.response_formats import headers_and_body, media_type_of
from tiltframe.serve.stores import Stores
from tiltframe.store import REPEATABLE_PARAMETERS, Query, StoreView, query_from_words
from tiltframe.store.backends import END, LEVEL, PARTIAL, START

PARAMETERS = ("store", *(field.name for field in fields(Query)))
_KEY_VALUES = 1000  # the maximum number of values in the answer to a request for the values of a key
_LABELS = (LEVEL, START, END, PARTIAL)


def query_from_url(params: QueryParams) -> tuple[str, Query]:
    """Return the store's name and the query in the parameters of a URL.

    >>> query_from_url(QueryParams("store=web&per=1h&measures=n&measures=rate%3Derrors/n&keys=&flat=true"))[1]
    ... # doctest: +NORMALIZE_WHITESPACE
    Query(per='1h', within=None, where=None, measures={'n': 'n', 'rate': 'errors/n'}, keys=(), fill=False, order_by=(),
    limit=None, now=None, flat=True, having=None, points=None, timezone=None, latest=False, closed=False, edges=None,
    running=False)
    """
    texts_by_parameter: dict[str, Any] = {}
    for name in params:
        texts = params.getlist(name)
        texts_by_parameter[name] = texts[0] if len(texts) == 1 and name not in REPEATABLE_PARAMETERS else texts
    return _store_and_query(texts_by_parameter, query_from_words)


def query_from_body(body: bytes) -> tuple[str, Query]:
    """Return the store's name and the query in a JSON body."""
    return _store_and_query(read_members(body, '{"store": "web", "per": "1h"}'), Query.from_dict)


def _store_and_query(members: dict[str, Any], read_query: Callable[[dict[str, Any]], Query]) -> tuple[str, Query]:
    """Return the store's name and the query in the members of a request. Raise ``ValueError`` if the query does not
    name the windows of its results.
    """
    check_word_count(members)
    store = pop_store_name(members)
    query = read_query(members)
    if query.per is None and query.points is None:
        raise ValueError(
            "the windows of the results are missing; pass per=LEVEL, per=all for a single result, or points=N"
        )
    return store, query


@dataclass(frozen=True)
class Asking:
    """The HTTP handlers of requests that read stores."""

    served_stores: Stores
    answers: Answers
    budget: Budget

    def routes(self) -> list[Route]:
        """Return the routes of the application, each with its handler."""
        return [
            Route("/v1/query", self.query, methods=["GET", "POST"]),
            Route("/v1/stores", self.stores),
            Route("/v1/stores/{name}", self.store),
            Route("/v1/stores/{name}/keys/{key:path}", self.key_values),
        ]

    async def query(self, request: Request) -> Response:
        """Return the results of a query."""
        media_type = media_type_of(request.headers.get("accept", ""))
        body = await read_body(request, QUERY_BYTES, self.budget.limits.seconds) if request.method == "POST" else None
        url_parameters = checked_parameters(request)

        def make_question() -> Question:
            name, query = query_from_url(url_parameters) if body is None else query_from_body(body)
            view = self.served_stores.current_view(name)

            def compute(compression: str | None, deadline: Deadline) -> tuple[Mapping[str, str], Iterator[bytes]]:
                answer = view.ask(query)
                self.budget.spend(name, answer.cost)
                return headers_and_body(
                    name, view, answer, media_type=media_type, compression=compression, deadline=deadline
                )

            return Question(_query_key(name, view, query), {name: view.content_id}, media_type, compute)

        return await self.answers.respond(request, make_question)

    async def stores(self, request: Request) -> Response:
        """Return the list of all stores."""

        def make_question() -> Question:
            views = {name: self.served_stores.current_view(name) for name in self.served_stores}
            versions = {name: view.content_id for name, view in views.items()}
            return object_question(
                "stores", versions, lambda: {"stores": [_outline(name, view) for name, view in views.items()]}
            )

        return await self.answers.respond(request, make_question)

    async def store(self, request: Request) -> Response:
        """Return the description of a store: its frame, levels, ranges, and the columns of its measures."""
        return await self._description_response(request, "store", _description)

    async def key_values(self, request: Request) -> Response:
        """Return a response with the first `_KEY_VALUES` values of a key, sorted, and whether there are more."""
        key = request.path_params["key"]
        parameters = checked_parameters(request)
        within = parameters.get("within")
        if unknown := set(parameters) - {"within"}:
            raise Refused(
                400,
                f"a request for the values of a key has only the parameter within=RANGE; got {shown(min(unknown))}; "
                "leave it out",
            )

        def make_question() -> Question:
            name = request.path_params["name"]
            view = self.served_stores.current_view(name)
            if key not in view.manifest.key_types:
                raise Refused(404, f"the store {name} has no key {shown(key)}; {nearest(key, view.manifest.key_types)}")
            query = Query(within=within, keys=[key])

            def describe() -> object:
                answer = view.windows(query)
                self.budget.spend(name, answer.cost)
                values = answer.table().column(key).combine_chunks().sort()
                first_values = python_values(values.slice(0, _KEY_VALUES))
                return {
                    "key": key,
                    "values": [json_value(value, 2**53) for value in first_values],
                    "more": len(values) > len(first_values),
                }

            request_key = f"key {_query_key(name, view, query)}"
            return object_question(request_key, {name: view.content_id}, describe)

        return await self.answers.respond(request, make_question)

    async def _description_response(
        self, request: Request, kind: str, describe: Callable[[str, StoreView], object]
    ) -> Response:
        name = request.path_params["name"]

        def make_question() -> Question:
            view = self.served_stores.current_view(name)
            return object_question(f"{kind} {name}", {name: view.content_id}, lambda: describe(name, view))

        return await self.answers.respond(request, make_question)


def _query_key(name: str, view: StoreView, query: Query) -> str:
    """Return a text that is equal for equal queries of a store. If the query does not set ``now``, it is evaluated at
    the time ``view.now``, and the text includes this time.
    """
    now = view.now if query.now is None else ""
    return f"{name} {now} {query.to_json()}"


def _outline(name: str, view: StoreView) -> dict[str, Any]:
    frame = view.frame
    levels = [level.name for level in frame.levels]
    return {"name": name, "levels": levels, "keys": list(frame.keys), "measures": list(frame.results)}


def _description(name: str, view: StoreView) -> dict[str, Any]:
    """Return the description of a store, from its manifest and its list of parts, without reading states. A part
    consists of states of one level that were written together.
    """
    frame = view.frame
    known_starts = view.known_from
    levels = []
    for level in frame.levels:
        windows_of_level = view.level(level.name)
        levels.append(
            {
                "level": level.name,
                "seconds": level.length / 1e6,
                "first": None if windows_of_level.first_start is None else as_text(windows_of_level.first_start),
                "end": None if windows_of_level.end is None else as_text(windows_of_level.end),
                "rows": windows_of_level.rows,
                "available_from": as_text(windows_of_level.available_from) if windows_of_level.has_expired else None,
                "kept_for": view.manifest.retention.get(level.name),
            }
        )
    key_types = view.manifest.key_types
    return {
        "name": name,
        "version": view.version,
        "time": frame.time,
        "timezone": frame.timezone,
        "levels": levels,
        "keys": [{"name": key, "type": str(dtype), "label": label_of(key)} for key, dtype in key_types.items()],
        "measures": [
            {
                "name": measure,
                "call": result if isinstance(result, str) else repr(result),
                "buckets": isinstance(result, Measure) and isinstance(result.function.own_state, BucketState),
                "columns": _columns(name, view, measure),
                "known_from": as_text(known_starts[measure]) if measure in known_starts else None,
            }
            for measure, result in frame.results.items()
        ],
    }


def _columns(name: str, view: StoreView, measure: str) -> list[dict[str, Any]]:
    query = Query(per=view.frame.levels[-1].name, measures=[measure], keys=[], flat=True)
    in_promql = columns_in_promql(name, view, measure)
    fields = [field for field in view.ask(query).schema if field.name not in _LABELS]
    return [{"name": field.name, "type": str(field.type), **in_promql.get(field.name, {})} for field in fields]
