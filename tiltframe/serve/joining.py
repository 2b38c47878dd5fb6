"""Joins over HTTP: each row of a request is joined with the results of a store for the row's keys and time range."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from aggr.extend.arguments import shown
from tiltframe.serve.answers import Answers, Question
from tiltframe.serve.cost import BODY_BYTES, Budget
from tiltframe.serve.deadline import Deadline
from tiltframe.serve.http import check_word_count, pop_store_name, read_body, read_members
from tiltframe.serve.response_formats import headers_and_body, media_type_of
from tiltframe.serve.stores import Stores
from tiltframe.store import Join

_TEXT = {"type": "string"}
_EXAMPLE = '{"store": "web", "rows": [{"host": "a"}], "on": ["host"], "within": "2024-05-01", "per": "1h"}'
JOIN_MEMBERS: dict[str, Any] = {  # the members of the JSON object of a request, for the OpenAPI description
    "rows": {"type": "array", "items": {"type": "object"}, "description": "Rows, each an object of its columns."},
    "on": {
        "type": ["string", "array", "object"],
        "description": "Names of keys that are also columns of the rows; or an equality such as `ticker = symbol`; or "
        "an object from each key to an expression of the columns of the rows.",
    },
    "within": {
        "type": ["string", "array"],
        "description": "A range as for `/v1/query`, a column of ranges, or two moments or columns of moments.",
    },
    "per": {"type": ["string", "array"], "description": "Windows as for `/v1/query`, or a column of their texts."},
    "how": _TEXT | {"enum": ["left", "inner"], "description": "`inner` leaves out rows without results."},
    "prefix": _TEXT | {"description": "Text before the names of the columns of results."},
}


@dataclass(frozen=True)
class Joining:
    """The HTTP route for joins."""

    served_stores: Stores
    answers: Answers
    budget: Budget

    def routes(self) -> list[Route]:
        """Return a list with the route for joins."""
        return [Route("/v1/join", self.join, methods=["POST"])]

    async def join(self, request: Request) -> Response:
        """Return the response to a join: the rows in the body, with the results of a store."""
        media_type = media_type_of(request.headers.get("accept", ""))
        body = await read_body(request, BODY_BYTES, self.budget.limits.seconds)

        def make_question() -> Question:
            name, rows, join = _from_body(body)
            view = self.served_stores.current_view(name)

            def compute(compression: str | None, deadline: Deadline) -> tuple[Mapping[str, str], Iterator[bytes]]:
                joined = view.join(rows, join)
                self.budget.spend(name, joined.cost)
                return headers_and_body(
                    name, view, joined, media_type=media_type, compression=compression, deadline=deadline
                )

            request_key = f"join {name} {view.now} {hashlib.sha256(body).hexdigest()}"
            return Question(request_key, {name: view.content_id}, media_type, compute)

        return await self.answers.respond(request, make_question)


def _from_body(body: bytes) -> tuple[str, pa.Table, Join]:
    """Return the store's name, the rows and the join in a JSON body. Raise ``ValueError`` if the body is invalid."""
    members = read_members(body, _EXAMPLE)
    store = pop_store_name(members)
    rows = members.pop("rows", None)
    check_word_count(members)
    return store, _table(rows), Join.from_dict(members)


def _table(rows: object) -> pa.Table:
    """Return a table of ``rows``, a list of objects. Its columns are the members of all objects; missing members are
    null. Raise ``ValueError`` if the values of a column have no common type.
    """
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError(f'rows must be a list of objects, such as [{{"host": "a"}}]; got {shown(rows)}')
    names = list(dict.fromkeys(name for row in rows for name in row))
    if not names:
        raise ValueError(
            f"rows must contain an object with members, because the members are the columns; got {shown(rows)}; leave "
            "out the request if there are no rows"
        )
    columns = {}
    for name in names:
        values = [row.get(name) for row in rows]
        try:
            columns[name] = pa.array(values)
        except (pa.ArrowException, OverflowError) as error:
            raise ValueError(
                f"the column {shown(name)} of the rows has values without a common type: {error}; send "
                "values of one type in each column"
            ) from None
    return pa.table(columns)
