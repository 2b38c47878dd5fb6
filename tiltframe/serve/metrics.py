"""Metrics of the server itself, as Prometheus' text."""

from __future__ import annotations

import threading
from collections import Counter

_HELP = {
    "requests_total": "Requests that were answered, by route and status.",
    "request_seconds_total": "Seconds that requests took, by route.",
    "rows_read_total": "Rows of states that queries have read, about, by store.",
    "cache_hits_total": "Answers that were known already, to the server or to who asked.",
    "cache_misses_total": "Answers that were computed.",
}


class Metrics:
    """Counters, each with its labels; any thread may add to them."""

    def __init__(self) -> None:
        """Begin at nothing."""
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, tuple[tuple[str, str], ...]]] = Counter()

    def add(self, name: str, much: float = 1, **labels: str) -> None:
        """Add to a counter."""
        with self._lock:
            self._counts[name, tuple(labels.items())] += much  # type: ignore[assignment]

    def text(self) -> str:
        """Write all counters as Prometheus reads them."""
        with self._lock:
            counts = dict(self._counts)
        lines = []
        for name, sentence in _HELP.items():
            lines += [f"# HELP tiltframe_{name} {sentence}", f"# TYPE tiltframe_{name} counter"]
            for (counted, labels), much in sorted(counts.items()):
                if counted == name:
                    inner = ",".join(f'{label}="{value}"' for label, value in labels)
                    lines.append(
                        f"tiltframe_{name}{{{inner}}} {much:.17g}" if inner else f"tiltframe_{name} {much:.17g}"
                    )
        return "\n".join(lines) + "\n"
