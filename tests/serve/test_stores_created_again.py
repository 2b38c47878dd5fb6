"""A server answers from the store that is now at the address, if a store was deleted and created again."""

import shutil

import pyarrow as pa
import pytest

import aggr
from tests.serve.servers import make_store, serving
from tiltframe import TiltFrame

pytestmark = [pytest.mark.store, pytest.mark.slow]

FRAME = TiltFrame(["1m", "1h"], "ts", {"n": aggr.count()}, ["host"])
OTHER = TiltFrame(["10s", "1h"], "ts", {"total": aggr.sum("x")}, ["host"])


def rows(host):
    return pa.table({"ts": [0], "host": [host], "x": [1.5]})


@pytest.mark.parametrize("frame", [FRAME, OTHER], ids=["same frame", "other frame"])
def test_answers_of_the_new_store(tmp_path, frame):
    make_store(tmp_path / "web", frame=FRAME, data=rows("old"))
    paths = ["/v1/query?store=web&per=1h", "/v1/stores", "/v1/stores/web", "/v1/stores/web/keys/host"]
    with serving(tmp_path, tmp_path / "web") as server:
        before = {path: server.ask(path) for path in paths}
        assert b"old" in before[paths[0]].body
        shutil.rmtree(tmp_path / "web")
        make_store(tmp_path / "web", frame=frame, data=rows("new"))
        for path, answer in before.items():
            later = server.ask(path, headers={"If-None-Match": answer.headers["etag"]})
            assert (later.status, b"old" in later.body) == (200, False), path
            assert later.headers["etag"] != answer.headers["etag"]
        answer = server.ask(paths[0]).json()
        assert b"new" in server.ask(paths[0]).body
        assert set(answer["rows"][0] if "rows" in answer else answer) >= ({"n"} if frame is FRAME else {"total"}), (
            answer
        )


def test_a_deleted_store_is_not_answered(tmp_path):
    make_store(tmp_path / "web", frame=FRAME, data=rows("old"))
    with serving(tmp_path, tmp_path / "web") as server:
        assert server.query(store="web", per="1h").status == 200
        shutil.rmtree(tmp_path / "web")
        answer = server.query(store="web", per="1h")
        assert answer.status >= 400
        assert "there is no store" in answer.json()["error"], answer.body
