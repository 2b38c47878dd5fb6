"""Bad requests: each answer has the right status and one message as JSON, arrives soon, and contains no traceback or
internal data.

TRIALS is the number of requests (by default 300). The seed is printed, and SEED sets it.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import re
import socket
from contextlib import suppress
from urllib.parse import quote, urlencode

import pytest

from tests.serve.servers import Answer

pytestmark = [pytest.mark.store, pytest.mark.slow]

DEEP = "[" * 100_000
LONG = "x" * 20_000
WORDS = {
    "store": ["", "nope", "../web", "web/", "%2e%2e", "WEB", "web\0", LONG, "\udcff"],
    "per": ["", "7s", "x", "hopping(1h)", "hopping(1h, 7s)", "-1h", "1e9y", "'; DROP TABLE x", LONG, "session(1h)"],
    "within": ["x", "2024-13", "2024-05-02,2024-05-01", ",,", "a,b,c", "-5parsecs", "9999999-01", LONG, "\0", "**"],
    "where": ["host =", "nope = 1", "sum(n) > 1", "host = 'a'; drop table x", "(" * 3000, "host LIKE", LONG, "1"],
    "measures": ["nope", "n=", "=n", "x=dds(ms, [2])", "x=unknown(ms)", "x=sum(nope)", ["n", "n"], LONG, "x=n +", "*"],
    "keys": ["nope", "host2", ["host", "host"], LONG, "*"],
    "order_by": ["nope", "n sideways", ["n", "n desc"], LONG, "latency"],
    "fill": ["yes", "1", "TRUTH", "", "ZERO"],
    "flat": ["no", "0", ["true", "false"]],
    "edges": ["x", "0s", "1mo", "-1h", LONG, ["1h", "2h"]],
    "latest": ["x", "true&fill=true"],
    "limit": ["-1", "1.5", "NaN", "1e3", "٣", "", "9" * 30, "0x10"],
    "points": ["0", "-1", "x", "0.5", ["1", "2"]],
    "timezone": ["Mars", "../../etc/passwd", "/etc/passwd", "", LONG, "UTC\0"],
    "now": ["yesterday", "x", "", "2024-13-01", LONG],
    "having": ["nope > 1", "n >", "n", LONG, "(" * 3000],
    "limits": ["5"],
    "__class__": ["x"],
    "": ["x"],
}  # fmt: skip
JSON_VALUES = [
    None,
    True,
    -1,
    1.5,
    2**70,
    "",
    "x",
    [],
    {},
    [[]],
    {"a": 1},
    [None],
    float("nan"),
    {"window": 1},
    "\ud800",
]
BODIES = [
    "",
    "{",
    "[]",
    "null",
    "7",
    '"web"',
    DEEP,
    '{"store": "web"}',
    "\xff\xfe",
    '{"store": "web", "per": "1h",}',
    LONG,
]
PATHS = [
    "/v1", "/v1/", "/v1/query/", "/v1/stores/", "/v1/stores/nope", "/v1/stores/web/keys", "/v1/stores/web/keys/nope",
    "/v1/stores/web/keys/host?within=x", "/v1/stores/web/keys/host?words=x", "/../../etc/passwd",
    "/v1/stores/../../etc/passwd", "/v1/stores/%2e%2e%2f%2e%2e%2fetc%2fpasswd", "/v1/stores/..%5cetc", "/etc/passwd",
    "//etc/passwd", "/page.css/..", "/v1/stores/web%00", "/%ff", "/v1/stores/web/keys/host%2f..", "/.git/config",
    "/v1/stores/" + LONG, "/static/../app.py",
]  # fmt: skip
RAW = [
    b"GET /\r\n\r\n",
    b"nonsense\r\n\r\n",
    b"GET /nothing HTTP/9.9\r\nHost: localhost\r\n\r\n",
    b"GET / HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nbad header: x\r\n\r\n",
    b"POST /v1/query HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
    b"POST /v1/query HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
    b"POST /v1/query HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 200_000 + b"\r\n\r\n",
    b"GET /" + b"x" * 200_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
]  # fmt: skip


def bad_words(draw):
    word = draw.choice(list(WORDS))
    good = {"store": draw.choice(["web", "orders"]), "per": "1h", word: draw.choice(WORDS[word])}
    if word == "points":
        del good["per"]
    text = urlencode(good, doseq=True, errors="surrogateescape").replace("%26fill%3D", "&fill=")
    return f"/v1/query?{text}", {}, {400, 404, 413, 422}


def bad_members(draw):
    word = draw.choice([name for name in WORDS if name.isidentifier() and name not in ("flat", "latest", "fill")])
    value = draw.choice([*JSON_VALUES, *WORDS[word]])
    if (word, value) in (("limit", None), ("limit", 2**70), ("now", -1)) or (
        value in (None, [], {}) and word not in ("store", "per")
    ):
        value = {"no": "such"}
    body = json.dumps({"store": draw.choice(["web", "orders"]), "per": "1h", word: value})
    return "/v1/query", {"body": body}, {400, 404, 413, 422}


def bad_bodies(draw):
    body = draw.choice(BODIES).encode("latin-1")
    headers = draw.choice([{}, {"Content-Encoding": "gzip"}, {"Content-Type": "text/html"}, {"Content-Type": "\xff"}])
    expected = {415} if "Content-Encoding" in headers else {400}
    if draw.random() < 0.1:
        body, expected = b" " * ((1 << 20) + 1), expected | {413}
    return "/v1/query", {"body": gzip.compress(body) if 415 in expected else body, "headers": headers}, expected


def bad_paths(draw):
    return draw.choice(PATHS), {}, {400, 404}


def bad_methods(draw):
    path = draw.choice(["/v1/query", "/v1/stores", "/v1/stores/web", "/metrics", "/healthz", "/openapi.json", "/api"])
    methods = [
        "PUT",
        "DELETE",
        "PATCH",
        "OPTIONS",
        "TRACE",
        "PROPFIND",
        "BREW",
        *([] if path == "/v1/query" else ["POST"]),
    ]
    return path, {"method": draw.choice(methods), "body": draw.choice([None, "x"])}, {405}


NO_FORMS = ["text/html", "image/*", "application/json;q=0", "x", ",,", "application/pdf;q=1"]
NO_HOSTS = ["example.org", "0.0.0.0", "a@localhost", "localhost.", "%6cocalhost", "[::1]x"]


def bad_headers(draw):
    headers = [({"Accept": kind}, 406) for kind in NO_FORMS] + [({"Host": host}, 421) for host in NO_HOSTS]
    header, status = draw.choice(headers)
    return "/v1/query?store=web&per=1h", {"headers": header}, {status}


KINDS = [bad_words, bad_words, bad_members, bad_members, bad_bodies, bad_paths, bad_methods, bad_headers]


def problem_of(answer: Answer, expected) -> str | None:
    """Say what is wrong with an answer to a bad request."""
    if answer.status not in expected or answer.headers["content-type"] != "application/json":
        return f"not {expected}"
    problem = answer.json()
    sentence = problem["error"]
    if list(problem) != ["error"] or not 10 < len(sentence) <= 300 or "\n" in sentence:
        return "no sentence"
    leaks = re.search(r"Traceback|File \"|\.py:|root:|0x[0-9a-f]{6}|object at", sentence)
    return leaks and leaks[0]


def test_bad_requests_are_one_sentence(server_and_stores):
    server = server_and_stores[0]
    seed = int(os.environ.get("SEED") or random.SystemRandom().randrange(10**6))
    print(f"SEED={seed}")
    draw = random.Random(seed)
    wrong = []
    for _ in range(int(os.environ.get("TRIALS", 300))):
        path, sent, expected = request = draw.choice(KINDS)(draw)
        answer = server.ask(quote(path, safe="/?&=%+,.:;'()[]*"), **sent)
        if problem := problem_of(answer, expected):
            wrong.append((str(request)[:300], problem, answer.status, answer.body[:300]))
    assert not wrong, "\n".join(map(str, wrong))
    assert server.query(store="web", per="1h").status == 200
    assert not [line for line in server.log() if line.get("status", 0) >= 500]


@pytest.mark.parametrize("sent", RAW, ids=range(len(RAW)))
def test_what_is_no_http_is_refused(server_and_stores, sent):
    with socket.create_connection((server_and_stores[0].host, server_and_stores[0].port), timeout=10) as connection:
        answer = b""
        with suppress(ConnectionError):  # what is far too long is not read to its end
            connection.sendall(sent)
            with suppress(OSError):  # closed already
                connection.shutdown(socket.SHUT_WR)
            while piece := connection.recv(1 << 16):
                answer += piece
    assert answer == b"" or re.match(rb"HTTP/1\.1 4\d\d ", answer), answer[:200]
    assert b"Traceback" not in answer
    assert server_and_stores[0].query(store="web", per="1h").status == 200


def test_a_body_that_does_not_come_and_a_client_that_goes_hold_nothing(server_and_stores):
    server = server_and_stores[0]
    connections = [socket.create_connection((server.host, server.port)) for _ in range(20)]
    for connection in connections[:10]:
        connection.sendall(b"POST /v1/query HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
    for connection in connections[10:]:
        connection.sendall(b"GET /v1/query?store=web&per=1m HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert server.query(store="web", per="1h").status == 200
    for connection in connections:
        connection.close()
    assert server.query(store="web", per="1h").status == 200
    assert not [line for line in server.log() if line.get("status", 0) >= 500]
