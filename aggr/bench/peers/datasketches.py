"""Apache DataSketches: KLL, REQ and t-digest for quantiles, Theta and HLL for distinct counts."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from aggr.arguments import nearest, shown
from aggr.bench.peers.sketch import Array, SketchPeer

_QUANTILES = {"kll": ("kll_doubles_sketch", 200), "req": ("req_floats_sketch", 12), "tdigest": ("tdigest_double", 200)}
_DISTINCT = {"theta": ("update_theta_sketch", 12), "hll": ("hll_sketch", 12)}
_UNIONS = {"theta": "theta_union", "hll": "hll_union"}
_SIZES = {"kll": "k", "req": "k", "tdigest": "k", "theta": "lg_k", "hll": "lg_k"}


class DataSketches(SketchPeer):
    """A sketch of Apache DataSketches: ``kll``, ``req``, ``tdigest``, ``theta`` or ``hll``, such as ``kll(k=200)``."""

    name = "datasketches"
    package = "datasketches"
    is_mergeable = True

    def check(self) -> None:
        """Raise an error for an unknown sketch or parameter in the expression.

        Also raise an error if the sketch computes quantiles, and the measure has no quantiles.
        """
        name = self.sketch_name()
        if name not in _SIZES:
            raise ValueError(f"unknown sketch {shown(name)} of datasketches; {nearest(name, _SIZES)}")
        self.parameters({_SIZES[name]: self._default_size()})
        if name in _QUANTILES:
            self.quantiles()

    def build(self, values: Array) -> Any:
        """Return a new sketch, updated with an array."""
        name = self.sketch_name()
        sketch = self._new((_QUANTILES | _DISTINCT)[name][0])
        if name in _QUANTILES:
            # The package has REQ sketches of single precision only.
            sketch.update(values.astype(np.float32 if name == "req" else np.float64, copy=False))
            if name == "tdigest":
                # The buffered values are processed here, because this time belongs to building, not to reading.
                sketch.compress()
            return sketch
        for value in values.tolist():
            sketch.update(value)
        return sketch

    def merged(self, sketches: Sequence[Any]) -> Any:
        """Return a new sketch, merged from ``sketches``."""
        name = self.sketch_name()
        if name in _DISTINCT:
            union = self._new(_UNIONS[name])
            for sketch in sketches:
                union.update(sketch)
            return union.get_result()
        result = self._new(_QUANTILES[name][0])
        for sketch in sketches:
            result.merge(sketch)
        if name == "tdigest":
            result.compress()
        return result

    def read(self, sketch: Any) -> Any:
        """Return the values at the measure's quantiles, or the estimated number of distinct values."""
        if self.sketch_name() in _DISTINCT:
            return sketch.get_estimate()
        return [float(sketch.get_quantile(quantile)) for quantile in self.quantiles()]

    def serialized_bytes(self, sketch: Any) -> int:
        """Return the size of the sketch in the package's compact form."""
        name = self.sketch_name()
        if name == "theta":
            return len(sketch.compact().serialize())
        return len(sketch.serialize_compact() if name == "hll" else sketch.serialize())

    def _new(self, class_name: str) -> Any:
        """Return a new object of the class ``class_name``. The expression determines its size."""
        return getattr(importlib.import_module("datasketches"), class_name)(self._size)

    @cached_property
    def _size(self) -> int:
        name = _SIZES[self.sketch_name()]
        size: int = self.parameters({name: self._default_size()})[name]
        return size

    def _default_size(self) -> int:
        return (_QUANTILES | _DISTINCT)[self.sketch_name()][1]
