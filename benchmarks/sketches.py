"""Sketches: ours and those of other packages, behind one face: build, merge, serialize, ask."""

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

ACCURACY = 0.01  # α of every sketch that promises a relative accuracy
UNIT, DIGITS = 0.01, 2  # of every HdrHistogram: about as accurate


@dataclass(frozen=True)
class Promise:
    """How far an answer may lie from the true one: in value, relatively, or in rank, as a share of all ranks.

    Promises of rank hold with high probability only, so that they are set loosely here.

    Parameters
    ----------
    relative, rank : float or None
        One of the two.
    neighbours : int
        How many ranks an own convention of the rank may differ by from ``floor(q·(n − 1))``.
    absolute : float
        What rounding to units adds to the relative error of the value.
    """

    relative: float | None = None
    rank: float | None = None
    neighbours: int = 0
    absolute: float = 0.0


BY_ACCURACY = Promise(relative=ACCURACY)
BY_DIGITS = Promise(relative=10.0**-DIGITS, neighbours=1, absolute=UNIT / 2)


class Sketch(ABC):
    """A quantile sketch of doubles."""

    name: str
    package: str
    promise: Promise
    row_at_a_time = False  # one Python call a row: timed on fewer rows

    @abstractmethod
    def build(self, values: Floats) -> Any:
        """Make the sketch of some values."""

    @abstractmethod
    def merge(self, sketches: Sequence[Any]) -> Any:
        """Merge sketches into a new one, without changing them."""

    @abstractmethod
    def size(self, sketch: Any) -> int:
        """Count the bytes it is stored in."""

    @abstractmethod
    def quantiles(self, sketch: Any, quantiles: Sequence[float]) -> list[float]:
        """Ask for quantiles."""


class Ours(Sketch):
    """A function of ours; its sketch is a column of one state."""

    package = "tiltframe"

    def __init__(self, function: aggr.Dds | aggr.Hdr, promise: Promise) -> None:
        """Take a function and what it promises."""
        self.name, self.function, self.promise = function.name, function, promise

    def build(self, values: Floats) -> pa.StructArray:
        """Reduce to one state."""
        return self.function.reduce(pa.array(values), Groups.single(len(values)))

    def merge(self, sketches: Sequence[pa.StructArray]) -> pa.StructArray:
        """Merge to one state."""
        return self.function.merge(pa.concat_arrays(sketches), Groups.single(len(sketches)))

    def size(self, sketch: pa.StructArray) -> int:
        """Count the bytes of the Arrow buffers: values, offsets and null bits of every field."""
        return int(sketch.nbytes)

    def quantiles(self, sketch: pa.StructArray, quantiles: Sequence[float]) -> list[float]:
        """Finish with other quantiles than those of the function."""
        asking = type(self.function)(tuple(quantiles), **self._shape())
        return [float(value) for value in asking.finish(sketch)[0].as_py()["quantiles"].values()]

    def _shape(self) -> dict[str, Any]:
        return {name: getattr(self.function, name) for name in self.function.own_state.parameters}


class DDSketchPackage(Sketch):
    """DataDog's package: one ``add`` a row, stored as its protobuf."""

    name, package, promise, row_at_a_time = "ddsketch", "ddsketch", BY_ACCURACY, True

    def build(self, values: Floats) -> Any:
        """Add row after row."""
        sketch = DDSketch(ACCURACY)
        add = sketch.add
        for value in values.tolist():
            add(value)
        return sketch

    def merge(self, sketches: Sequence[Any]) -> Any:
        """Merge one after the other into a new one."""
        merged = DDSketch(ACCURACY)
        for sketch in sketches:
            merged.merge(sketch)
        return merged

    def size(self, sketch: Any) -> int:
        """Serialize as protobuf, which leaves out sum, min and max."""
        return len(protobuf(sketch).SerializeToString())

    def quantiles(self, sketch: Any, quantiles: Sequence[float]) -> list[float]:
        """Ask one by one."""
        return [sketch.get_quantile_value(q) for q in quantiles]


class HdrHistogramPackage(Sketch):
    """The port of HdrHistogram to Python: one ``record_value`` a row, stored as compressed base64."""

    name, package, promise, row_at_a_time = "hdrhistogram", "hdrhistogram", BY_DIGITS, True
    highest = 10**11  # in units; the package needs it in advance

    def build(self, values: Floats) -> Any:
        """Record row after row, in units."""
        histogram = HdrHistogram(1, self.highest, DIGITS)
        record = histogram.record_value
        for value in np.rint(values / UNIT).astype(np.int64).tolist():
            record(value)
        return histogram

    def merge(self, sketches: Sequence[Any]) -> Any:
        """Add one after the other to a new one."""
        merged = HdrHistogram(1, self.highest, DIGITS)
        for sketch in sketches:
            merged.add(sketch)
        return merged

    def size(self, sketch: Any) -> int:
        """Encode as V2."""
        return len(sketch.encode())

    def quantiles(self, sketch: Any, quantiles: Sequence[float]) -> list[float]:
        """Ask one by one."""
        return [sketch.get_value_at_percentile(q * 100.0) * UNIT for q in quantiles]


class Apache(Sketch):
    """A sketch of Apache DataSketches with its default size: updated with whole arrays."""

    package = "datasketches"

    def __init__(self, name: str, kind: str, rank: float, dtype: type[np.floating[Any]] = np.float64) -> None:
        """Take a class by its name there, and the error of rank to allow."""
        self.name, self.promise, self._dtype = name, Promise(rank=rank), dtype
        self._new = getattr(importlib.import_module("datasketches"), kind)

    def build(self, values: Floats) -> Any:
        """Update with the array."""
        sketch = self._new()
        sketch.update(values.astype(self._dtype, copy=False))
        if hasattr(sketch, "compress"):  # t-digest would only have buffered the values, and sort them when asked
            sketch.compress()
        return sketch

    def merge(self, sketches: Sequence[Any]) -> Any:
        """Merge one after the other into a new one."""
        merged = self._new()
        for sketch in sketches:
            merged.merge(sketch)
        return merged

    def size(self, sketch: Any) -> int:
        """Serialize."""
        return len(sketch.serialize())

    def quantiles(self, sketch: Any, quantiles: Sequence[float]) -> list[float]:
        """Ask one by one."""
        return [float(sketch.get_quantile(q)) for q in quantiles]


def protobuf(sketch: Any) -> Any:
    """Write a sketch of the ddsketch package as its protobuf message."""
    write: Any = DDSketchProto.to_proto
    return write(sketch)


def dds() -> Ours:
    """Our DDSketch."""
    return Ours(aggr.Dds(relative_accuracy=ACCURACY), BY_ACCURACY)


def hdr() -> Ours:
    """Our HdrHistogram."""
    return Ours(aggr.Hdr(digits=DIGITS, unit=UNIT), BY_DIGITS)


def other_sketches() -> list[Sketch]:
    """All sketches of other packages that are installed."""
    available: list[Sketch] = [DDSketchPackage(), HdrHistogramPackage()]
    if importlib.util.find_spec("datasketches"):
        available += [
            Apache("KLL", "kll_doubles_sketch", rank=0.03),
            Apache("t-digest", "tdigest_double", rank=0.02),
            Apache("REQ", "req_floats_sketch", rank=0.03, dtype=np.float32),
        ]
    return available
