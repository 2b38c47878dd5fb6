"""Prometheus scrapes the server's own metrics with its token, and promtool does not report a problem in them."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

from tests.serve.prometheus_itself import prometheus
from tests.serve.servers import free_port, make_store, serving

pytestmark = [
    pytest.mark.store,
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="no Prometheus is installed"),
]
TOKEN = "0123456789abcdef0123456789abcdef"


@pytest.mark.long
def test_prometheus_scrapes_metrics(tmp_path):
    make_store(tmp_path / "web")
    (tmp_path / "token").write_text(TOKEN)
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    with serving(tmp_path, tmp_path / "web", "--token", tmp_path / "token") as server:
        for _ in range(3):
            assert server.query(store="web", per="1h", now="2024-05-02", headers=bearer).status == 200
        assert server.query(store="web", per="1h", nothing="", headers=bearer).status == 400
        text = server.ask("/metrics", headers=bearer).body
        subprocess.run(["promtool", "check", "metrics"], input=text, check=True)
        job = {
            "job_name": "stores",
            "scrape_interval": "1s",
            "authorization": {"credentials_file": f"{tmp_path}/token"},
            "static_configs": [{"targets": [f"{server.host}:{server.port}"]}],
        }
        with prometheus(tmp_path, free_port(), json.dumps({"scrape_configs": [job]})) as url:
            expected = {
                'tiltframe_requests_total{route="query",status="200"}': 3,
                'tiltframe_requests_total{route="query",status="400"}': 1,
                "tiltframe_cache_hits_total": 2,
                "tiltframe_cache_misses_total": 1,
                "tiltframe_rows_read_total": 8,
                "up": 1,
            }
            assert {query: value_of(url, query) for query in expected} == expected


def value_of(url, query):
    """Ask for a number that there is once Prometheus has scraped."""
    for _ in range(100):
        with urlopen(f"{url}/api/v1/query?" + urlencode({"query": query})) as answer:
            if series := json.load(answer)["data"]["result"]:
                return float(series[0]["value"][1])
        time.sleep(0.1)
    return None
