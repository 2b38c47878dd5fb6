"""Asking over HTTP: queries, by words in the address or as JSON, and what stores say of themselves."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pyarrow as pa
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from aggr.arguments import nearest, shown
from aggr.arrow import compute as pc
from tiltframe.names import END, LEVEL, PARTIAL, START
from tiltframe.ranges import as_text
from tiltframe.serve.answers import Answers, Question, described
from tiltframe.serve.cost import QUERY_BYTES, Budget, at_a_moment
from tiltframe.serve.deadline import Deadline
from tiltframe.serve.errors import Refused
from tiltframe.serve.forms import form_of, pieces_of, warning_header
from tiltframe.serve.http import read_body
from tiltframe.serve.promql.catalogue import columns_in_promql
from tiltframe.serve.promql.metrics import label_of
from tiltframe.serve.stores import Stores
from tiltframe.store import FrameStore, Query
from tiltframe.store.backends.protocol import Snapshot
from tiltframe.store.log.records import expired_before, known_from
from tiltframe.store.query.execution import ask as ask_as_of
from tiltframe.store.query.execution import moment, plans_of, read
from tiltframe.text.measures import asked_measures
from tiltframe.text.results import plain

MANY = ("per", "measures", "keys", "order_by")  # words that may stand several times in an address
WHOLE = ("limit", "points")
TRUTHS = ("flat", "latest")
WORDS = ("store", *(field.name for field in fields(Query)))
_KEY_VALUES = 1000  # of a key, to choose from
_LABELS = (LEVEL, START, END, PARTIAL)


def from_address(params: QueryParams) -> tuple[str, Query]:
    """Read the store's name and a query from an address.

    >>> from_address(QueryParams("store=web&per=1h&measures=n&measures=rate%3Derrors/n&keys=&flat=true"))[1]
    ... # doctest: +NORMALIZE_WHITESPACE
    Query(per='1h', within=None, where=None, measures={'n': 'n', 'rate': 'errors/n'}, keys=(), fill=False, order_by=(),
    limit=None, now=None, flat=True, having=None, points=None, timezone=None, latest=False, edges=None)
    """
    members: dict[str, Any] = {}
    for word in dict.fromkeys(params.keys()):
        given = params.getlist(word)
        if word in MANY:
            members[word] = [text for text in given if text]
        elif len(given) > 1:
            raise ValueError(f"{word} is given {len(given)} times; give it once")
        else:
            members[word] = _value(word, given[0])
    if "measures" in members:
        members["measures"] = asked_measures(members["measures"])
    return _of(members)


def from_body(body: bytes) -> tuple[str, Query]:
    """Read the store's name and a query from JSON."""
    try:
        members = json.loads(body)
    except (ValueError, RecursionError):
        raise ValueError('the body is no JSON; write an object: {"store": "web", "per": "1h"}') from None
    if not isinstance(members, Mapping):
        raise ValueError(f'the body must be an object, {{"store": "web", "per": "1h"}}; got {shown(members)}')
    return _of(dict(members))


def _of(members: dict[str, Any]) -> tuple[str, Query]:
    store = members.pop("store", None)
    if not isinstance(store, str):
        raise ValueError("say which store is asked: store=NAME, one of those at /v1/stores")
    query = Query.from_dict(members)
    if query.per is None and query.points is None:
        raise ValueError("say what results are per: per=LEVEL, or per=all for one result; or points=N")
    return store, query


def _value(word: str, text: str) -> Any:
    if word in TRUTHS:
        if text not in ("true", "false"):
            raise ValueError(f"{word} is true or false; got {shown(text)}")
        return text == "true"
    if word == "fill" and text in ("true", "false"):
        return text == "true"
    if word in WHOLE:
        if not re.fullmatch("[0-9]{1,18}", text):
            raise ValueError(f"{word} is a whole number; got {shown(text)}")
        return int(text)
    return text


