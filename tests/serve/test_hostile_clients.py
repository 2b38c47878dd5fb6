"""Hostile clients do not delay others, secrets are not logged, and the work for a request ends with the request."""

from __future__ import annotations

import asyncio
import gzip
import json
import random
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from urllib.parse import quote, urlencode

import pyarrow as pa
import pytest

from tests.serve.servers import make_store, serving
from tests.serve.test_bad_requests import KINDS, problem_of
from tiltframe.serve.cost import Limits
from tiltframe.serve.errors import OutOfTime
from tiltframe.serve.redaction import Redaction
from tiltframe.serve.workers import WorkerPool

pytestmark = [pytest.mark.store, pytest.mark.slow]

AT = 1_714_564_800
TOKEN = "Aq3-z9_Lw/8+k=PmT0xUv5bN.dRe~Yi7"
PROTOBUF = {"Content-Type": "application/x-protobuf", "Content-Encoding": "gzip"}
HEAVY_REGEXES = ",".join(r'host=~"\\pL{1,100}"' for _ in range(60))
BOMBS = {  # path, body, headers, status
    "regular expressions of PromQL": ("/api/v1/query", {"query": f"n_total{{{HEAVY_REGEXES}}}", "time": AT}, {}, 400),
    "a large repetition": ("/api/v1/query", {"query": 'n_total{host=~"((a{100}){100}){10}"}', "time": AT}, {}, 400),
    "nested signs": ("/api/v1/query", {"query": "-" * 1900 + "n_total", "time": AT}, {}, 400),
    "a sum of a thousand": ("/api/v1/query", {"query": "1" + "+1" * 990, "time": AT}, {}, 400),
    "a long condition": ("/v1/query", {"where": " OR ".join(f"host = 'h{i}'" for i in range(6000))}, {}, 413),
    "a long list": ("/v1/query", {"where": f"host IN ({','.join(map(repr, range(50_000)))})"}, {}, 413),
    "many measures": ("/v1/query", {"measures": {f"x{i}": f"dds(ms, [0.{i:05}])" for i in range(3000)}}, {}, 413),
    "a long sum": ("/v1/query", {"measures": {"x": "n" + " + n" * 3000}}, {}, 413),
    "gzip": ("/v1/stores/web/metrics", gzip.compress(bytes(200 << 20), 1), PROTOBUF, 413),
    "snappy": ("/api/v1/read", b"\xff\xff\xff\x7f" + bytes(10), {}, 400),
    "snappy of zeros": ("/api/v1/read", pa.compress(bytes(15 << 20), "snappy", asbytes=True), {}, 400),
}


def send_bomb(server, name):
    """Send a bomb, and return the status of the answer and the expected one."""
    path, body, headers, status = BOMBS[name]
    if path == "/v1/query":
        body = json.dumps({"store": "web", "per": "1h", **body})
    elif isinstance(body, dict):
        body = urlencode(body)
    return server.ask(path, body, headers=headers).status, status


@contextmanager
def slow_clients(server, count):
    """Keep connections that send a byte of a header, or of a body, each half a second."""
    beginnings = [b"GET /healthz HTTP/1.1\r\nHost: local", b"POST /v1/query HTTP/1.1\r\nHost: localhost\r\n"]
    beginnings += [b"POST /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10000\r\n\r\n{"]
    connections = [socket.create_connection((server.host, server.port)) for _ in range(count)]
    for i, connection in enumerate(connections):
        connection.sendall(beginnings[i % 3])
    has_ended = threading.Event()

    def drip():
        while not has_ended.wait(0.5):
            for connection in connections:
                with suppress(OSError):
                    connection.sendall(b"a")

    dripping = threading.Thread(target=drip)
    dripping.start()
    try:
        yield connections
    finally:
        has_ended.set()
        dripping.join()
        for connection in connections:
            connection.close()


def longest_wait(server, until):
    """Send good requests until an event, and return the longest time of a single request in seconds."""
    good_requests = [
        "/v1/query?" + urlencode({"store": "web", "per": "1h"}),
        "/api/v1/query?" + urlencode({"query": 'sum(increase(n_total{store="web"}[1h]))', "time": AT}),
        "/healthz",
    ]
    waits = []
    while not until.is_set() or not waits:
        for path in good_requests:
            began = time.monotonic()
            assert server.ask(path).status == 200
            waits.append(time.monotonic() - began)
        time.sleep(0.02)
    return max(waits)


@pytest.mark.parametrize(
    ("bad_requests", "slow", "rounds"), [(40, 30, 1), pytest.param(1000, 300, 8, marks=pytest.mark.long)]
)
def test_no_client_waits_for_hostile_ones(tmp_path, bad_requests, slow, rounds):
    make_store(tmp_path / "web")
    make_store(tmp_path / "orders")
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    draw = random.Random(seed)
    kinds = [(draw.choice(KINDS), random.Random(draw.random())) for _ in range(bad_requests)]

    def send_bad(kind_and_draw):
        path, sent, expected = kind_and_draw[0](kind_and_draw[1])
        answer = server.ask(quote(path, safe="/?&=%+,.:;'()[]*"), **sent)
        problem = problem_of(answer, expected | {413, 414})
        return problem and (path[:100], problem, answer)

    words = [tmp_path / "web", tmp_path / "orders", "--writable", "--max-seconds", "20"]
    with serving(tmp_path, *words) as server, ThreadPoolExecutor(9) as clients:
        has_ended = threading.Event()
        server.query(store="web", per="1h")
        threading.Timer(1, has_ended.set).start()
        idle_wait = longest_wait(server, has_ended)  # what this machine needs without hostile clients
        has_ended.clear()
        wait = clients.submit(longest_wait, server, has_ended)
        try:
            with slow_clients(server, slow):
                problems = list(clients.map(send_bad, kinds))
                statuses = list(clients.map(lambda name: send_bomb(server, name), list(BOMBS) * rounds))
        finally:
            has_ended.set()
        assert [problem for problem in problems if problem] == []
        assert [
            (*pair, name) for pair, name in zip(statuses, list(BOMBS) * rounds, strict=True) if len({*pair}) > 1
        ] == []
        print(f"longest request: {idle_wait:.3f} s without hostile clients, {wait.result():.3f} s with them")
        assert wait.result() <= 1 + idle_wait
        assert not [line for line in server.log() if line.get("status", 0) >= 500]


