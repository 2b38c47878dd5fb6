"""Answers over HTTP equal the results of the store in every format, and are not sent again unless the store has
changed.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import re
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import pandas as pd
import pyarrow as pa
import pytest

import aggr
from aggr.arrow.bit_equality import same_bits
from tests.serve.servers import FRAME, make_store, rows, serving
from tiltframe import FrameStore, Query, TiltFrame
from tiltframe.serve import errors
from tiltframe.serve.app import app_of
from tiltframe.serve.cost import Limits
from tiltframe.serve.stores import Stores
from tiltframe.serve.workers import WorkerPool

pytestmark = [pytest.mark.store, pytest.mark.slow]
zstandard = pytest.importorskip("zstandard")

ARROW = "application/vnd.apache.arrow.stream"
NOW = "2024-06-01T00:00:00Z"
QUERIES = {
    "a level": {"per": "1h"},
    "several": {"per": ["1h", "1m"], "limit": 7},
    "one result": {"per": "all", "keys": []},
    "points": {"points": 10, "keys": []},
    "a range and a condition": {"per": "1m", "within": "2024-05-01T10:30:00Z,2024-05-01T11", "where": "host = 'a'"},
    "expressions": {"per": "1h", "measures": {"n": "n", "ratio": "bytes / n"}, "having": "n > 5"},
    "flat": {"per": "1h", "flat": True, "order_by": ["latency_p99 desc", "n"]},
    "a zone": {"per": "1h", "timezone": "Asia/Kolkata", "keys": ["host"]},
    "filled": {"per": "1m", "fill": True, "within": "2024-05-01T10,2024-05-01T13", "keys": []},
    "the latest": {"per": "1m", "latest": True},
}  # fmt: skip


def in_address(words):
    """Write members as words of an address: measures as NAME=EXPRESSION, no keys as one that is empty."""
    written = dict(words)
    if isinstance(words.get("measures"), dict):
        written["measures"] = [f"{name}={text}" if name != text else name for name, text in words["measures"].items()]
    if words.get("keys") == []:
        written["keys"] = ""
    return {name: str(value).lower() if isinstance(value, bool) else value for name, value in written.items()}


@pytest.mark.long
def test_a_lookup_goes_with_a_posted_query(server_and_stores):
    server, stores = server_and_stores
    words = {
        "per": "1h",
        "now": NOW,
        "keys": {"site": {"lookup": "host", "table": {"host": ["a"], "site": ["berlin"]}}},
    }
    answer = server.ask("/v1/query", json.dumps({"store": "web", **words}), headers={"Accept": ARROW})
    got = pa.ipc.open_stream(answer.body).read_all()
    expected = stores["web"].ask(Query.from_dict(words)).table()
    assert all(same_bits(*columns) for columns in zip(got.columns, expected.columns, strict=True))
    assert set(got["site"].to_pylist()) == {"berlin", None}
    lookup = {"site": {"lookup": "host", "table": "/etc/passwd"}}
    assert server.ask("/v1/query", json.dumps({"store": "web", "per": "1h", "keys": lookup})).status == 400


@pytest.mark.parametrize("name", ["web", "orders"])
@pytest.mark.parametrize("words", QUERIES.values(), ids=QUERIES)
def test_a_stream_of_arrow_is_what_the_store_answers(server_and_stores, name, words):
    server, stores = server_and_stores
    expected = stores[name].ask(Query.from_dict({**words, "now": NOW})).table()
    posted = server.ask("/v1/query", json.dumps({"store": name, **words, "now": NOW}), headers={"Accept": ARROW})
    got = server.query({"Accept": ARROW}, store=name, now=NOW, **in_address(words))
    for answer in (posted, got):
        assert (answer.status, answer.headers["content-type"]) == (200, ARROW), answer.body
        table = pa.ipc.open_stream(answer.body).read_all()
        assert table.schema.equals(expected.schema)
        assert table.num_rows
        assert all(same_bits(*columns) for columns in zip(table.columns, expected.columns, strict=True))


def read_back(value, kind):
    """Read a value of JSON by the type that the answer names."""
    if value is None:
        return None
    if kind == "double":
        return float(value)
    if kind.startswith("decimal"):
        return Decimal(value)
    return int(value) if kind.startswith("int") else value


def test_json_loses_nothing(server_and_stores):
    server, stores = server_and_stores
    answer = server.query(store="web", per="1m", flat="true").json()
    expected = stores["web"].query(per="1m", flat=True)
    kinds = {column["name"]: column["type"] for column in answer["columns"]}
    assert list(kinds) == expected.column_names
    texts = 0
    for name in ("host", "n", "bytes", "paid", "rate", "latency_p99"):
        json_values = [row[name] for row in answer["rows"]]
        texts += sum(isinstance(value, str) for value in json_values if name in ("bytes", "rate"))
        assert all(
            value is None or abs(int(value)) <= 2**53 or isinstance(value, str)
            for value in json_values
            if name == "bytes"
        )
        read = [read_back(value, kinds[name]) for value in json_values]
        expected_values = expected.column(name).to_pylist()
        assert [repr(value) for value in read] == [repr(value) for value in expected_values], name
    assert texts > 100
    assert {row["rate"] for row in answer["rows"]} >= {"NaN", "Infinity", "-Infinity", None}
    assert all(isinstance(row["paid"], str) for row in answer["rows"])


def test_times_are_written_in_the_zone_that_is_asked_for(server_and_stores):
    row = server_and_stores[0].query(store="web", per="1h", timezone="Asia/Tokyo", limit=1).json()["rows"][0]
    assert (row["window_start"], row["window_end"]) == ("2024-05-01T19:00:00+09:00", "2024-05-01T20:00:00+09:00")


def test_csv_is_read_by_others(server_and_stores):
    server, stores = server_and_stores
    answer = server.query({"Accept": "text/csv"}, store="web", per="1h")
    read = list(csv.DictReader(io.StringIO(answer.body.decode())))
    expected = stores["web"].query(per="1h", flat=True).to_pylist()
    assert [row["host"] or None for row in read] == [row["host"] for row in expected]
    assert [int(row["bytes"]) for row in read] == [row["bytes"] for row in expected]
    assert [row["window_start"] for row in read] == [f"{row['window_start']:%Y-%m-%dT%H:%M:%SZ}" for row in expected]
    assert any(math.isnan(float(row["rate"])) for row in read)


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_answers_are_packed_for_who_unpacks_them(server_and_stores, compression):
    server = server_and_stores[0]
    plain = server.query(store="web", per="1m", now=NOW)
    packed = server.query({"Accept-Encoding": f"br, {compression}"}, store="web", per="1m", now=NOW)
    unpack = (
        gzip.decompress
        if compression == "gzip"
        else lambda body: zstandard.ZstdDecompressor().decompressobj().decompress(body)
    )
    assert (plain.headers["content-encoding"], packed.headers["content-encoding"]) == (None, compression)
    assert unpack(packed.body) == plain.body
    assert len(packed.body) < len(plain.body) / 3
    assert plain.headers["etag"] != packed.headers["etag"]


@pytest.mark.long
def test_what_is_known_is_not_sent_again_until_the_store_changes(tmp_path):
    store = make_store(tmp_path / "web")
    with serving(tmp_path, tmp_path / "web") as server:
        first = server.query(store="web", per="1h", measures="n", keys="")
        tag = {"If-None-Match": f'"other", W/{first.headers["etag"]}'}
        again = server.query(tag, store="web", per="1h", measures="n", keys="")
        assert (again.status, again.body) == (304, b"")
        assert server.query(tag, store="web", per="1h", measures="n").status == 200
        assert server.query(tag | {"Accept": "text/csv"}, store="web", per="1h", measures="n", keys="").status == 200
        store.append_rows(rows(hours=1), "test", 2)
        changed = server.query(tag, store="web", per="1h", measures="n", keys="")
        assert [row["n"] for row in changed.json()["rows"]] == [360, 180]
        metrics = server.ask("/metrics").body.decode()
        assert "\ntiltframe_cache_hits_total 1.0\n" in metrics
        assert "\ntiltframe_cache_misses_total 4.0\n" in metrics
        assert '\ntiltframe_requests_total{route="query",status="304"} 1.0\n' in metrics


@pytest.mark.long
def test_a_frame_that_evolves_is_followed(tmp_path):
    store = make_store(tmp_path / "web")
    with serving(tmp_path, tmp_path / "web") as server:
        assert server.query(store="web", per="1h", measures="slow").status == 400
        slow = aggr.count(where="ms > 50")
        store.evolve(TiltFrame(["1m", "1h"], "ts", {**FRAME.measures, "slow": slow}, ["host"]), rows().schema)
        answer = server.query(store="web", per="1h", measures="slow")
        assert answer.status == 200, answer.body
        assert [m["name"] for m in server.ask("/v1/stores/web").json()["measures"]][-1] == "slow"


def test_windows_that_are_closed_at_their_end_are_asked_for_by_their_text(tmp_path):
    times = pd.Timestamp("2024-05-01T10:00") + pd.to_timedelta([0, 1, 60_000_000, 90_000_000], "us")
    frame = TiltFrame(["tumbling(1m, offset=1us)"], "ts", {"n": aggr.count()})
    make_store(tmp_path / "web", frame=frame, data=pa.table({"ts": pa.array(times, pa.timestamp("us", "UTC"))}))
    with serving(tmp_path, tmp_path / "web") as server:
        answer = server.query(store="web", per="tumbling(1m, offset=1us)")
        assert answer.status == 200, answer.body
        ends_and_counts = [(pd.Timestamp(row["window_end"]), row["n"]) for row in answer.json()["rows"]]
    expected = pd.Series(1, times).resample("1min", closed="right", label="right").sum()
    assert ends_and_counts == [(at.tz_localize("UTC") + pd.Timedelta("1us"), n) for at, n in expected.items()]


@pytest.mark.long
def test_results_longer_than_a_message_are_streamed_whole(tmp_path):
    data = rows(hours=24 * 3, per_minute=4)  # of four keys
    store = make_store(tmp_path / "web", data=data)
    with serving(tmp_path, tmp_path / "web") as server:
        expected = store.query(per="1m")
        answer = server.query(store="web", per="1m")
        assert answer.headers["transfer-encoding"] == "chunked"
        assert len(answer.json()["rows"]) == expected.num_rows == 17_280
        packed = server.query({"Accept-Encoding": "gzip"}, store="web", per="1m")
        assert json.loads(gzip.decompress(packed.body))["rows"] == answer.json()["rows"]
        stream = server.query({"Accept": ARROW}, store="web", per="1m")
        assert same_bits(pa.ipc.open_stream(stream.body).read_all().column("latency"), expected.column("latency"))


def test_stores_describe_themselves(server_and_stores):
    server, stores = server_and_stores
    listed = server.ask("/v1/stores").json()["stores"]
    assert [(store["name"], store["levels"], store["keys"]) for store in listed] == [
        (name, ["1m", "1h"], ["host"]) for name in stores
    ]
    for name, store in stores.items():
        description = server.ask(f"/v1/stores/{name}").json()
        report = {level.level: level for level in store.inspect().levels}
        for level in description["levels"]:
            assert level["rows"] == report[level["level"]].rows
            assert (level["first"], level["end"]) == ("2024-05-01T10:00:00Z", "2024-05-01T12:00:00Z")
        columns = [column["name"] for measure in description["measures"] for column in measure["columns"]]
        assert columns == store.query(per="1h", keys=[], flat=True).column_names[3:-1]
        values = server.ask(f"/v1/stores/{name}/keys/host").json()
        assert values == {"key": "host", "values": ["a", "b", 'c"d', None], "more": False}


@pytest.mark.long
def test_many_threads_are_answered_as_one(server_and_stores):
    server, stores = server_and_stores
    words = [
        {"store": name, "per": "1m", "now": NOW, "limit": limit, "where": f"host = '{host}'"}
        for name in stores
        for limit in range(1, 9)
        for host in "ab"
    ]
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda query: server.query({"Accept": ARROW}, **query), words * 2))
    for query, answer in zip(words * 2, answers, strict=True):
        asked_for = {name: value for name, value in query.items() if name != "store"}
        expected = FrameStore.query(stores[query["store"]], **asked_for)
        table = pa.ipc.open_stream(answer.body).read_all()
        assert all(same_bits(*columns) for columns in zip(table.columns, expected.columns, strict=True))


def test_the_description_names_every_word_and_route(server_and_stores):
    server = server_and_stores[0]
    document = server.ask("/openapi.json").json()
    words = {word["name"]: word for word in document["paths"]["/v1/query"]["get"]["parameters"]}
    members = {"store", *Query.__dataclass_fields__}
    assert set(words) == members | {"If-None-Match"}
    assert all(word["description"] for word in words.values())
    assert (
        set(
            document["paths"]["/v1/query"]["post"]["requestBody"]["content"]["application/json"]["schema"]["properties"]
        )
        == members
    )
    endless = "/v1/stores/{name}/changes"  # server-sent events: test_pushed.py reads them
    for path in document["paths"].keys() - {endless}:
        if "get" in document["paths"][path]:
            asked_for = path.format(name="web", key="host") + ("?store=web&per=1h" if "query" in path else "")
            assert server.ask(asked_for).status == 200
    statuses = document["paths"]["/readyz"]["get"]["responses"].keys()
    assert statuses == {"200", *(str(status) for status in errors._REASONS if status != 405)}
    limits = Limits()
    app = app_of(Stores([]), WorkerPool(limits), limits, is_writable=True)
    other = re.compile(r"/(page/.*|api.*|openapi.json|v1/stores/\{name\}/(events|metrics))?")
    routes = {re.sub(r":\w+}", "}", route.path) for route in app.routes}
    assert {path for path in routes if not other.fullmatch(path)} == document["paths"].keys()
    page = server.ask("/api")
    assert "<tr><td>421</td><td>A server without a token" in page.body.decode()
    assert page.headers["content-type"].startswith("text/html")
    assert all(f"<code>{word}</code>" in page.body.decode() for word in words)