@dataclass(frozen=True)
class Asking:
    """The routes that read."""

    served: Stores
    answers: Answers
    budget: Budget

    def routes(self) -> list[Route]:
        """List the routes."""
        return [
            Route("/v1/query", self.query, methods=["GET", "POST"]),
            Route("/v1/stores", self.stores),
            Route("/v1/stores/{name}", self.store),
            Route("/v1/stores/{name}/keys/{key}", self.key_values),
        ]

    async def query(self, request: Request) -> Response:
        """Answer a query."""
        form = form_of(request.headers.get("accept", ""))
        body = await read_body(request, QUERY_BYTES, self.budget.limits.seconds) if request.method == "POST" else None
        words = request.query_params

        def ask() -> Question:
            name, query = from_address(words) if body is None else from_body(body)
            store, snapshot = self.served.now(name)
            query = at_a_moment(query, store.frame)

            def compute(packing: str | None, deadline: Deadline) -> tuple[Mapping[str, str], Iterator[bytes]]:
                self.budget.spend_on_query(name, store, snapshot, query)
                answer = ask_as_of(store.backend, store.manifest, query, snapshot)
                answer = replace(answer, slices=deadline.checked(answer.slices))
                warnings = [*answer.expired, *answer.unknown]
                head = {"store": name, "version": snapshot.version, "warnings": warnings}
                return warning_header(warnings), pieces_of(answer, form, packing, head)

            return Question(f"{name} {snapshot.version} {query.to_json()}", form, compute)

        return await self.answers.to(request, ask)

    async def stores(self, request: Request) -> Response:
        """List the stores."""

        def ask() -> Question:
            seen = {name: self.served.now(name) for name in self.served}
            versions = json.dumps({name: snapshot.version for name, (_, snapshot) in seen.items()})
            return described(
                f"stores {versions}", lambda: {"stores": [_outline(name, store) for name, (store, _) in seen.items()]}
            )

        return await self.answers.to(request, ask)

    async def store(self, request: Request) -> Response:
        """Describe a store: its frame, levels, ranges, and the columns of its measures."""
        return await self._about(request, "store", _description)

    async def key_values(self, request: Request) -> Response:
        """List the values of a key, to choose from."""
        key, within = request.path_params["key"], request.query_params.get("within")
        if others := set(request.query_params) - {"within"}:
            raise Refused(400, f"values of a key are asked for by within alone; got {shown(min(others))}")

        def ask() -> Question:
            name = request.path_params["name"]
            store, snapshot = self.served.now(name)
            if key not in store.frame.keys:
                raise Refused(404, f"the store {name} has no key {shown(key)}; {nearest(key, store.frame.keys)}")
            query = at_a_moment(Query(within=within, keys=[key]), store.frame)

            def describe() -> object:
                self.budget.spend_on_query(name, store, snapshot, query)
                values = _key_values(key, query, store, snapshot)
                most = values.slice(0, _KEY_VALUES).to_pylist()
                return {"key": key, "values": [plain(value, 2**53) for value in most], "more": len(values) > len(most)}

            return described(f"{name} {snapshot.version} key {query.to_json()}", describe)

        return await self.answers.to(request, ask)

    async def _about(
        self, request: Request, words: str, describe: Callable[[str, FrameStore, Snapshot], object]
    ) -> Response:
        name = request.path_params["name"]

        def ask() -> Question:
            store, snapshot = self.served.now(name)
            return described(f"{name} {snapshot.version} {words}", lambda: describe(name, store, snapshot))

        return await self.answers.to(request, ask)


def _key_values(key: str, query: Query, store: FrameStore, snapshot: Snapshot) -> pa.Array:
    """List the values of a key as of a snapshot, ascending."""
    (plan,) = plans_of(store.manifest, query, snapshot, moment(query.now, store.frame.timezone))
    slices, _ = read(store.backend, store.manifest, replace(plan, measures={}), snapshot)
    values = pa.concat_tables(slices).column(key).combine_chunks()
    return values.take(pc.sort_indices(values))


def _outline(name: str, store: FrameStore) -> dict[str, Any]:
    frame = store.frame
    levels = [level.name for level in frame.levels]
    return {"name": name, "levels": levels, "keys": list(frame.keys), "measures": list(frame.measures)}


def _description(name: str, store: FrameStore, snapshot: Snapshot) -> dict[str, Any]:
    """Describe a store by its manifest and its parts; no states are read."""
    frame, expired, known = store.frame, expired_before(snapshot), known_from(snapshot)
    levels = []
    for level in frame.levels:
        parts = snapshot.of(level.name)
        last = max((part.last_start for part in parts), default=None)
        levels.append(
            {
                "level": level.name,
                "seconds": level.length / 1e6,
                "first": as_text(min(part.first_start for part in parts)) if parts else None,
                "end": as_text(int(level.ends(np.array([last], np.int64))[0])) if last is not None else None,
                "rows": sum(part.rows for part in parts),
                "held_from": as_text(expired[level.name]) if level.name in expired else None,
                "kept_for": store.retention.get(level.name),
            }
        )
    keys = store.manifest.schema
    return {
        "name": name,
        "version": snapshot.version,
        "time": frame.time,
        "timezone": frame.timezone,
        "levels": levels,
        "keys": [{"name": key, "type": str(keys.field(key).type), "label": label_of(key)} for key in frame.keys],
        "measures": [
            {
                "name": measure,
                "call": repr(each),
                "buckets": "buckets" in each.function.accessors,
                "columns": _columns(name, store, snapshot, measure),
                "known_from": as_text(known[of]) if (of := frame.state_of(measure)) in known else None,
            }
            for measure, each in frame.measures.items()
        ],
    }


def _columns(name: str, store: FrameStore, snapshot: Snapshot, measure: str) -> list[dict[str, Any]]:
    schema = store.query_schema(Query(per=store.frame.levels[-1].name, measures=[measure], keys=[], flat=True))
    in_promql = columns_in_promql(name, store, snapshot, measure)
    fields = [field for field in schema if field.name not in _LABELS]
    return [{"name": field.name, "type": str(field.type), **in_promql.get(field.name, {})} for field in fields]
