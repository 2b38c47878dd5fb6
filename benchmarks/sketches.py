"""Quantile sketches of tiltframe and other packages, with one interface: build, merge, size and quantiles."""

from __future__ import annotations

import importlib
import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from ddsketch import DDSketch
from ddsketch.pb.proto import DDSketchProto
from hdrh.histogram import HdrHistogram

import aggr
from aggr.groups.groups import Groups
from benchmarks.samples import Floats

ACCURACY = 0.01  # the relative accuracy of all sketches that have this parameter
UNIT, DIGITS = 0.01, 2  # the unit and digits of all HdrHistograms, which are then about as accurate as `ACCURACY`


@dataclass(frozen=True)
class Promise:
    """The promised maximum error of a quantile: a relative error of the value, or an error of the rank as a fraction of
    all ranks.

    Errors of ranks are promised only with high probability, so generous limits are set here.

    Parameters
    ----------
    relative, rank : float or None
        The maximum error. Pass one of the two; the other stays None.
    neighbours : int
        The number of ranks by which the package's definition of a quantile may differ from ``floor(q·(n − 1))``.
    absolute : float
        The absolute error from rounding values to units, in addition to the relative error.
    """

    relative: float | None = None
    rank: float | None = None
    neighbours: int = 0
    absolute: float = 0.0


BY_ACCURACY = Promise(relative=ACCURACY)
BY_DIGITS = Promise(relative=10.0**-DIGITS, neighbours=1, absolute=UNIT / 2)


class Sketch(ABC):
    """A kind of quantile sketch of doubles, with its promised error."""

    name: str
    package: str
    promise: Promise
    row_at_a_time = False  # whether each row needs a Python call; such sketches are timed with fewer rows

    @abstractmethod
    def build(self, values: Floats) -> Any:
        """Return a sketch of values."""

    @abstractmethod
    def merge(self, sketches: Sequence[Any]) -> Any:
        """Return a new sketch, merged from ``sketches``, which are not changed."""

    @abstractmethod
    def size(self, sketch: Any) -> int:
        """Return the number of bytes of a stored sketch."""

    @abstractmethod
    def quantiles(self, sketch: Any, quantiles: Sequence[float]) -> list[float]:
        """Return the quantiles of a sketch for the fractions ``quantiles``."""


class Ours(Sketch):
    """A function of tiltframe. Its sketch is a column of one state."""

    package = "tiltframe"

    def __init__(self, function: aggr.Dds | aggr.Hdr, promise: Promise) -> None:
        """Store a function and its promised error."""
        self.name, self.function, self.promise = function.name, function, promise

    def build(self, values: Floats) -> pa.StructArray:
        """Reduce the values to one state."""
        return self.function.reduce(pa.array(values), Groups.single(len(values)))

    def merge(self, sketches: Sequence[pa.StructArray]) -> pa.StructArray:
        """Merge the states into one."""
        return self.function.merge(pa.concat_arrays(sketches), Groups.single(len(sketches)))

    def size(self, sketch: pa.StructArray) -> int:
        """Return the number of bytes of the Arrow buffers, including offsets and null bits."""
        return int(sketch.nbytes)

    def quantiles(self, sketch: pa.StructArray, quantiles: Sequence[float]) -> list[float]:
        """Return the requested quantiles of a state, which may be other quantiles than those of the function."""
        asking = type(self.function)(tuple(quantiles), **self._shape())
        return [float(value) for value in asking.finish(sketch)[0].as_py()["quantiles"].values()]

    def _shape(self) -> dict[str, Any]:
        return {name: getattr(self.function, name) for name in self.function.own_state.parameters}


class DDSketchPackage(Sketch):
    """DataDog's package. Each row is one call of ``add``, and a sketch is stored as protobuf."""

    name, package, promise, row_at_a_time = "ddsketch", "ddsketch", BY_ACCURACY, True

    def build(self, values: Floats) -> Any:
        """Add the values one by one."""
        sketch = DDSketch(ACCURACY)
        add = sketch.add
        for value in values.tolist():
            add(value)
        return sketch

    def merge(self, sketches: Sequence[Any]) -> Any:
        """Merge the sketches one by one into a new sketch."""
        merged = DDSketch(ACCURACY)
        for sketch in sketches:
            merged.merge(sketch)
        return merged

    def size(self, sketch: Any) -> int:
        """Return the number of bytes of the protobuf message, which does not contain sum, min and max."""
        return len(protobuf(sketch).SerializeToString())

    def quantiles(self, sketch: Any, quantiles: Sequence[float]) -> list[float]:
        """Return the quantiles, with one call of the package per quantile."""
        return [sketch.get_quantile_value(q) for q in quantiles]


