"""A server that maintains its stores, and its reports about the maintenance."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

import aggr
from tests.serve.servers import make_store, serving
from tiltframe import FrameStore, TiltFrame
from tiltframe.serve import maintaining
from tiltframe.serve.maintaining import Maintenance
from tiltframe.serve.observed import Metrics
from tiltframe.serve.stores import Stores

pytestmark = pytest.mark.store


def maintained_once(store: Path) -> Metrics:
    """Run a maintenance for at least one round, and return its metrics."""
    metrics = Metrics()
    maintenance = Maintenance(Stores([str(store)]), metrics, pause_seconds=0.1)
    maintenance.start()
    try:
        for _ in range(200):
            if "tiltframe_maintenance_rounds_total{" in metrics.text():
                break
            time.sleep(0.05)
    finally:
        maintenance.stop()
    return metrics


def test_parts_of_open_and_closed_windows_are_merged_and_windows_expire(tmp_path):
    now = int(time.time() * 1000)
    frame = TiltFrame(["1m", "1h"], "ts", {"n": aggr.count(), "s": aggr.sum("x")})
    store = FrameStore(tmp_path / "web", frame, retention={"1m": "2d"})
    old = now - 3 * 86_400_000
    for number in range(1, 31):
        store.append_rows(pa.table({"ts": [now, old], "x": [number, 1]}), "test", number)
    before = store.query("1h", keys=[]).select(["window_start", "n", "s"])
    parts = len(store.at().snapshot.parts)
    metrics = maintained_once(tmp_path / "web")
    view = store.at()
    assert parts >= 30
    assert len(view.snapshot.parts) < 10
    assert view.level("1m").has_expired
    assert store.query("1h", keys=[]).select(["window_start", "n", "s"]) == before
    assert 'tiltframe_maintenance_rounds_total{store="web"}' in metrics.text()
    assert "tiltframe_maintenance_failures_total{" not in metrics.text()


def test_the_log_of_a_maintained_store_stays_short(tmp_path):
    store = FrameStore(tmp_path / "web", TiltFrame(["1m", "1h"], "ts", {"n": aggr.count()}))
    store.append_rows(pa.table({"ts": [0]}), "test", 0)
    metrics = maintained_once(tmp_path / "web")
    log, an_hour_ago = tmp_path / "web" / "tiltframe" / "_delta_log", time.time() - 3600
    for number in range(1, 101):
        store.append_rows(pa.table({"ts": [number * 1000]}), "test", number)
        for entry in log.iterdir():
            os.utime(entry, (an_hour_ago, an_hour_ago))
    assert len(list(log.iterdir())) < 60
    assert store.query("1h", keys=[]).column("n").to_pylist() == [101]
    assert "tiltframe_maintenance_failures_total{" not in metrics.text()


def test_small_parts_are_merged_between_two_complete_rounds(tmp_path, monkeypatch):
    frame = TiltFrame(["1m", "1h"], "ts", {"n": aggr.count()}, ["host"])
    store = FrameStore(tmp_path / "web", frame)
    store.append_rows(pa.table({"ts": [0] * 1000, "host": [f"h{i}" for i in range(1000)]}), "test", 0)
    rounds, compact = [], FrameStore.compact

    def compact_and_record(self, *args, **kwargs):
        rounds.append("small" if kwargs.get("only_small") else "complete")
        return compact(self, *args, **kwargs)

    monkeypatch.setattr(FrameStore, "compact", compact_and_record)
    large_parts = set(store.at().snapshot.parts)
    metrics = Metrics()
    maintenance = Maintenance(Stores([str(tmp_path / "web")]), metrics, pause_seconds=0.05)
    maintenance.start()
    try:
        for _ in range(200):
            if "tiltframe_maintenance_rounds_total{" in metrics.text():
                break
            time.sleep(0.05)
        for number in range(1, 41):
            store.append_rows(pa.table({"ts": [0], "host": ["h1"]}), "test", number)
        for _ in range(200):
            if len(store.at().snapshot.parts) < 12:
                break
            time.sleep(0.05)
    finally:
        maintenance.stop()
    assert rounds[0] == "complete"
    assert set(rounds[1:]) == {"small"}
    parts = store.at().snapshot.parts
    assert len(parts) < 12
    assert large_parts <= set(parts)
    assert store.query("1h", keys=[]).column("n").to_pylist() == [1040]
    assert "tiltframe_maintenance_failures_total{" not in metrics.text()


def test_remote_stores_are_read_rarely_unless_parts_are_merged(tmp_path, monkeypatch):
    """A remote store is one at an address with ://, here that of a folder."""
    monkeypatch.setattr(maintaining, "_LONGEST_PAUSE_SECONDS", 1000.0)
    rounds, compact = Counter(), FrameStore.compact

    def compact_and_count(self, *args, **kwargs):
        rounds["remote" if self.display_uri.endswith("far") else "local"] += 1
        return compact(self, *args, **kwargs)

    monkeypatch.setattr(FrameStore, "compact", compact_and_count)
    for name in ("near", "far"):
        frame = TiltFrame(["1m", "1h"], "ts", {"n": aggr.count()})
        FrameStore(tmp_path / name, frame).append_rows(pa.table({"ts": [0]}), "test", 0)
    stores = Stores([str(tmp_path / "near"), f"file://{tmp_path}/far"])
    assert [stores.is_remote(name) for name in ("near", "far")] == [False, True]
    maintenance = maintaining.Maintenance(stores, Metrics(), pause_seconds=0.02)
    assert maintenance._longer_pause("near") == 0.04
    assert maintenance._longer_pause("far") == 1000.0
    maintenance.start()
    latest = time.monotonic() + 60
    while rounds["local"] < 3 and time.monotonic() < latest:
        time.sleep(0.01)
    maintenance.stop()
    assert rounds["local"] >= 3, rounds
    assert rounds["remote"] == 1, rounds


