"""Bodies of requests, read within limits of bytes and time."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote_to_bytes

from starlette.datastructures import QueryParams
from starlette.requests import Request

from aggr.extend.arguments import shown
from tiltframe.serve.errors import Refused

_MAX_WORDS = 2_000
_WORDS = re.compile(r"""'(?:''|[^'])*'|"[^"]*"|\w+|[^\w\s]""")


def checked_parameters(request: Request) -> QueryParams:
    """Return the parameters in the URL of a request. Raise ``ValueError`` if they are not UTF-8; two different texts
    could otherwise be read as the same text.
    """
    try:
        unquote_to_bytes(request.url.query).decode()
    except UnicodeDecodeError:
        raise ValueError("cannot read the parameters, because they are not UTF-8; URL-encode them as UTF-8") from None
    return request.query_params


async def read_body(request: Request, max_bytes: int, seconds: int, encodings: Sequence[str] = ("identity",)) -> bytes:
    """Return the body of a request.

    Parameters
    ----------
    max_bytes, seconds : int
        The maximum number of bytes, and the maximum number of seconds until the whole body has arrived.
    encodings : sequence of str
        The content encodings that are accepted. The body is returned as it was sent, and is not decompressed.

    Raises
    ------
    Refused
        If the body has too many bytes (status 413), takes too long to arrive (408), or has another encoding (415).
    """
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in encodings:
        accepted = " or ".join(encoding for encoding in encodings if encoding != "identity")
        or_encoded = f", or as {accepted}" if accepted else ""
        raise Refused(415, f"the body has Content-Encoding {encoding[:50]}; send it uncompressed{or_encoded}")
    body = bytearray()
    try:
        async with asyncio.timeout(seconds):
            async for piece in request.stream():
                body += piece
                if len(body) > max_bytes:
                    raise Refused(
                        413,
                        f"the body has more than {max_bytes:,} bytes, the server's limit; send less data per request",
                    )
    except TimeoutError:
        raise Refused(408, f"the body did not arrive within {seconds} s; send it again") from None
    return bytes(body)


def read_members(body: bytes, example: str) -> dict[str, Any]:
    """Return the members of the JSON object in a body. Raise ``ValueError`` if the body is not an object. The message
    of the error contains ``example``, an example of a body.
    """
    try:
        members = json.loads(body)
    except (ValueError, RecursionError):
        raise ValueError(f"the body is not JSON; send a JSON object, such as {example}") from None
    if not isinstance(members, Mapping):
        raise ValueError(f"the body must be a JSON object, such as {example}; got {shown(members)}")
    return dict(members)


def check_word_count(members: object) -> None:
    """Raise `Refused`, with status 413, if the texts of a query have more than `_MAX_WORDS` words, numbers and signs
    in total. This limits the time of parsing, which takes about a tenth of a millisecond per word, number or sign.
    """
    texts = []
    unvisited = [members]
    while unvisited:
        value = unvisited.pop()
        if isinstance(value, Mapping):
            unvisited += [*value, *value.values()]
        elif isinstance(value, list | tuple):
            unvisited += value
        elif isinstance(value, str):
            texts.append(value)
    words = len(_WORDS.findall(" ".join(texts)))
    if words > _MAX_WORDS:
        raise Refused(
            413,
            f"a query has at most {_MAX_WORDS:,} words, numbers and signs; this one has {words:,}; split it into "
            "several queries",
        )


def pop_store_name(members: dict[str, Any]) -> str:
    """Remove the member ``store`` from ``members``, and return its value, the name of a store. Raise ``ValueError`` if
    the member is missing or is not text.
    """
    store = members.pop("store", None)
    if store is None:
        raise ValueError("the parameter store is missing; pass store=NAME, one of the names that /v1/stores lists")
    if not isinstance(store, str):
        raise ValueError(
            f"the parameter store must be text; got {shown(store)}; pass store=NAME, one of the names that "
            "/v1/stores lists"
        )
    return store
