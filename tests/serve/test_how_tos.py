"""The how-tos about other programs are followed with these programs: nginx, systemd, Node and promtool."""

from __future__ import annotations

import json
import re
import shutil
import ssl
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from urllib.error import HTTPError

import pytest

from tests.serve.servers import free_port, make_store, serving

pytestmark = [pytest.mark.store, pytest.mark.slow]

DOCS = Path(__file__).parents[2] / "docs"
TOKEN = "0123456789abcdef0123456789abcdef"


def block(page, begins):
    """Take the block of a page that begins with a word."""
    return next(
        text for text in re.findall(r"```text\n(.*?)```", (DOCS / page).read_text(), re.S) if text.startswith(begins)
    )


@pytest.mark.long
@pytest.mark.skipif(shutil.which("nginx") is None, reason="no nginx is installed")
def test_nginx_passes_tls_and_tokens_on(tmp_path):
    make_store(tmp_path / "web")
    (tmp_path / "token").write_text(TOKEN)
    key, certificate, port = tmp_path / "stores.key", tmp_path / "stores.pem", free_port()
    words = ["-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    subprocess.run(
        ["openssl", "req", "-x509", *words, "-keyout", key, "-out", certificate], check=True, capture_output=True
    )
    with serving(tmp_path, tmp_path / "web", "--token", tmp_path / "token", "--writable") as server:
        site = block("how-to/serve-in-production.md", "server {")
        for on_page, here in (
            ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"),
            ("/etc/ssl/stores.pem", certificate),
            ("/etc/ssl/stores.key", key),
            ("127.0.0.1:9464", f"127.0.0.1:{server.port}"),
        ):
            assert on_page in site
            site = site.replace(on_page, str(here))
        places = "".join(f"{name} {tmp_path}/{name};" for name in ("client_body_temp_path", "proxy_temp_path"))
        config = f"user root; pid {tmp_path}/pid; daemon off; events {{}} http {{ access_log off; {places} {site} }}"
        (tmp_path / "nginx.conf").write_text(config)
        nginx = subprocess.Popen(["nginx", "-c", tmp_path / "nginx.conf", "-e", tmp_path / "errors"])
        try:
            _asks_through(f"https://localhost:{port}", ssl.create_default_context(cafile=certificate))
        finally:
            nginx.terminate()
            nginx.wait()


def _asks_through(url, context):
    def ask(path, token=None, body=None):
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        request = urllib.request.Request(url + path, body, headers | {"Content-Type": "application/x-ndjson"})
        try:
            with urllib.request.urlopen(request, context=context) as answer:
                return answer.status
        except HTTPError as error:
            return error.code

    for _ in range(100):
        try:
            assert ask("/healthz") == 200
            break
        except OSError:
            time.sleep(0.1)
    assert ask("/v1/stores") == 401
    assert ask("/v1/query?store=web&per=1h", TOKEN) == 200
    large = b" " * (12 << 20)  # what nginx would refuse by itself is 1 MiB
    assert ask("/v1/stores/web/events?writer=w&number=1", TOKEN, large) in (200, 400)
    assert ask("/v1/stores/web/events?writer=w&number=1", TOKEN, large + large) == 413


@pytest.mark.skipif(shutil.which("node") is None, reason="no Node is installed")
def test_javascript_reads_a_store(server_and_stores, tmp_path):
    server, stores = server_and_stores
    text = block("serve.md", "const answer").replace("127.0.0.1:9464", f"127.0.0.1:{server.port}")
    (tmp_path / "read.mjs").write_text(text)
    printed = subprocess.run(["node", tmp_path / "read.mjs"], check=True, capture_output=True, text=True).stdout
    assert len(printed.splitlines()) == stores["web"].query("1h").num_rows
    assert "2024-05-01T10:00:00.000Z" in printed


def test_what_r_and_excel_ask_for_is_answered(server_and_stores):
    """Neither is at hand: of both, what they ask for has the columns that they read."""
    server, _ = server_and_stores
    in_r, in_excel = block("serve.md", "address <-"), block("serve.md", "let\n")
    address = re.search(r'http://[^/]*(/[^"]*)', in_r)[1]
    for accept in re.findall('Accept = "(.*?)"', in_r + in_excel):
        answer = server.ask(address, headers={"Accept": accept})
        assert (answer.status, answer.headers["content-type"].partition(";")[0]) == (200, accept)
    words = dict(re.findall(r'(\w+) = "(\w+)"', in_excel.partition("Query = [")[2].partition("]")[0]))
    names = server.query(**words, headers={"Accept": "text/csv"}).body.decode().split("\n")[0]
    read = re.findall(r'{"(\w+)", ', in_excel)
    assert {f'"{name}"' for name in read} - {'"requests"'} <= set(names.split(","))  # the page's store counts requests


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd is installed")
@pytest.mark.parametrize("page", ["serve", "stream"])
def test_systemd_takes_the_unit(tmp_path, page):
    unit = tmp_path / "tiltframe.service"
    text = block(f"how-to/{page}-in-production.md", "[Unit]")
    assert "/opt/tiltframe/env/bin/tiltframe" in text
    unit.write_text(text.replace("/opt/tiltframe/env/bin/tiltframe", sys.executable))
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd is installed")
def test_the_unit_of_the_server_is_hardened(tmp_path):
    unit = tmp_path / "tiltframe.service"
    text = block("how-to/serve-in-production.md", "[Unit]")
    assert re.search(r"^MemoryMax=\d+G$", text, re.M)
    unit.write_text(text)
    command = ["systemd-analyze", "security", "--offline=true", "--threshold=20", unit]  # tenths of exposure
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool is installed")
def test_promtool_takes_the_alert_rules():
    subprocess.run(["promtool", "check", "rules", DOCS.parent / "examples/grafana/alerts.yaml"], check=True)


def test_grafana_is_given_what_it_provisions():
    """Without Grafana: the dashboard asks the data source that is provisioned, and no panel lies on another."""
    folder = DOCS.parent / "examples/grafana"
    source, dashboard = (folder / "datasource.yaml").read_text(), json.loads((folder / "dashboard.json").read_text())
    assert re.search(r"^apiVersion: 1$", source, re.M)
    assert re.search(r"^ +type: prometheus$", source, re.M)
    assert isinstance(dashboard["schemaVersion"], int)
    assert dashboard["title"]
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in dashboard["panels"])
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24  # columns of Grafana's grid
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    for asks in [*dashboard["panels"], *dashboard["templating"]["list"]]:
        assert asks["type"]
        assert asks["datasource"]["type"] == "prometheus"
        assert re.search(rf"^ +uid: {asks['datasource']['uid']}\b", source, re.M)
