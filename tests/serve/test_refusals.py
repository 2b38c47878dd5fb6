"""Refusals of the Prometheus API: each names Prometheus, which computes the expression through remote read, or is in a
list of requests that Prometheus would refuse too.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import tiltframe.serve
from tests.serve.prometheus_world import BEGIN, serving
from tests.serve.test_prometheus import small
from tiltframe.serve.promql import select

pytestmark = pytest.mark.store
WAYS = {"REMOTE_READ_ADVICE", "USE_PROMETHEUS", "other_way"}
# parts of the messages that do not name Prometheus, by the reason
OTHERS = {
    "Prometheus refuses the request too": (
        "as PromQL",
        "in RE2",
        "must be a time",
        "must be a duration",
        "must be a selector",
        "must be a whole number",
        "is missing; pass",
        "times; pass it once",
        "is before its start",
        "a range has at most",
        "cannot be evaluated over a range",
        "can be evaluated only at a single moment",
        "expected numbers; got the string",
        "that fits 64 bits",
        "series of the result have the labels",
        "series on the ",
    ),
    "the request cannot be read": ("they are not UTF-8", "there are more than", "ReadRequest in snappy", "str(error)"),
    "Prometheus sent the request": (
        "the response types",
        "a response has at most",
        "a request has at most",
        "has negative sums",
        "native histograms cannot be sent",
        "has windows of",
    ),
    "the store lacks the data, or another function reads it": (
        "does not store its",
        "cannot be returned; use histogram_quantile",
        "apply one of",
        "use sum, which can",
        "is in the stores",
    ),
}


def refusals():
    """Return the source of each expression of the server that makes an error of the Prometheus API."""
    for file in sorted(Path(tiltframe.serve.__file__).parent.rglob("*.py")):
        source = file.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("Unanswerable", "BadData"):
                yield pytest.param(node, id=f"{file.stem}:{node.lineno}")


def text_of(node):
    """Return the literal parts of a message, or the source of another argument."""
    parts = [part.value for part in ast.walk(node) if isinstance(part, ast.Constant) and isinstance(part.value, str)]
    return "".join(parts) or ast.unparse(node.args[0])


@pytest.mark.parametrize("node", list(refusals()))
def test_a_refusal_names_prometheus(node):
    names = {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}
    text = text_of(node)
    excused = [part for parts in OTHERS.values() for part in parts if part in text]
    assert bool(names & WAYS) != bool(excused), text


def test_each_excuse_is_used():
    texts = [ast.unparse(entry.values[0]) for entry in refusals()]
    for part in (part for parts in OTHERS.values() for part in parts):
        assert any(part in text for text in texts), part


@pytest.fixture(scope="module")
def server():
    with serving({"s": small([BEGIN], ["1m", "1d"])}) as running:
        yield running


@pytest.mark.parametrize(
    "query",
    [
        "+".join(["n_total"] * 400),
        "(" * 600 + "1" + ")" * 600,
        " + ".join(f'n_total{{k=~"{letter * 1500}.*"}}' for letter in "abc"),
        "count_over_time(n_total[99y:1s])",
    ],
)
def test_a_limit_names_prometheus(server, query):
    answer = server.query(query, BEGIN)
    assert answer.status in (400, 422), answer
    assert "Prometheus" in answer.body, answer.body
    assert "(docs/prometheus.md)" in answer.body, answer.body


def test_a_limit_of_remote_read_does_not_name_prometheus():
    evaluation = select.Evaluation({}, None, None, budget=None, is_remote_read=True)
    with pytest.raises(select.Unanswerable, match="or a shorter range"):
        evaluation.check_limits(select.MOST_CELLS + 1)