@pytest.mark.long
def test_slow_requests_are_cut_off_on_every_route(tmp_path):
    make_store(tmp_path / "web")
    with serving(tmp_path, tmp_path / "web", "--max-seconds", "3") as server, slow_clients(server, 9) as connections:
        time.sleep(1)
        for connection in connections:
            connection.settimeout(20)
            with suppress(ConnectionError):
                while connection.recv(1 << 16):  # raises TimeoutError if the server keeps the connection open
                    pass


@pytest.mark.long
def test_too_many_connections_end_the_slowest(tmp_path):
    make_store(tmp_path / "web")
    with serving(tmp_path, tmp_path / "web") as server, slow_clients(server, 1) as (slow,):
        idle = [socket.create_connection((server.host, server.port)) for _ in range(1000)]
        assert server.ask("/healthz").status == 200
        slow.settimeout(5)
        with suppress(ConnectionError):
            assert slow.recv(1) == b""
        for connection in idle:
            connection.close()


def test_no_output_contains_a_token(tmp_path):
    """The token is in addresses, headers and bodies of requests, plain, encoded and cut off, also of other servers."""
    make_store(tmp_path / "web")
    (tmp_path / "token").write_text(TOKEN)
    encoded = "".join(f"%{ord(letter):02x}" for letter in TOKEN)
    right = {"Authorization": f"Bearer {TOKEN}"}
    lines = {"Content-Type": "application/x-ndjson"}
    with serving(tmp_path, tmp_path / "web", "--token", tmp_path / "token", "--writable") as server:
        for headers in ({}, right):
            for text in (quote(TOKEN, safe=""), encoded, "y" * 985 + quote(TOKEN), TOKEN[3:]):
                server.ask(f"/v1/stores?token={text}", headers=headers)
                server.ask(f"/v1/query?store={text}&per={text}&where={text}", headers=headers)
                server.ask(f"/api/v1/query?query={text}&time={AT}", headers=headers)
                server.ask(f"/{text}", headers=headers)
            server.ask("/v1/query", json.dumps({"store": TOKEN, "per": "1h"}), headers=headers)
            server.ask(
                "/v1/query", json.dumps({"store": "web", "per": "x" * 60 + TOKEN, TOKEN: TOKEN}), headers=headers
            )
            server.ask("/v1/query", f"token={TOKEN}", headers=headers | {"Content-Encoding": TOKEN})
            server.ask("/v1/stores/web/events?writer=w&number=1", json.dumps({"ts": TOKEN}), headers=headers | lines)
            server.ask("/v1/stores", headers=headers | {"Host": TOKEN, "X-Api-Key": TOKEN, "Accept": TOKEN})
        server.ask(
            "/v1/stores?access_token=of-another-server&api_key=my-key", headers={"Authorization": f"Basic {TOKEN}"}
        )
        with socket.create_connection((server.host, server.port)) as connection:
            connection.sendall(f"{TOKEN}\r\n\r\n".encode())
            connection.recv(1000)
        assert len(server.log(lines=45)) > 40
        assert server.stop() == 0
        output = (tmp_path / "log").read_text() + server.process.stdout.read().decode()
    pieces = [TOKEN[i : i + 8] for i in range(len(TOKEN) - 7)]
    assert [line for line in output.splitlines() if any(piece in line for piece in [*pieces, encoded[:24]])] == []
    assert "of-another-server" not in output
    assert "my-key" not in output


def test_passwords_of_addresses_are_redacted_and_other_words_are_not():
    redact = Redaction()
    began = time.process_time()
    for name in ("token", "a", "secret."):
        assert "=" not in redact("/" + name * 20_000)
    assert time.process_time() - began < 2
    text = "cannot reach postgres://reader:hunter2@db/x; per=1h&keys=host"
    assert redact(text) == "cannot reach postgres://reader:[redacted]@db/x; per=1h&keys=host"


def test_work_ends_when_its_request_has_been_answered():
    """The function has no place where it checks a time, as parsers have none."""

    async def requests():
        pool = WorkerPool(Limits(seconds=1, queries=1))

        def endless():
            while True:
                pass

        assert pool.count_calls() == (0, 0)
        calls = [asyncio.ensure_future(pool.run(time.sleep, 0.3)) for _ in range(3)]
        await asyncio.sleep(0.1)
        assert pool.count_calls() == (1, 2)
        await asyncio.gather(*calls)
        with pytest.raises(OutOfTime, match="took longer than 1 s"):
            await pool.run(endless)
        for _ in range(100):
            if pool.count_calls() == (0, 0):
                break
            await asyncio.sleep(0.05)
        assert pool.count_calls() == (0, 0)
        assert await pool.run(sum, [1, 2]) == 3
        assert not pool.close()

    asyncio.run(requests())
