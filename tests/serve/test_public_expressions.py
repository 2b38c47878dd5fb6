"""Expressions of public dashboards and alert rules: EXPRESSIONS is a file with one expression per line.

For each expression there is a store with its metrics and labels. This server must compute it as Prometheus does, which
reads the store by remote read, or refuse it; Prometheus must compute each expression, and not without a result.
"""

from __future__ import annotations

import collections
import json
import math
import os
import re
import shutil
from bisect import bisect_left
from itertools import product
from pathlib import Path

import numpy as np
import promql_parser
import pyarrow as pa
import pytest

import aggr
from tests.serve.prometheus_itself import prometheus
from tests.serve.prometheus_world import BEGIN, serving, store_of
from tests.serve.servers import free_port
from tests.serve.test_promql_agreement import ask
from tiltframe import TiltFrame
from tiltframe.names import RESERVED
from tiltframe.serve.promql.classic_buckets import DEFAULT_BOUNDS
from tiltframe.serve.promql.function_table import register_older_functions
from tiltframe.store.backends.memory import MemoryBackend

FILE = os.environ.get("EXPRESSIONS")
pytestmark = [
    pytest.mark.store,
    pytest.mark.long,
    pytest.mark.skipif(not FILE, reason="EXPRESSIONS is not set to a file with an expression per line"),
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="no Prometheus is installed"),
]
AT = BEGIN + 2 * 3600
# A key of a store cannot have the name of a column that tiltframe adds, so that such a label gets another name.
RESERVED_LABELS = re.compile(rf"\b({'|'.join(RESERVED)})\b")
OF_COUNTERS = ("rate", "irate", "increase", "resets")
KINDS = {"max_over_time": aggr.max, "min_over_time": aggr.min, "avg_over_time": aggr.avg}
# what may remove every sample of a result
FILTERS = ("<", ">", "<=", ">=", "==", "!=", "and", "unless", "absent", "absent_over_time")


def nodes_of(node, above=()):
    """Yield each node of an expression with the nodes above it."""
    yield node, above
    for name in ("expr", "lhs", "rhs", "param", "vector_selector"):
        child = getattr(node, name, None)
        if child is not None and not isinstance(child, str | float):
            yield from nodes_of(child, (*above, node))
    for child in getattr(node, "args", None) or ():
        yield from nodes_of(child, (*above, node))


class World:
    """The store of an expression: a measure for each metric, and series that its matchers select."""

    def __init__(self, expression):
        self.functions = collections.defaultdict(set)
        self.values = collections.defaultdict(dict)
        self.summaries = set()
        self.has_filter = self.has_quantile = False
        for node, above in nodes_of(promql_parser.parse(expression)):
            if isinstance(node, promql_parser.VectorSelector):
                self._read_selector(node, above)
            elif isinstance(node, promql_parser.Call):
                self.has_filter |= node.func.name in FILTERS
                self.has_quantile |= node.func.name == "histogram_quantile"
            elif isinstance(node, promql_parser.BinaryExpr):
                self.has_filter |= str(node.op) in FILTERS
            for labels in self._labels_of(node):
                self.values[labels].setdefault("v", None)
        for name in ("le", "quantile", "__name__", "store"):
            self.values.pop(name, None)

    @staticmethod
    def _labels_of(node):
        modifier = getattr(node, "modifier", None)
        if modifier is None:
            return []
        if isinstance(node, promql_parser.AggregateExpr):
            return modifier.labels
        return modifier.matching.labels if modifier.matching else []

    def _read_selector(self, node, above):
        name = node.name
        self.has_filter |= node.offset is not None and node.offset.total_seconds() >= AT - BEGIN
        for matcher in node.matchers.matchers:
            if matcher.name == "__name__":
                name = name or re.sub(r"[^\w:]", "", example_of(matcher.value))
                continue
            if matcher.name == "quantile":
                self.summaries.add(name)
            if matcher.op == promql_parser.MatchOp.Equal:
                self.values[matcher.name][matcher.value] = None
            elif matcher.op == promql_parser.MatchOp.Re:
                self.values[matcher.name][example_of(matcher.value)] = None
            else:
                self.values[matcher.name].setdefault("v", None)
        # This store has no buckets under the name of a recording rule, such as x_bucket:rate1m.
        self.has_filter |= "_bucket:" in (name or "")
        if name:
            calls = [call.func.name for call in above[-2:] if isinstance(call, promql_parser.Call)]
            self.functions[name].update(calls[-1:])

    def store(self):
        """Write the store: each series has an event in the middle of each window of ten seconds."""
        # The values that matchers need come first, so that the first series have all of them.
        labels = {
            label: sorted(values, key=lambda value: value == "v")[:3] or ["v"] for label, values in self.values.items()
        }
        series = list(product(*labels.values()))[:24]
        times = np.arange(BEGIN + 5, AT, 10) * 1000
        count = len(times) * len(series)
        keys = [label.replace("_", ".") for label in labels]  # distinct from names of measures, and the same label
        columns = {key: np.repeat([row[i] for row in series], len(times)) for i, key in enumerate(keys)}
        values = np.repeat(np.arange(len(series)) + 1.0, len(times))
        rows = pa.table({"_ts": np.tile(times, len(series)), "_v": values, **columns})
        assert rows.num_rows == count
        frame = TiltFrame(["10s", "1m", "10m", "1h"], "_ts", self.measures(), keys)
        return store_of(MemoryBackend(), rows, frame)

    def measures(self):
        measures = {}
        for name in sorted(self.functions, key=lambda name: not name.endswith("_bucket")):
            base = re.sub("_(bucket|count|sum)$", "", name)
            functions = self.functions[name]
            if (
                name in self.summaries
                or name.endswith("_bucket")
                or {f"{base}_sum", f"{base}_count"} <= self.functions.keys()
            ):
                measures[base] = aggr.dds("_v", [0.5, 0.75, 0.9, 0.95, 0.99])
            elif base in measures and name != base:
                continue
            elif functions & set(OF_COUNTERS) or name.endswith("_total"):
                measures[name] = aggr.sum("_v")
            else:
                measures[name] = next((KINDS[f] for f in sorted(functions) if f in KINDS), aggr.last)("_v")
        return measures or {"unused": aggr.last("_v")}

    @property
    def is_of_windows(self):
        """Whether the documentation says that this server reads windows where Prometheus reads totals or buckets."""
        measures = self.measures()
        totals = [name for name in self.functions if name not in measures or measures[name].function.name == "sum"]
        return any(not self.functions[name] & {"rate", "increase"} for name in totals)


