"""The server: checks before it listens, access, answers, and its end."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import time
from contextlib import contextmanager

import pytest
from starlette.responses import StreamingResponse

from tests.command_line import call
from tests.serve.servers import make_store, serving
from tiltframe.serve import observed
from tiltframe.serve.errors import BadData, Refused
from tiltframe.serve.observed import Metrics

pytestmark = [pytest.mark.store, pytest.mark.slow]

TOKEN = "0123456789abcdef0123456789abcdef"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stores")
    make_store(folder / "web")
    (folder / "token").write_text(TOKEN + "\n")
    (folder / "short").write_text("abc")
    (folder / "blank").write_text("a token that has blanks in it")
    (folder / "empty").mkdir()
    return folder


MISTAKES = {
    "no store": ["nope"],
    "an empty folder": ["empty"],
    "a name that no path has": ["x y=web"],
    "two of one name": ["web", "./web"],
    "no port": ["web", "--listen", "127.0.0.1"],
    "a port beyond": ["web", "--listen", "127.0.0.1:65536"],
    "another host": ["web", "--listen", "192.0.2.1:9464", "--token", "token"],
    "beyond this machine": ["web", "--listen", "0.0.0.0:0"],
    "beyond it by a name": ["web", "--listen", "[::]:0"],
    "no token": ["web", "--token", "nope"],
    "a short token": ["web", "--token", "short"],
    "a token with blanks": ["web", "--token", "blank"],
    "a folder for a token": ["web", "--token", "empty"],
    "no origin": ["web", "--cors", "*"],
    "an origin with a path": ["web", "--cors", "https://example.org/x"],
    "no rows": ["web", "--max-rows", "0"],
    "no windows": ["web", "--max-windows", "-1"],
    "no seconds": ["web", "--max-seconds", "soon"],
    "no queries": ["web", "--max-queries", "0"],
    "buckets of words": ["web", "--buckets", "fast,slow"],
    "buckets of no measure": ["web", "--buckets", "nothing=1,2"],
}  # fmt: skip


@pytest.fixture
def half_a_minute():
    """End what serves although it should not."""

    def end(*_):
        raise TimeoutError("it serves")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(30)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.long
@pytest.mark.usefixtures("half_a_minute")
@pytest.mark.parametrize("words", MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_one_sentence_before_anything_listens(folder, monkeypatch, capfd, words):
    monkeypatch.chdir(folder)
    status, out, err = call(capfd, "serve", *words)
    assert (status, out, err.count("\n")) == (2, "", 1), err
    assert err.startswith("tiltframe: ")
    assert "serving" not in err


@pytest.mark.usefixtures("half_a_minute")
def test_a_store_of_a_name_that_is_taken_is_told_how_to_be_called(folder, monkeypatch, capfd):
    monkeypatch.chdir(folder)
    _, _, err = call(capfd, "serve", "web", "web=./web")
    assert err == "tiltframe: two stores are called 'web'; rename one of them: NAME=./web\n"


def test_a_port_that_is_taken_is_one_sentence(folder, monkeypatch, capfd):
    monkeypatch.chdir(folder)
    with socket.create_server(("127.0.0.1", 0)) as used_port:
        status, _, err = call(capfd, "serve", "web", "--listen", f"127.0.0.1:{used_port.getsockname()[1]}")
    assert (status, err.count("\n")) == (2, 1)
    assert "cannot listen" in err


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_it_stops_cleanly(folder, tmp_path, signum):
    with serving(tmp_path, folder / "web") as server:
        assert server.ask("/healthz").json() == {"status": "ok"}
        assert server.stop(signum) == 0
        assert server.log()[-1]["message"] == "stopped"
        assert server.process.stdout.read() == b""


@pytest.mark.long
def test_every_request_is_a_line_of_the_log(folder, tmp_path):
    with serving(tmp_path, folder / "web", f"again={folder}/web") as server:
        message = server.log()[0]["message"]
        assert message.startswith("serving web, again at http://127.0.0.1:")
        assert message.endswith("for this machine only, without a token, read-only")
        began = time.monotonic()
        server.query(store="web", per="1h")
        server.query(store="again", per="7s")
        server.ask("/v1/nothing%0A%7F")
        good, bad, nothing = server.log(lines=4)[1:]
        assert (good["method"], good["address"], good["status"]) == ("GET", "/v1/query?store=web&per=1h", 200)
        assert 0 < good["seconds"] < time.monotonic() - began
        assert good["bytes"] > 100
        assert bad["status"] == 400
        assert "7s" in bad["error"]
        assert nothing["status"] == 404


def test_without_a_token_only_this_machines_own_names_are_answered(folder, tmp_path):
    with serving(tmp_path, folder / "web") as server:
        for host in ("localhost", "LOCALHOST:1", "127.0.0.1:9464", "[::1]:9464", "127.9.9.9"):
            assert server.ask("/v1/stores", headers={"Host": host}).status == 200, host
        for host in (
            "example.org",
            "example.org:9464",
            "localhost.example.org",
            "127.0.0.1.nip.io",
            "[::2]",
            "10.0.0.1",
            "",
        ):
            answer = server.ask("/v1/stores", headers={"Host": host})
            assert answer.status == 421, host
            assert list(answer.json()) == ["error"]


def test_with_a_token_only_who_brings_it_is_answered(folder, tmp_path):
    with serving(tmp_path, folder / "web", "--token", folder / "token", "--cors", "https://example.org") as server:
        assert "with a token" in server.log()[0]["message"]
        for path in (
            "/v1/stores",
            "/v1/query?store=web&per=1h",
            "/metrics",
            "/nothing",
            "/v1/stores/web",
        ):
            for authorization in (
                None,
                "",
                "Bearer",
                "Bearer ",
                f"Bearer {TOKEN[:-1]}",
                f"Bearer {TOKEN}0",
                f"Basic {TOKEN}",
                TOKEN,
                "Bearer ü",
            ):
                headers = {} if authorization is None else {"Authorization": authorization.encode("latin-1")}
                answer = server.ask(path, headers=headers)
                assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer"), (path, authorization)
                assert TOKEN not in answer.body.decode()
        allowed = {"Authorization": f"Bearer {TOKEN}", "Host": "stores.example.org"}
        assert server.ask("/v1/stores", headers=allowed).status == 200
        for path in ("/healthz", "/", "/api", "/openapi.json"):  # links of the page cannot bring a token
            assert server.ask(path).status == 200
        assert TOKEN not in json.dumps(server.log())
        origin = {
            "Origin": "https://example.org",
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization",
        }
        answer = server.ask("/v1/query", method="OPTIONS", headers=origin)
        assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, "https://example.org")
        answer = server.ask("/v1/stores", headers=allowed | {"Origin": "https://other.example"})
        assert answer.headers["access-control-allow-origin"] is None


def test_what_is_beyond_the_limits_is_refused_before_it_is_read(folder, tmp_path):
    with serving(tmp_path, folder / "web", "--max-rows", "300", "--max-windows", "100") as server:
        assert server.query(store="web", per="1h").status == 200
        rows_ = server.query(store="web", per="all", within="2024-05-01T10:00:01Z,2024-05-01T11:59:59Z")
        windows = server.query(store="web", per="1m", limit=1)
        filled = server.query(store="web", per="1h", fill="true", within="2000-01-01,2024-01-01", now="2024-01-01")
        hops = server.query(store="web", per="hopping(2h, 1m)")
        for answer, what in ((rows_, "rows of states"), (windows, "windows"), (hops, "windows"), (filled, "windows")):
            assert answer.status == 422, answer
            assert what in answer.json()["error"]
        assert server.query(store="web", per="1m", within="2024-05-01T10:00,2024-05-01T10:30").status == 200


@contextmanager
def locked(uri):
    """Have whoever asks a database's stores wait until the block ends."""
    from adbc_driver_postgresql import dbapi

    with dbapi.connect(uri) as connection, connection.cursor() as cursor:
        cursor.execute("LOCK TABLE tiltframe IN ACCESS EXCLUSIVE MODE")
        yield
        connection.rollback()


