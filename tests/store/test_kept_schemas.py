"""The schema of a query's results, which is known before the store is read, does not depend on earlier queries."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

import aggr
from tiltframe import FrameStore, Query, TiltFrame
from tiltframe.store.testing import MemoryBackend

pytestmark = pytest.mark.store

MEASURES = {"n": aggr.count(), "p": aggr.dds("x", [0.5]), "mean": aggr.avg("x"), "twice": "2 * n"}
BASE = Query("1m")
# Each query differs from another one by a member that changes the schema, or by an invalid member.
QUERIES = [
    BASE,
    replace(BASE, flat=True),
    replace(BASE, fill=True),
    replace(BASE, fill="zero"),
    replace(BASE, timezone="Europe/Berlin"),
    replace(BASE, keys=["code", "tags"]),
    replace(BASE, keys=["code"]),
    replace(BASE, keys=["tags.host"]),
    replace(BASE, keys=["tags.rack"]),
    replace(BASE, measures=["n"]),
    replace(BASE, measures={"n": "mean"}),
    replace(BASE, measures={"n": "mean > 1"}),
    replace(BASE, measures={"n": aggr.dds("x", [0.25])}),
    replace(BASE, measures={"n": aggr.collect("x", 3)}),
    replace(BASE, measures=["p"]),
    replace(BASE, measures={"p": aggr.dds("x", [0.25, 0.75])}),
    replace(BASE, where="code = 1"),
    replace(BASE, where="code = 'a'"),
    replace(BASE, where="tags.host > 1"),
    replace(BASE, having="n > 1"),
    replace(BASE, having="n = 'a'"),
    replace(BASE, having="unknown > 1"),
    replace(BASE, order_by="n desc"),
    replace(BASE, order_by="p desc"),
    replace(BASE, order_by="unknown"),
    replace(BASE, limit=1),
    replace(BASE, latest=True),
]


def create_store(name: str, code: pa.Array) -> FrameStore:
    frame = TiltFrame(["1m", "1h"], "ts", {**MEASURES, "listed": aggr.collect("x", 3)}, ["code", "tags"])
    store = FrameStore(MemoryBackend(name), frame)
    tags = pa.array([{"host": "a", "rack": 1}] * len(code))
    store.append_rows(pa.table({"ts": [0] * len(code), "code": code, "tags": tags, "x": [0.5] * len(code)}), "w", 1)
    return store


def test_the_schema_is_that_of_the_results_whatever_was_asked_before():
    stores = [create_store("numbers", pa.array([1, 2])), create_store("texts", pa.array(["a", "b"]))]
    schemas = []
    for query in [*QUERIES, *reversed(QUERIES)]:
        for store in stores:
            try:
                answer = store.ask(query)
            except ValueError as error:
                schemas.append(str(error))
                continue
            results = answer.table()
            assert answer.schema == results.schema == store.query_schema(query), query
            schemas.append(results.schema)
    # In the second half, the queries and the two stores have the reverse order and the same order.
    pairs = list(zip(schemas[::2], schemas[1::2], strict=True))
    assert pairs[: len(QUERIES)] == pairs[len(QUERIES) :][::-1]
    assert len({str(pair) for pair in pairs}) > 18


@pytest.mark.parametrize(
    ("valid", "invalid", "message"),
    [
        ({"where": "code = 1"}, {"where": "code = 'a'"}, "code"),
        ({"having": "n > 1"}, {"having": "n = 'a'"}, "n = 'a'"),
        ({"order_by": "n"}, {"order_by": "p"}, "order by 'p'"),
        ({"measures": {"q": "n + 1"}}, {"measures": {"q": "n + 'a'"}}, "q"),
    ],
)
def test_an_invalid_member_is_refused_before_the_store_is_read_after_a_valid_one(monkeypatch, valid, invalid, message):
    store = create_store("refusing", pa.array([1, 2]))
    store.query("1m", **valid)
    monkeypatch.setattr(MemoryBackend, "read", lambda *_: pytest.fail("the store is read"))
    for _ in range(2):
        with pytest.raises(ValueError, match=message):
            store.ask(Query("1m", **invalid))
