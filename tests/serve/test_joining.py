"""Joins over HTTP return the rows of a join in Python, and have limits."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

pytestmark = [pytest.mark.store, pytest.mark.slow]

DAY = 1_714_557_600_000  # 2024-05-01T10:00Z
ROWS = [
    {"client": "a", "start": DAY, "end": DAY + 1},
    {"client": "z", "start": DAY, "end": DAY + 1},
    {"client": 'c"d', "start": DAY, "end": DAY + 7_200_000, "note": "two hours"},
]
JOIN = {"on": "client = host", "within": ["start", "end"], "per": "1h", "measures": ["n", "bytes"]}


def ask(server, accept="application/json", **members):
    body = json.dumps({"store": "web", "rows": ROWS, **JOIN, **members})
    return server.ask("/v1/join", body, headers={"accept": accept})


def test_rows_are_joined_as_in_python(server_and_stores):
    server, stores = server_and_stores
    columns = {name: [row.get(name) for row in ROWS] for name in ("client", "start", "end", "note")}
    options = {**JOIN, "within": ("start", "end")}
    for how in ("left", "inner"):
        answer = ask(server, "application/vnd.apache.arrow.stream", how=how)
        joined = pa.ipc.open_stream(answer.body).read_all()
        expected = stores["web"].join(pa.table(columns), **options, how=how)
        assert joined.drop_columns("partial").equals(expected.drop_columns("partial"))
    rows = ask(server).json()["rows"]
    assert [(row["client"], row["n"]) for row in rows] == [("a", 45), ("z", None), ('c"d', 45), ('c"d', 45)]


def test_the_api_names_all_members(server_and_stores):
    document = server_and_stores[0].ask("/openapi.json").json()["paths"]["/v1/join"]["post"]
    members = document["requestBody"]["content"]["application/json"]["schema"]["properties"]
    assert {"store", "rows", "on", "within", "per", "how", "prefix", "measures", "having", "latest"} <= set(members)
    assert "limit" not in members


@pytest.mark.parametrize(
    ("members", "status", "message"),
    [
        ({"on": None}, 400, "a join needs the parameter 'on'"),
        ({"rows": {"client": 1}}, 400, "rows must be a list of objects"),
        ({"rows": [{"client": 1}, {"client": "a"}]}, 400, "without a common type"),
        ({"limits": 1}, 400, "a join has no parameter 'limits'"),
        ({"store": "nope"}, 404, "no store 'nope'"),
        ({"per": "1m", "within": ["1900-01-01", "2100-01-01"], "fill": "zero"}, 422, "windows"),
    ],
)
def test_requests_that_are_refused(server_and_stores, members, status, message):
    answer = ask(server_and_stores[0], **members)
    assert (answer.status, message in answer.json()["error"]) == (status, True), answer.body