@pytest.mark.long
def test_it_stops_while_it_computes(postgres, tmp_path):
    make_store(postgres, "web")
    with serving(tmp_path, postgres, "--max-seconds", "1") as server, locked(postgres):
        assert server.query(store="web", per="1m").status == 503
        assert server.stop() == 0
        assert server.log()[-1]["message"] == "stopped"


@pytest.mark.long
def test_what_takes_too_long_is_given_up_and_the_next_one_is_answered(postgres, tmp_path):
    make_store(postgres, "web")
    with serving(tmp_path, postgres, "--max-seconds", "1", "--max-queries", "1") as server:
        with locked(postgres):
            first, second = (server.query(store="web", per="1m") for _ in range(2))
            assert (first.status, "took longer than 1 s" in first.json()["error"]) == (503, True)
            assert (second.status, second.headers["retry-after"]) == (503, "5")
            assert "1 queries are running" in second.json()["error"]
            assert server.ask("/healthz").status == 200, "answering does not wait for what computes"
        for _ in range(100):
            if server.query(store="web", per="1h").status == 200:
                return
            time.sleep(0.1)
        raise AssertionError("it never answers again")


def test_who_takes_nothing_is_let_go(monkeypatch):
    """Sending waits for ever, as to a client that does not read; the server gives it up and says so."""
    lines = []
    monkeypatch.setattr(observed, "_SEND_SECONDS", 0.05)
    monkeypatch.setattr(observed.LOG, "info", lines.append)

    async def nothing(*_):
        await asyncio.Event().wait()

    scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": []}
    answer = StreamingResponse(iter([b"a", b"b"]))
    asyncio.run(asyncio.wait_for(observed.RequestObserver(answer, Metrics())(scope, nothing, nothing), 30))
    assert [line["error"] for line in lines] == ["the client read nothing for 0.05 s, and its connection was closed"]


def test_refusals_are_counted_by_reason(monkeypatch):
    """An answer that fails after its status was sent counts too, although its status is 200."""
    lines = []
    monkeypatch.setattr(observed.LOG, "info", lines.append)
    metrics = Metrics()

    async def ignore(*_):
        pass

    async def nothing():
        await asyncio.Event().wait()

    def pieces():
        yield b"a"
        raise BadData("no more")

    def refused(error):
        async def app(*_):
            raise error

        return app

    for app in (StreamingResponse(pieces()), refused(BadData("x")), refused(Refused(413, "y")), refused(KeyError("z"))):
        scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": []}
        asyncio.run(observed.RequestObserver(app, metrics)(scope, nothing, ignore))
    counted = re.findall(r'tiltframe_refusals_total.reason="(\w+)",route="none". 1.0', metrics.text())
    assert counted == ["interrupted", "bad_data", "too_large", "internal"]
    assert [line["status"] for line in lines] == [200, 400, 413, 500]
    assert [line["error"].split(" (")[0] for line in lines] == ["no more", "x", "y", "KeyError: 'z'"]
