"""Events over HTTP become rows of the store once, even if they are sent again, lost, or sent at the same time."""

from __future__ import annotations

import io
import json
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

import aggr
from aggr.arrow.bit_equality import same_bits
from tests.serve.servers import FRAME, make_store, rows, serving
from tiltframe import FrameStore, TiltFrame
from tiltframe.serve.writing import read_lines

pytestmark = [pytest.mark.store, pytest.mark.slow]

LINES = {"Content-Type": "application/x-ndjson"}
ARROW = {"Content-Type": "application/vnd.apache.arrow.stream"}
EVENTS = "/v1/stores/web/events"


def stream(table):
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def lines(table):
    return "".join(json.dumps(row, default=str) + "\n" for row in table.to_pylist()).encode()


@pytest.fixture
def writable(tmp_path):
    make_store(tmp_path / "web", data=rows().drop_columns(["paid"]), frame=frame_without("paid"))
    with serving(tmp_path, tmp_path / "web", "--writable") as server:
        yield server, tmp_path / "web"


def test_the_answer_reports_groups_beyond_a_limit(tmp_path):
    frame = TiltFrame(["1m", "1h"], "ts", {"hosts": aggr.count_distinct("host", max=2, beyond="null")})
    FrameStore(tmp_path / "web", frame).append_rows(pa.table({"ts": [0], "host": ["a"]}), "first", 1)
    events = [b'{"ts": "2024-05-01T10:00:00Z", "host": "%s"}\n' % host for host in (b"a", b"b", b"c")]
    with serving(tmp_path, tmp_path / "web", "--writable") as server:
        answers = [
            server.ask(f"{EVENTS}?writer=w&number={number}", b"".join(events[:count]), headers=LINES).json()
            for number, count in [(1, 2), (2, 3)]
        ]
    assert answers[0] == {"added": True}
    [sentence] = answers[1]["warnings"]
    assert sentence.startswith("hosts, count_distinct('host', max=2, beyond='null'): ")
    assert sentence.endswith("are null: 1 at level 1m, 1 at level 1h")


def frame_without(name):
    return TiltFrame(FRAME.levels, "ts", {n: m for n, m in FRAME.measures.items() if n != name}, ["host"])


def counted(server):
    return server.query(store="web", per="all", keys="", measures="n").json()["rows"][0]["n"]


@pytest.mark.long
def test_a_server_that_is_not_asked_to_takes_nothing(server_and_stores):
    server, stores = server_and_stores
    before = stores["web"].version()
    answer = server.ask(f"{EVENTS}?writer=w&number=1", stream(rows()), headers=ARROW)
    assert answer.status == 403
    assert "--writable" in answer.json()["error"]
    assert stores["web"].version() == before
    assert EVENTS.replace("web", "{name}") not in server.ask("/openapi.json").json()["paths"]


def test_events_count_once_and_are_the_rows_bits(writable, tmp_path):
    server, place = writable
    more = rows(hours=3).drop_columns(["paid"])
    address = f"{EVENTS}?writer=w&number="
    for sent in range(2):
        answer = server.ask(f"{address}1", stream(more), headers=ARROW)
        assert (answer.status, answer.json()) == (200, {"added": not sent}), answer.body
    all_rows = pa.table(
        {"ts": ["2024-05-01T10:00:30Z"] * 2, "host": ["a", "z"], "bytes": [7, 8], "rate": [2, None], "ms": [3, 4]}
    )
    for sent in range(2):
        answer = server.ask(f"{address}2", lines(all_rows), headers=LINES)
        assert (answer.status, answer.json()) == (200, {"added": not sent}), answer.body
    assert counted(server) == 360 + 540 + 2
    beside = make_store(tmp_path / "beside", data=rows().drop_columns(["paid"]), frame=frame_without("paid"))
    beside.append_rows(more, "w", 1)
    floats = all_rows.set_column(3, "rate", all_rows["rate"].cast(pa.float64())).set_column(
        4, "ms", all_rows["ms"].cast(pa.float64())
    )
    beside.append_rows(floats, "w", 2)
    for level in ("1m", "1h"):
        own_states, other = FrameStore(place).states(level), beside.states(level)
        assert all(same_bits(*columns) for columns in zip(own_states.columns, other.columns, strict=True))


