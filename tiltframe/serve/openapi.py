"""The description of the API, as OpenAPI and as a web page."""

from __future__ import annotations

import inspect
import re
from html import escape
from typing import Any

from tiltframe.extend import html_table
from tiltframe.serve.asking import PARAMETERS
from tiltframe.serve.joining import JOIN_MEMBERS
from tiltframe.serve.pushed import EVENTS
from tiltframe.serve.response_formats import ARROW, CSV, JSON, LINES, PROTOBUF
from tiltframe.store import BOOLEAN_PARAMETERS, FILLS, JOIN_OPTIONS, LEAST_NUMBERS, REPEATABLE_PARAMETERS, Query

_ERROR_MEANINGS = {
    "400": "The request cannot be read, or the store cannot answer it.",
    "401": "The server's token is missing or wrong.",
    "403": "The server is read-only, or a proxy forwarded a request to a server without a token.",
    "404": "There is no store or key with this name.",
    "406": "The server does not write the accepted media types.",
    "408": "The body did not arrive in time.",
    "409": "The writer has used this number for other events.",
    "413": "The body is too long.",
    "415": "The body has another media type, or is compressed.",
    "421": "A server without a token answers only requests to localhost.",
    "422": "The request exceeds the server's limits, or the store does not support it.",
    "503": "The query took too long, or too many queries are running.",
}
# parameter of a query → the JSON types that it may have in a body; in a URL, these parameters are text
_BODY_TYPES = {"per": ["string", "array", "object"], "order_by": ["string", "array"]}
_BODY_TYPES |= {"measures": ["array", "object"], "keys": ["array", "object"]}


def openapi(writable: bool) -> dict[str, Any]:
    """Return the description of the API, as an OpenAPI 3.1 document. If ``writable`` is true, it includes the requests
    that write.
    """
    meanings = _meanings()
    parameters = [
        _parameter(parameter, "query", meanings[parameter], schema=_schema(parameter), required=parameter == "store")
        for parameter in PARAMETERS
    ]
    members = {
        parameter: _schema(parameter, in_body=True) | {"description": meanings[parameter]} for parameter in PARAMETERS
    }
    query = {"type": "object", "required": ["store"], "properties": members, "additionalProperties": False}
    results = "One row per window and key. In JSON, decimals, NaN, infinities and integers beyond 2^53 are text."
    forms = (JSON, CSV, ARROW)
    name = _parameter("name", "path", "The name of the store.")
    key = _parameter("key", "path", "One of the store's keys.")
    within = _parameter("within", "query", meanings["within"], required=False)
    tag = _parameter("If-None-Match", "header", "The ETag of an earlier response.", required=False)
    paths = {
        "/v1/query": {
            "get": _operation("Query a store.", [*parameters, tag], results, *forms),
            "post": _operation("Query a store by JSON that `Query.to_json` wrote.", [tag], results, *forms)
            | _request_body({JSON: {"schema": query}}),
        }
    }
    join = {
        "type": "object",
        "required": ["store", "rows", "on"],
        "properties": {
            "store": members["store"],
            **JOIN_MEMBERS,
            **{parameter: member for parameter, member in members.items() if parameter in JOIN_OPTIONS},
        },
        "additionalProperties": False,
    }
    joined_meaning = "One row for each pair of a row and a result. Rows without results have nulls, or are left out."
    paths["/v1/join"] = {
        "post": _operation("Join rows with a store.", [tag], joined_meaning, *forms)
        | _request_body({JSON: {"schema": join}})
    }
    events = "Server-sent events, one per commit: the id is the version, the data one JSON object per window."
    change_parameters = [
        _parameter("per", "query", "A level; by default all levels.", required=False),
        _parameter(
            "since",
            "query",
            "The version after which changes are sent; by default the current version.",
            {"type": "integer"},
            required=False,
        ),
        _parameter("Last-Event-ID", "header", "The id of the last event, in place of `since`.", required=False),
    ]
    values_meaning = "At most 1,000 values, sorted, null last, and whether there are more."
    for path, operation in {
        "/v1/stores": _operation("List the stores.", [tag], "Names and frames."),
        "/v1/stores/{name}": _operation("Describe a store.", [name, tag], "Its levels, ranges, keys, measures."),
        "/v1/stores/{name}/keys/{key}": _operation(
            "List the values of a key.", [name, key, within, tag], values_meaning
        ),
        "/v1/stores/{name}/changes": _operation(
            "Push the windows that change.", [name, *change_parameters], events, EVENTS
        ),
        "/metrics": _operation("Return the metrics of the server.", [], "Counters.", "text/plain"),
        "/healthz": _operation("Check whether the server runs.", [], "The server runs.") | {"security": []},
        "/readyz": _operation("Check whether every store can be opened.", [], "Every store can be opened.")
        | {"security": []},
    }.items():
        paths[path] = {"get": operation}
    if writable:
        writer = _parameter("writer", "query", "Name of the writer.")
        number_meaning = "A number that grows with each request of a writer. A repeated request counts once."
        number = _parameter("number", "query", number_meaning, {"type": "integer"})
        written = _operation(
            "Add all events, or none if there is an error.", [name, writer, number], "Whether the events are new."
        )
        paths["/v1/stores/{name}/events"] = {"post": written | _request_body({LINES: {}, ARROW: {}})}
        exported = _operation(
            "Add metrics of OpenTelemetry, as OTLP/HTTP sends them.", [name], "The metrics are stored."
        )
        paths["/v1/stores/{name}/metrics"] = {"post": exported | _request_body({PROTOBUF: {}, JSON: {}})}
    return {
        "openapi": "3.1.0",
        "info": {"title": "tiltframe", "version": "1", "description": "Prometheus' own API is below /api/v1."},
        "paths": paths,
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{"token": []}, {}],
    }


