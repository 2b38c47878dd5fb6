"""Addresses and headers of requests: any name of a key, parameters that are not UTF-8, and tags of answers."""

import json

import pyarrow as pa
import pytest

import aggr
from tests.serve.servers import make_store, serving
from tests.serve.test_pushed import listening, next_event
from tiltframe import TiltFrame

pytestmark = [pytest.mark.store, pytest.mark.slow]

LINES = {"Content-Type": "application/x-ndjson"}


def test_a_key_with_a_slash_is_listed(tmp_path):
    frame = TiltFrame(["1m"], "ts", {"n": aggr.count()}, ["app/name", "a/b/c"])
    make_store(tmp_path / "web", frame=frame, data=pa.table({"ts": [0], "app/name": ["x"], "a/b/c": ["y"]}))
    with serving(tmp_path, tmp_path / "web") as server:
        assert server.ask("/v1/stores/web/keys/app%2Fname").json()["values"] == ["x"]
        assert server.ask("/v1/stores/web/keys/a%2Fb%2Fc").json()["values"] == ["y"]
        assert server.ask("/v1/stores/web/keys/a%2Fb").status == 404


SEPARATORS = ["\u2028", "\u2029", "\u0085", "\x1c", "\x0b", "\x0c", "\r", "\n"]


def test_any_text_in_a_key_is_pushed_in_one_line(tmp_path):
    store = make_store(
        tmp_path / "web",
        frame=TiltFrame(["1m"], "ts", {"n": aggr.count()}, ["host"]),
        data=pa.table({"ts": [0], "host": ["a"]}),
    )
    hosts = [f"a{sign}b" for sign in SEPARATORS]
    with serving(tmp_path, tmp_path / "web") as server, listening(server) as answer:
        answer.readline()
        answer.readline()
        store.append_rows(pa.table({"ts": [0] * len(hosts), "host": hosts}), "test", 2)
        assert sorted(row["host"] for row in next_event(answer)[1]) == sorted(hosts)


def test_parameters_that_are_not_utf8_are_refused(tmp_path):
    make_store(
        tmp_path / "web",
        frame=TiltFrame(["1m"], "ts", {"n": aggr.count()}, ["host"]),
        data=pa.table({"ts": [0], "host": ["a"]}),
    )
    row = json.dumps({"ts": "2024-05-01T10:00:00Z", "host": "a"}).encode()
    with serving(tmp_path, tmp_path / "web", "--writable") as server:
        answers = [
            server.ask("/v1/stores/web/events?writer=bad%ff&number=1", row, headers=LINES),
            server.ask("/v1/query?store=web&per=1m&where=host%3D'%ff'"),
            server.ask("/v1/stores/web/keys/host?within=%ff"),
            server.ask("/v1/stores/web/changes?per=%ff"),
        ]
        assert [answer.status for answer in answers] == [400] * 4
        assert all("not UTF-8" in answer.json()["error"] for answer in answers)
        assert server.ask("/v1/stores/web/events?writer=gut%C3%A9&number=1", row, headers=LINES).json() == {
            "added": True
        }


def test_a_response_that_an_answer_is_current_has_its_tag_only(tmp_path):
    make_store(tmp_path / "web", frame=TiltFrame(["1m"], "ts", {"n": aggr.count()}), data=pa.table({"ts": [0]}))
    path = "/v1/query?store=web&per=1m&now=2024-05-01"
    with serving(tmp_path, tmp_path / "web") as server:
        first = server.ask(path)
        tag = first.headers["etag"]
        for header in (tag, f"W/{tag}", f'"x", {tag}', f'"x",{tag}', f'W/"x",W/{tag}', "*"):
            answer = server.ask(path, headers={"If-None-Match": header})
            assert (answer.status, answer.body) == (304, b"")
            for name in ("etag", "vary", "cache-control"):
                assert answer.headers[name] == first.headers[name]
        for header in ('"x"', tag.strip('"'), f'"{tag[2:]}', ""):
            assert server.ask(path, headers={"If-None-Match": header}).status == 200


def test_codings_are_read_in_any_case(tmp_path):
    make_store(tmp_path / "web", frame=TiltFrame(["1m"], "ts", {"n": aggr.count()}), data=pa.table({"ts": [0]}))
    headers = {"Content-Encoding": "Identity"}
    with serving(tmp_path, tmp_path / "web") as server:
        assert server.ask("/v1/query", b'{"store": "web", "per": "1m"}', headers=headers).status == 200
        refused = server.ask("/v1/query", b'{"store": "web", "per": ["1h", null]}')
        assert (refused.status, "internal error" in refused.json().get("error", "")) == (200, False)


@pytest.mark.parametrize("rows", [[], [{}]])
def test_a_join_without_columns_is_refused(tmp_path, rows):
    make_store(
        tmp_path / "web",
        frame=TiltFrame(["1m"], "ts", {"n": aggr.count()}, ["host"]),
        data=pa.table({"ts": [0], "host": ["a"]}),
    )
    with serving(tmp_path, tmp_path / "web") as server:
        answer = server.ask("/v1/join", json.dumps({"store": "web", "on": "host", "rows": rows}).encode())
        assert answer.status == 400
        assert "the members are the columns" in answer.json()["error"]
