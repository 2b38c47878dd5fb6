"""The Python port of HdrHistogram, which takes one Python call per row."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from aggr.bench.peers.sketch import Array, SketchPeer

_HIGHEST = 10**12  # the largest value that a histogram can record, in units; the package requires it in advance


class HdrHistogram(SketchPeer):
    """A histogram with the expression ``hdrhistogram(digits=3, unit=0.01)``. Values are recorded as whole multiples of
    the unit.
    """

    name = "hdrhistogram"
    package = "hdrh"
    row_limit = 50_000

    def check(self) -> None:
        """Raise an error for unknown parameters, and for a measure without quantiles."""
        self._parameters()
        self.quantiles()

    def build(self, values: Array) -> Any:
        """Return a new histogram, in which the values were recorded one by one."""
        histogram = importlib.import_module("hdrh.histogram").HdrHistogram(1, _HIGHEST, self._parameters()["digits"])
        for value in np.rint(values / self._parameters()["unit"]).astype(np.int64).tolist():
            histogram.record_value(value)
        return histogram

    def read(self, sketch: Any) -> Any:
        """Return the quantiles of the measure."""
        unit = self._parameters()["unit"]
        return [sketch.get_value_at_percentile(quantile * 100.0) * unit for quantile in self.quantiles()]

    def serialized_bytes(self, sketch: Any) -> int:
        """Return the size of the histogram in version 2 of HdrHistogram's format."""
        return len(sketch.encode())

    def _parameters(self) -> dict[str, Any]:
        return self.parameters({"digits": 3, "unit": 0.01})