def test_other_events_under_a_number_are_refused(writable):
    server, _ = writable
    address = f"{EVENTS}?writer=w&number=5"
    assert server.ask(address, stream(rows(1).drop_columns(["paid"])), headers=ARROW).status == 200
    answer = server.ask(address, stream(rows(2).drop_columns(["paid"])), headers=ARROW)
    assert answer.status == 409, answer.body
    assert counted(server) == 360 + 180


@pytest.mark.long
def test_writers_at_the_same_time_lose_nothing_and_share_commits(writable):
    server, place = writable
    before = FrameStore(place).version()
    body = stream(rows(1).drop_columns(["paid"]))

    def write(writer):
        return [server.ask(f"{EVENTS}?writer=w{writer}&number={n}", body, headers=ARROW).status for n in (1, 2, 2, 3)]

    with ThreadPoolExecutor(8) as pool:
        statuses = list(pool.map(write, range(8)))
    assert statuses == [[200] * 4] * 8
    assert counted(server) == 360 + 8 * 3 * 180
    assert FrameStore(place).version() - before < 8 * 3, "requests that arrive during a commit share the next one"


@pytest.mark.long
def test_bad_events_change_nothing(writable):
    server, place = writable
    before = FrameStore(place).version()
    good, line = (
        f"{EVENTS}?writer=w&number=1",
        b'{"ts": "2024-05-01T10:00:00Z", "host": "a", "bytes": 1, "rate": 1.5, "ms": 1.5}\n',
    )
    arrow = stream(rows(1).drop_columns(["paid"]))
    bad = [
        ("/v1/stores/nope/events?writer=w&number=1", line, LINES, 404),
        (EVENTS, line, LINES, 400),
        (f"{EVENTS}?writer=w", line, LINES, 400),
        (f"{EVENTS}?writer=&number=1", line, LINES, 400),
        (f"{EVENTS}?writer=tiltframe:x&number=1", line, LINES, 400),
        (f"{EVENTS}?writer=w&number=-1", line, LINES, 400),
        (f"{EVENTS}?writer=w&number=1.5", line, LINES, 400),
        (f"{EVENTS}?writer=w&number=99999999999999999999999", line, LINES, 400),
        (f"{EVENTS}?writer=w&number=1&number=2", line, LINES, 400),
        (f"{EVENTS}?writer=w&number=1&durable=false", line, LINES, 400),
        (good, line, {}, 415),
        (good, line, {"Content-Type": "text/plain"}, 415),
        (good, line, {"Content-Type": "application/json"}, 415),
        (good, line, LINES | {"Content-Encoding": "gzip"}, 415),
        (good, b"", LINES, 400),
        (good, b"{", LINES, 400),
        (good, b"7\n", LINES, 400),
        (good, line + b"{", LINES, 400),
        (good, line + line[:-10], LINES, 400),
        (good, line.replace(b"1.5", b'"x"'), LINES, 400),
        (good, line.replace(b"2024", b"20x4"), LINES, 400),
        (good, line.replace(b'"host"', b'"hots"'), LINES, 400),
        (good, line.replace(b'"bytes": 1', b'"bytes": 1.5'), LINES, 422),
        (good, line.replace(b'"a"', b'"\xff"'), LINES, 400),
        (good, line * (1 << 18), LINES, 413),
        (good, b"", ARROW, 400),
        (good, line, ARROW, 400),
        (good, arrow[: len(arrow) // 2], ARROW, 400),
        (good, stream(rows(1).drop_columns(["paid", "ms"])), ARROW, 400),
        (good, stream(rows(1).set_column(2, "bytes", pa.array(["x"] * 180))), ARROW, 400),
    ]  # fmt: skip
    for path, body, headers, status in bad:
        answer = server.ask(path, body, headers=headers)
        assert answer.status == status, (path, body[:80], headers, answer.status, answer.body)
        assert 10 < len(answer.json()["error"]) <= 300
        assert "/tmp" not in answer.json()["error"]
    for at in range(0, len(arrow), max(len(arrow) // 40, 1)):
        damaged = arrow[:at] + bytes([arrow[at] ^ 0xFF]) + arrow[at + 1 :]
        answer = server.ask(f"{EVENTS}?writer=damaged&number={at}", damaged, headers=ARROW)
        assert answer.status in (200, 400, 422), answer.body
    assert server.ask("/healthz").status == 200
    assert FrameStore(place).last_commit("w") is None
    assert FrameStore(place).version() >= before


def packed(table, codec="zstd"):
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_table(table)
    return sink.getvalue()


def events_of(count, **columns):
    """Make rows of one moment and one host, with more columns."""
    ts = pa.array([1_714_557_600_000] * count, pa.timestamp("ms", "UTC"))
    values = {"host": pa.repeat("a", count), "bytes": pa.repeat(1, count), "rate": pa.repeat(1.5, count)}
    return pa.table({"ts": ts, **values, "ms": pa.repeat(1.5, count)} | columns)


LONG = pa.DictionaryArray.from_arrays(pa.array([0] * 1000, pa.int8()), pa.array(["x" * 100_000]))
FEW = pa.DictionaryArray.from_arrays(pa.array([0, 1] * 500, pa.int8()), pa.array(["a", "b"]))
TOO_LARGE = {
    "buffers": (packed(events_of(600_000)), "bytes of the events after decompression"),
    "buffers of lz4": (packed(events_of(600_000), "lz4"), "bytes of the events after decompression"),
    "rows without buffers": (stream(pa.table({"ts": pa.nulls(10**9)})), "1,000,000,000 rows of the events"),
    "a dictionary": (stream(events_of(1000, host=LONG)), "bytes of the events without dictionaries"),
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_an_arrow_stream_is_bounded_after_decompression(writable, name):
    server, place = writable
    before = FrameStore(place).version()
    body, word = TOO_LARGE[name]
    assert len(body) < 4 << 20
    answer = server.ask(f"{EVENTS}?writer=w&number=1", body, headers=ARROW)
    assert (answer.status, word in answer.json()["error"]) == (413, True), answer.body
    assert FrameStore(place).version() == before


def test_a_packed_arrow_stream_and_a_dictionary_are_read(writable):
    server, _ = writable
    for number, table in enumerate((events_of(1000), events_of(1000, host=FEW)), 1):
        assert server.ask(f"{EVENTS}?writer=w&number={number}", packed(table), headers=ARROW).status == 200
    assert counted(server) == 360 + 2000


@pytest.mark.parametrize(
    "event",
    [
        {"ts": "2024-05-01T10:00:00Z", "bytes": 2**64 - 1},
        {"ts": "01.05.2024 10:00", "bytes": 1},
        {"ts": "x", "bytes": 1},
        {"ts": "2024-05-01T10:00:00Z", "bytes": 1, "host": "\xff"},
    ],
    ids=str,
)
def test_advice_is_for_clients(tmp_path, event):
    """Messages about files contain options of commands and of Python, which clients of a server do not have."""
    frame = TiltFrame(["1m"], "ts", {"n": aggr.count(), "bytes": aggr.max("bytes")})
    store = FrameStore(tmp_path / "web", frame)
    store.append_rows(pa.table({"ts": pa.array([0], pa.timestamp("us", "UTC")), "bytes": [1.5]}), "test", 1)
    with pytest.raises(ValueError, match="the events") as raised:
        read_lines(json.dumps(event, ensure_ascii=False).encode("latin-1"), store)
    assert str(raised.value).endswith("; correct the events")
    assert "types=" not in str(raised.value)
    assert "--" not in str(raised.value)