def page(document: dict[str, Any]) -> str:
    """Return the description as a web page that shows every operation with its parameters."""
    parts = []
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            parts.append(f"<h2><code>{method.upper()} {escape(path)}</code></h2><p>{_html(operation['summary'])}</p>")
            rows = [
                (_Markup(f"`{parameter['name']}`"), parameter["in"], _Markup(parameter["description"]))
                for parameter in operation["parameters"]
            ]
            parts.append(html_table(("name", "in", "meaning"), rows) if rows else "")
    errors = html_table(("status", "meaning"), _ERROR_MEANINGS.items())
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        '<title>tiltframe: the API</title><link rel="icon" href="data:,"><link rel="stylesheet" href="/page/page.css">'
        '<main class="api"><h1>Requests</h1><p>Also as <a href="/openapi.json">OpenAPI</a>. '
        f'<a href="/">Look at the stores.</a></p>{"".join(parts)}<h2>Errors</h2>'
        f"<p>The body is <code>{{&quot;error&quot;: message}}</code>.</p>{errors}</main></html>"
    )


def _meanings() -> dict[str, str]:
    """Return the meaning of each parameter of a query, from the docstring of `tiltframe.Query`."""
    parts = re.split(r"^(\w+) : [^\n]*\n", inspect.cleandoc(Query.__doc__ or ""), flags=re.M)
    texts = {name: text.partition("\n\n")[0] for name, text in zip(parts[1::2], parts[2::2], strict=True)}
    return {"store": "A name of `/v1/stores`.", **{name: " ".join(text.split()) for name, text in texts.items()}}


def _schema(parameter: str, in_body: bool = False) -> dict[str, Any]:
    """Return the JSON schema of a parameter of a query. With ``in_body``, it is the schema of the parameter as a member
    of a JSON body; otherwise, as a parameter of a URL.
    """
    if parameter == "fill":
        return {"type": ["boolean", "string"], "enum": [True, False, *FILLS]}
    if in_body and parameter in _BODY_TYPES:
        return {"type": _BODY_TYPES[parameter]}
    schema = {"type": "string"}
    if parameter in LEAST_NUMBERS:
        schema = {"type": "integer"}
    elif parameter in BOOLEAN_PARAMETERS:
        schema = {"type": "boolean"}
    return {"type": "array", "items": schema} if parameter in REPEATABLE_PARAMETERS else schema


def _parameter(
    name: str, place: str, meaning: str, schema: dict[str, Any] | None = None, required: bool = True
) -> dict[str, Any]:
    schema = schema or {"type": "string"}
    return {"name": name, "in": place, "required": required, "schema": schema, "description": meaning}


def _request_body(content: dict[str, Any]) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": content}}


def _operation(summary: str, parameters: list[dict[str, Any]], meaning: str, *media_types: str) -> dict[str, Any]:
    problem = {JSON: {"schema": {"type": "object", "properties": {"error": {"type": "string"}}}}}
    errors = {status: {"description": text, "content": problem} for status, text in _ERROR_MEANINGS.items()}
    answer = {"description": meaning, "content": {media_type: {} for media_type in media_types or (JSON,)}}
    return {"summary": summary, "parameters": parameters, "responses": {"200": answer, **errors}}


class _Markup(str):
    """A text for a cell of a table, in which words between backquotes are shown as code."""

    def _repr_html_(self) -> str:
        return _html(self)


def _html(text: str) -> str:
    return re.sub("`+([^`]+)`+", r"<code>\1</code>", escape(text))
