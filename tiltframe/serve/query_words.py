"""The words of a query, in the address or as JSON: the members of `tiltframe.Query`, and which store is asked."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from starlette.datastructures import QueryParams

from aggr.arguments import shown
from tiltframe.store import Query
from tiltframe.text.measures import asked_measures

MANY = ("per", "measures", "keys", "order_by")  # words that may stand several times in an address
WHOLE = ("limit", "points")
TRUTHS = ("flat", "latest")
WORDS = ("store", *(field.name for field in fields(Query)))


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