def example_of(pattern):
    """Return a text that a regular expression matches, made from its first alternative; the pattern is a usual one."""
    first_choices = re.sub(r"\((?:\?:)?([^|()]*)[^()]*\)", r"\1", pattern)
    candidates = [re.sub(r"[()^$?:]", "", part) for part in (*first_choices.split("|"), *pattern.split("|"))]
    candidates += [re.sub(r"(?<!\.)[*+]", "", part) for part in candidates]
    candidates += [re.sub(r"\.[*+]|\.", "x", part) for part in candidates]
    candidates += [re.sub(r"\[[^\]]*\][*+]?", "a", part) for part in candidates] + ["v", "5xx", "500", "/v", ""]
    return next((text for text in candidates if re.fullmatch(pattern, text)), "v")


def difference(own, remote, is_same):
    if own.keys() != remote.keys():
        return f"series {sorted(map(sorted, own.keys() ^ remote.keys()))[:4]}"
    for labels, points in own.items():
        for at, value in points.items():
            if not is_same(value, remote[labels].get(at, math.nan)):
                return f"{sorted(labels)}: {value} here, {remote[labels].get(at)} there"
    return None


def is_close(own, remote):
    return str(own) == str(remote) or math.isclose(own, remote, rel_tol=1e-9, abs_tol=1e-9)


def is_in_same_bucket(own, remote):
    """Return whether a quantile of Prometheus, which is interpolated, is in a bucket of one of the sketch."""
    bounds = (*DEFAULT_BOUNDS.all.values(), math.inf)
    low, high = (bisect_left(bounds, own * factor) for factor in (0.98, 1.02))
    return is_close(own, remote) or low <= bisect_left(bounds, remote) <= high


def test_public_expressions_are_answered_by_both_or_prometheus(tmp_path):
    register_older_functions()
    outcomes, complaints = collections.Counter(), []
    stores = {}
    with serving(stores) as server:
        config = json.dumps({"remote_read": [{"url": f"{server.url}/api/v1/read", "read_recent": True}]})
        with prometheus(tmp_path, free_port(), config) as url:
            for number, expression in enumerate(Path(FILE).read_text().splitlines()):
                line = RESERVED_LABELS.sub(r"\1_label", expression)
                world = World(line)
                stores.clear()
                stores[f"s{number}"] = world.store()
                own, remote = ask(server.url, line, {"time": AT}), ask(url, line, {"time": AT})
                for outcome, complaint in judged(world, own, remote):
                    outcomes[outcome] += 1
                    if complaint:
                        complaints.append(f"{outcome}: {line}: {complaint}")
    print(json.dumps(outcomes, indent=1))
    assert not complaints, "\n".join(complaints)


def judged(world, own, remote):
    """Yield the outcomes of this server and of Prometheus, each with a complaint or None."""
    if isinstance(remote, str):
        yield "Prometheus refuses", None if "many-to-one" in remote else remote  # a matter of the series of the test
        return
    if remote:
        yield "Prometheus answers", None
    elif world.has_filter:
        yield "Prometheus answers with nothing, because of a filter", None
    else:
        yield "Prometheus answers with nothing", "no filter removes the samples"
    if isinstance(own, str):
        yield "refused here", None if "(docs/prometheus.md)" in own else own
    elif message := difference(own, remote, is_in_same_bucket if world.has_quantile else is_close):
        if world.is_of_windows:
            yield "differs by windows", None
        elif world.has_quantile and world.has_filter:
            yield "differs by a comparison with an estimated quantile", None
        else:
            yield "differs", message
    else:
        yield "the same here", None