@pytest.mark.long
def test_readiness_metrics_and_forwarded_requests(tmp_path):
    make_store(tmp_path / "web")
    with serving(tmp_path, tmp_path / "web", "--maintain") as server:
        assert server.ask("/readyz").json() == {"status": "ready"}
        for header in ("X-Forwarded-For", "x-forwarded-host", "Forwarded"):
            answer = server.ask("/v1/stores", headers={header: "203.0.113.7"})
            assert (answer.status, "--token FILE" in answer.json()["error"]) == (403, True), header
        text = server.ask("/metrics").body.decode()
        assert 'tiltframe_request_seconds_bucket{le="+Inf",route="readyz"} 1.0\n' in text
        assert 'tiltframe_request_seconds_count{route="readyz"} 1.0\n' in text
        assert 'tiltframe_refusals_total{reason="forbidden",route="none"} 3.0\n' in text
        assert "\ntiltframe_queries_running 0.0\n" in text
        assert "\ntiltframe_queries_waiting 0.0\n" in text
        assert "_created" not in text
        assert "tiltframe_build_info{version=" in text
        (age,) = (line.split()[1] for line in text.splitlines() if line.startswith("tiltframe_newest_window_age"))
        assert float(age) == pytest.approx(time.time() - 1_714_564_800, abs=100)
        assert server.ask("/readyz", headers={"Host": "example.org"}).status == 421
        (tmp_path / "web").rename(tmp_path / "gone")
        assert server.ask("/readyz").status == 503


def test_maintenance_stops_if_the_server_fails(tmp_path):
    """The server cannot start its event loop, because the process may not open further files."""
    make_store(tmp_path / "web")
    script = f"""
import logging, resource, threading
from tiltframe.serve.app import run
from tiltframe.serve.cost import Limits
from tiltframe.serve.stores import Stores

def forbid_files(record):
    hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard_limit))
    return True

logging.getLogger("tiltframe.serve").addFilter(forbid_files)
stores = Stores([{str(tmp_path / "web")!r}])
try:
    run(stores, ("127.0.0.1", 0), Limits(), token=None, origins=(), is_writable=False, should_maintain=True)
except OSError as error:
    print(error.strerror, [thread.name for thread in threading.enumerate()])
"""
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert result.stdout == "Too many open files ['MainThread']\n", result.stderr