class HdrHistogramPackage(Sketch):
    """The Python port of HdrHistogram. Each row is one call of ``record_value``, and a sketch is stored as compressed
    base64.
    """

    name, package, promise, row_at_a_time = "hdrhistogram", "hdrhistogram", BY_DIGITS, True
    highest = 10**11  # the largest value in units, which the package must know in advance

    def build(self, values: Floats) -> Any:
        """Record the values one by one, rounded to units."""
        histogram = HdrHistogram(1, self.highest, DIGITS)
        record = histogram.record_value
        for value in np.rint(values / UNIT).astype(np.int64).tolist():
            record(value)
        return histogram

    def merge(self, sketches: Sequence[Any]) -> Any:
        """Add the sketches one by one to a new sketch."""
        merged = HdrHistogram(1, self.highest, DIGITS)
        for sketch in sketches:
            merged.add(sketch)
        return merged

    def size(self, sketch: Any) -> int:
        """Return the number of bytes in the encoding V2, compressed and as base64."""
        return len(sketch.encode())

    def quantiles(self, sketch: Any, quantiles: Sequence[float]) -> list[float]:
        """Return the quantiles, with one call of the package per quantile."""
        return [sketch.get_value_at_percentile(q * 100.0) * UNIT for q in quantiles]


class Apache(Sketch):
    """A sketch of Apache DataSketches with its default size. It is updated with whole arrays."""

    package = "datasketches"

    def __init__(self, name: str, kind: str, rank: float, dtype: type[np.floating[Any]] = np.float64) -> None:
        """Find the class ``kind`` of the package, and store the allowed error of ranks."""
        self.name, self.promise, self._dtype = name, Promise(rank=rank), dtype
        self._new = getattr(importlib.import_module("datasketches"), kind)

    def build(self, values: Floats) -> Any:
        """Update a new sketch with the array."""
        sketch = self._new()
        sketch.update(values.astype(self._dtype, copy=False))
        # Without this call, t-digest would only buffer the values, and sort them at the first query.
        if hasattr(sketch, "compress"):
            sketch.compress()
        return sketch

    def merge(self, sketches: Sequence[Any]) -> Any:
        """Merge the sketches one by one into a new sketch."""
        merged = self._new()
        for sketch in sketches:
            merged.merge(sketch)
        return merged

    def size(self, sketch: Any) -> int:
        """Return the number of serialized bytes."""
        return len(sketch.serialize())

    def quantiles(self, sketch: Any, quantiles: Sequence[float]) -> list[float]:
        """Return the quantiles, with one call of the package per quantile."""
        return [float(sketch.get_quantile(q)) for q in quantiles]


def protobuf(sketch: Any) -> Any:
    """Return the protobuf message of a sketch of the package ddsketch."""
    write: Any = DDSketchProto.to_proto
    return write(sketch)


def dds() -> Ours:
    """Return tiltframe's DDSketch."""
    return Ours(aggr.Dds(relative_accuracy=ACCURACY), BY_ACCURACY)


def hdr() -> Ours:
    """Return tiltframe's HdrHistogram."""
    return Ours(aggr.Hdr(digits=DIGITS, unit=UNIT), BY_DIGITS)


def other_sketches() -> list[Sketch]:
    """Return the sketches of the other packages that are installed."""
    available: list[Sketch] = [DDSketchPackage(), HdrHistogramPackage()]
    if importlib.util.find_spec("datasketches"):
        available += [
            Apache("KLL", "kll_doubles_sketch", rank=0.03),
            Apache("t-digest", "tdigest_double", rank=0.02),
            Apache("REQ", "req_floats_sketch", rank=0.03, dtype=np.float32),
        ]
    return available
