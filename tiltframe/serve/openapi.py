"""The description of what can be asked, as OpenAPI, and as a page that people read."""

from __future__ import annotations

import inspect
import re
from html import escape
from typing import Any

from tiltframe.serve.forms import ARROW, CSV, JSON, LINES
from tiltframe.serve.query_words import MANY, TRUTHS, WHOLE, WORDS
from tiltframe.store import Query

_ERRORS = {
    "400": "What is asked cannot be read, or the store cannot be asked it.",
    "401": "The server's token is missing.",
    "404": "No store, or no key, has this name.",
    "409": "The writer's number has been used for others.",
    "413": "The body is too long.",
    "415": "The body is of another media type, or packed.",
    "422": "It is beyond the server's limits, or the store cannot do it.",
    "503": "It took too long, or too many queries run.",
}
_ETAG = {"name": "If-None-Match", "in": "header", "schema": {"type": "string"}, "description": "An ETag from before."}


def described_words() -> dict[str, str]:
    """Read what each word of a query means from the docstring of `tiltframe.Query`."""
    parts = re.split(r"^(\w+) : [^\n]*\n", inspect.cleandoc(Query.__doc__ or ""), flags=re.M)
    meanings = {
        name: " ".join(text.partition("\n\n")[0].split()) for name, text in zip(parts[1::2], parts[2::2], strict=True)
    }
    return {"store": "Which store is asked: a name of `/v1/stores`.", **meanings}


def openapi(writable: bool) -> dict[str, Any]:
    """Describe the API.

    Parameters
    ----------
    writable : bool
        Whether stores take events.

    Returns
    -------
    dict
        A document of OpenAPI 3.1.
    """
    meanings, schemas = described_words(), {word: _schema(word) for word in WORDS}
    words = [
        {
            "name": word,
            "in": "query",
            "required": word == "store",
            "schema": schemas[word],
            "description": meanings[word],
        }
        for word in WORDS
    ]
    body = {
        "type": "object",
        "required": ["store"],
        "properties": {word: _body_schema(word) | {"description": meanings[word]} for word in WORDS},
        "additionalProperties": False,
    }
    meaning = "A row a window and key; in JSON, decimals, NaN, infinities and whole numbers beyond 2^53 are text."
    results = _answer(meaning, {JSON: {}, CSV: {}, ARROW: {}})
    name, key = _path_word("name", "Of the store."), _path_word("key", "One of the store's keys.")
    within = {"name": "within", "in": "query", "schema": {"type": "string"}, "description": meanings["within"]}
    paths: dict[str, Any] = {
        "/v1/query": {
            "get": {"summary": "Ask a store for results.", "parameters": [*words, _ETAG], "responses": results},
            "post": {
                "summary": "Ask by a query as JSON, as `tiltframe.Query.to_json` writes it, and the store's name.",
                "requestBody": {"required": True, "content": {JSON: {"schema": body}}},
                "responses": results,
            },
        },
        "/v1/stores": {"get": {"summary": "List the stores.", "responses": _answer("Names and frames.")}},
        "/v1/stores/{name}": {
            "get": {"summary": "Describe a store.", "parameters": [name], "responses": _answer("Its frame and ranges.")}
        },
        "/v1/stores/{name}/keys/{key}": {
            "get": {
                "summary": "List the values of a key.",
                "parameters": [name, key, within],
                "responses": _answer("At most 1,000 values, null last, and whether there are more."),
            }
        },
        "/metrics": {"get": {"summary": "Count requests, seconds, rows read, cache hits.", "responses": _text()}},
        "/healthz": {"get": {"summary": "Say that the server runs.", "responses": _answer("It does."), "security": []}},
    }
    if writable:
        words = [
            {
                "name": "writer",
                "in": "query",
                "required": True,
                "schema": {"type": "string"},
                "description": "Who writes.",
            },
            {
                "name": "number",
                "in": "query",
                "required": True,
                "schema": {"type": "integer"},
                "description": "Grows with each request of a writer; what is sent again counts once.",
            },
        ]
        paths["/v1/stores/{name}/events"] = {
            "post": {
                "summary": "Add events, rows as the store's frame reads them, all or none.",
                "parameters": [name, *words],
                "requestBody": {"required": True, "content": {LINES: {}, ARROW: {}}},
                "responses": _answer("Whether they were added, or were there already."),
            }
        }
    return {
        "openapi": "3.1.0",
        "info": {"title": "tiltframe", "version": "1", "description": "Mergeable aggregates, at any resolution."},
        "paths": paths,
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{"token": []}, {}],
    }


def page(document: dict[str, Any]) -> str:
    """Write the description as a page: every operation with what it takes."""
    parts = []
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            parts.append(f"<h2><code>{method.upper()} {escape(path)}</code></h2><p>{_prose(operation['summary'])}</p>")
            rows = [(p["name"], p["in"], p["description"]) for p in operation.get("parameters", ())]
            if rows:
                cells = "".join(
                    f"<tr><th scope=row><code>{escape(word)}</code></th><td>{place}</td><td>{_prose(text)}</td></tr>"
                    for word, place, text in rows
                )
                parts.append(f"<table><tr><th scope=col>word<th scope=col>in<th scope=col>meaning</tr>{cells}</table>")
    errors = "".join(f"<li><code>{status}</code> {escape(text)}</li>" for status, text in _ERRORS.items())
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        '<title>tiltframe: the API</title><link rel="icon" href="data:,"><link rel="stylesheet" href="/page.css">'
        '<main class="api">'
        '<h1>What can be asked</h1><p>Also as <a href="/openapi.json">OpenAPI</a>. <a href="/">Look at the stores.</a>'
        f"</p>{''.join(parts)}<h2>Errors</h2><p>Each is <code>{{&quot;error&quot;: sentence}}</code>.</p>"
        f"<ul>{errors}</ul></main></html>"
    )


def _prose(text: str) -> str:
    return re.sub("`+([^`]+)`+", r"<code>\1</code>", escape(text))


def _schema(word: str) -> dict[str, Any]:
    one = {"type": "integer"} if word in WHOLE else {"type": "boolean"} if word in TRUTHS else {"type": "string"}
    return {"type": "array", "items": one} if word in MANY else one


def _body_schema(word: str) -> dict[str, Any]:
    kinds = {"per": ["string", "array", "object"], "measures": ["array", "object"], "order_by": ["string", "array"]}
    return {"type": kinds[word]} if word in kinds else _schema(word)


def _path_word(name: str, meaning: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}, "description": meaning}


def _answer(meaning: str, content: dict[str, Any] | None = None) -> dict[str, Any]:
    problem = {JSON: {"schema": {"type": "object", "properties": {"error": {"type": "string"}}}}}
    errors = {status: {"description": text, "content": problem} for status, text in _ERRORS.items()}
    return {"200": {"description": meaning, "content": content or {JSON: {}}}, **errors}


def _text() -> dict[str, Any]:
    return {"200": {"description": "In Prometheus' text.", "content": {"text/plain": {}}}}
