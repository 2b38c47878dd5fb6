"""Prometheus' text format, in which the server and streams return their counters and gauges."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def metric_lines(name: str, *, help: str, kind: str, samples: Iterable[tuple[Mapping[str, str], float]]) -> list[str]:
    r"""Return a metric in the text format 0.0.4, as a list of lines: HELP, TYPE, and one line per sample.

    ``kind`` is the type of the metric, such as ``counter``. Each element of ``samples`` is a pair: a mapping from
    the names of labels to their values, and a number.

    >>> print("\n".join(metric_lines("n", help="Rows.", kind="counter", samples=[({"input": 'a"b'}, 2.0)])))
    # HELP n Rows.
    # TYPE n counter
    n{input="a\"b"} 2
    """
    lines = [f"# HELP {name} {help}", f"# TYPE {name} {kind}"]
    for labels, value in samples:
        inner = ",".join(f'{label}="{_escape(text)}"' for label, text in labels.items())
        labels_text = f"{{{inner}}}" if inner else ""
        lines.append(f"{name}{labels_text} {value:.17g}")
    return lines


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
