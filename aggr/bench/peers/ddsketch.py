"""DataDog's DDSketch package, which takes one Python call per row."""

from __future__ import annotations

import importlib
from typing import Any

from aggr.bench.peers.sketch import Array, SketchPeer


class DDSketch(SketchPeer):
    """A sketch of DataDog's package, with the expression ``ddsketch(relative_accuracy=0.01)``."""

    name = "ddsketch"
    package = "ddsketch"
    row_limit = 50_000

    def check(self) -> None:
        """Raise an error for unknown parameters, and for a measure without quantiles."""
        self.parameters({"relative_accuracy": 0.01})
        self.quantiles()

    def build(self, values: Array) -> Any:
        """Return a new sketch to which the values were added one by one."""
        accuracy = self.parameters({"relative_accuracy": 0.01})["relative_accuracy"]
        sketch = importlib.import_module("ddsketch").DDSketch(accuracy)
        for value in values.tolist():
            sketch.add(value)
        return sketch

    def read(self, sketch: Any) -> Any:
        """Return the quantiles of the measure."""
        return [sketch.get_quantile_value(quantile) for quantile in self.quantiles()]

    def serialized_bytes(self, sketch: Any) -> int:
        """Return the size of the sketch as protobuf, which omits sum, minimum and maximum."""
        proto = importlib.import_module("ddsketch.pb.proto").DDSketchProto
        return len(proto.to_proto(sketch).SerializeToString())
