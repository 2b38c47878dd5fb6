"""The Python port of HdrHistogram, which takes one Python call per row."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import cached_property
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
    is_mergeable = True

    def check(self) -> None:
        """Raise an error for unknown parameters in the expression, and for a measure without quantiles."""
        self._settings  # noqa: B018, because reading them checks the expression
        self.quantiles()

    def build(self, values: Array) -> Any:
        """Return a new histogram, in which the values were recorded one by one."""
        histogram = self._new()
        for value in np.rint(values / self._settings["unit"]).astype(np.int64).tolist():
            histogram.record_value(value)
        return histogram

    def merged(self, sketches: Sequence[Any]) -> Any:
        """Return a new histogram, to which ``sketches`` were added one by one."""
        result = self._new()
        for histogram in sketches:
            result.add(histogram)
        return result

    def read(self, sketch: Any) -> Any:
        """Return the values of a histogram at the measure's quantiles."""
        unit = self._settings["unit"]
        return [sketch.get_value_at_percentile(quantile * 100.0) * unit for quantile in self.quantiles()]

    def serialized_bytes(self, sketch: Any) -> int:
        """Return the size of the histogram in version 2 of HdrHistogram's format."""
        return len(sketch.encode())

    def _new(self) -> Any:
        return importlib.import_module("hdrh.histogram").HdrHistogram(1, _HIGHEST, self._settings["digits"])

    @cached_property
    def _settings(self) -> dict[str, Any]:
        return self.parameters({"digits": 3, "unit": 0.01})
