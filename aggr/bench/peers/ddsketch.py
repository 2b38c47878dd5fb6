"""DataDog's DDSketch package, which takes one Python call per row."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from aggr.bench.peers.sketch import Array, SketchPeer


class DDSketch(SketchPeer):
    """A sketch of DataDog's package, with the expression ``ddsketch(relative_accuracy=0.01)``."""

    name = "ddsketch"
    package = "ddsketch"
    row_limit = 50_000
    is_mergeable = True

    def check(self) -> None:
        """Raise an error for unknown parameters in the expression, and for a measure without quantiles."""
        self._accuracy  # noqa: B018, because reading it checks the expression
        self.quantiles()

    def build(self, values: Array) -> Any:
        """Return a new sketch to which the values were added one by one."""
        sketch = self._new()
        for value in values.tolist():
            sketch.add(value)
        return sketch

    def merged(self, sketches: Sequence[Any]) -> Any:
        """Return a new sketch, into which ``sketches`` were merged one by one."""
        result = self._new()
        for sketch in sketches:
            result.merge(sketch)
        return result

    def read(self, sketch: Any) -> Any:
        """Return the values of a sketch at the measure's quantiles."""
        return [sketch.get_quantile_value(quantile) for quantile in self.quantiles()]

    def serialized_bytes(self, sketch: Any) -> int:
        """Return the size of the sketch as protobuf, which omits sum, minimum and maximum."""
        proto = importlib.import_module("ddsketch.pb.proto").DDSketchProto
        return len(proto.to_proto(sketch).SerializeToString())

    def _new(self) -> Any:
        return importlib.import_module("ddsketch").DDSketch(self._accuracy)

    @cached_property
    def _accuracy(self) -> float:
        accuracy: float = self.parameters({"relative_accuracy": 0.01})["relative_accuracy"]
        return accuracy
