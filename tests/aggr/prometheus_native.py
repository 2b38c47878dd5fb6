"""Write the answers of Prometheus about native histograms of tiltframe: ``python -m tests.aggr.prometheus_native``.

It needs Debian's package ``prometheus``. Prometheus scrapes a server that returns states of `exponential` as protobuf.
The written file has each message, Prometheus' answers to queries about it, and the message that Prometheus returns by
``/federate``.
"""

from __future__ import annotations

import base64
import json
import subprocess
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import numpy as np
import pyarrow as pa
from google.protobuf.internal.decoder import _DecodeVarint32
from google.protobuf.internal.encoder import _VarintBytes

import aggr
from aggr.interchange.prometheus import to_prometheus
from aggr.interchange.prometheus_messages import prometheus_message

ANSWERS = Path(__file__).with_name("prometheus_native.json")
FORMAT = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
COUNT = 1001  # of which the ranks of these quantiles are the same here and in Prometheus
QUANTILES = (0.0, 0.001, 0.01, 0.25, 0.5, 0.9, 0.99, 0.999, 1.0)
QUERIES = {
    "count": "histogram_count(ours)",
    "sum": "histogram_sum(ours)",
    **{str(q): f"histogram_quantile({q}, ours)" for q in QUANTILES},
}
HOST, PORT = "127.0.0.1", 19491


def cases() -> list[bytes]:
    """Write states of each schema: values above 0, of both signs with zeros, exact powers of two, and few ones."""
    rng, messages = np.random.default_rng(42), []
    for schema in range(-4, 9):
        wide = 8.0 * 2.0 ** -min(schema, 5)
        for kind in range(3):
            values = rng.lognormal(0, wide / 4, COUNT)
            if kind == 1:
                values *= rng.choice([-1, 0, 1], COUNT)
            elif kind == 2:  # each at the end of its bucket, where it still belongs
                values = np.exp2(rng.integers(-8 if schema <= 3 else -1, 9 if schema <= 3 else 2, COUNT).astype(float))
            function = aggr.Exponential(scale=schema, max_buckets=10_000)
            state = function.reduce(pa.array(values), aggr.Groups.single(COUNT))
            messages.append(to_prometheus(state, function)[0].as_py())
    return messages


def family_of(messages: list[bytes]) -> bytes:
    """Put messages into one metric family, a series each, in the delimited format of a scrape."""
    family = prometheus_message("MetricFamily")(name="ours", type=4)
    for i, message in enumerate(messages):
        metric = family.metric.add()
        metric.label.add(name="case", value=str(i))
        metric.histogram.ParseFromString(message)
    body = family.SerializeToString()
    return _VarintBytes(len(body)) + body


def histograms_of(body: bytes) -> dict[int, bytes]:
    """Take the histograms out of a delimited answer, by their case."""
    histograms, at = {}, 0
    while at < len(body):
        size, at = _DecodeVarint32(body, at)
        family = prometheus_message("MetricFamily").FromString(body[at : at + size])
        at += size
        for metric in family.metric:
            labels = {label.name: label.value for label in metric.label}
            histograms[int(labels["case"])] = metric.histogram.SerializeToString()
    return histograms


def main() -> None:
    """Let Prometheus scrape the messages, and write down what it answers."""
    messages = cases()
    body = family_of(messages)

    class Scraped(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", FORMAT)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = HTTPServer((HOST, 0), Scraped)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        target = f"{HOST}:{server.server_port}"
        scrape = {"job_name": "ours", "scrape_interval": "1s", "scrape_timeout": "1s"}
        config = {"scrape_configs": [scrape | {"static_configs": [{"targets": [target]}]}]}
        (Path(folder) / "prometheus.yml").write_text(json.dumps(config))
        words = [
            "--enable-feature=native-histograms",
            f"--config.file={folder}/prometheus.yml",
            f"--storage.tsdb.path={folder}/data",
            f"--web.listen-address={HOST}:{PORT}",
        ]
        with subprocess.Popen(["prometheus", *words], stderr=subprocess.DEVNULL) as prometheus:
            try:
                answers = _answers()
                request = Request(
                    f"http://{HOST}:{PORT}/federate?" + urlencode({"match[]": "ours"}), headers={"Accept": FORMAT}
                )
                with urlopen(request) as federated:
                    handed_on = histograms_of(federated.read())
            finally:
                prometheus.terminate()
                server.shutdown()
    written = [
        {
            "message": base64.b64encode(message).decode(),
            "federated": base64.b64encode(handed_on[i]).decode(),
            "answers": {name: answers[name][i] for name in QUERIES},
        }
        for i, message in enumerate(messages)
    ]
    ANSWERS.write_text("[\n" + ",\n".join(json.dumps(answer) for answer in written) + "\n]\n")
    print(f"Prometheus' answers about {len(messages)} histograms are in {ANSWERS.name}")


def _answers() -> dict[str, dict[int, str]]:
    """Wait for the first scrape, and ask everything about its moment."""
    for _ in range(300):
        try:
            if _query("ours", time.time()):
                break
        except OSError:
            pass
        time.sleep(0.1)
    else:
        raise SystemExit("Prometheus has not scraped the histograms")
    moment = time.time()
    return {name: _query(query, moment) for name, query in QUERIES.items()}


def _query(query: str, moment: float) -> dict[int, str]:
    with urlopen(f"http://{HOST}:{PORT}/api/v1/query?" + urlencode({"query": query, "time": moment})) as answer:
        series = json.load(answer)["data"]["result"]
    return {int(sample["metric"]["case"]): sample["value"][1] if "value" in sample else "" for sample in series}


if __name__ == "__main__":
    main()
