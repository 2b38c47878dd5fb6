"""The two data sets of the benchmarks that read files, and the nine functions that are computed from them."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

import aggr
from aggr import Measure
from benchmarks.quantiles import QUANTILES

X = "latency_ms"


@dataclass(frozen=True)
class DataSet:
    """A data set: its name, the possible keys of its rows, and the precision (``digits`` and ``unit``) of the measure
    hdr.
    """

    name: str
    keys: pa.Array
    digits: int
    unit: float

    @property
    def nine_measures(self) -> dict[str, Measure]:
        """The measures of the nine functions, by name: seven simple aggregates, dds and hdr."""
        seven = ("count", "min", "max", "sum", "avg", "var", "stdev")
        return {name: getattr(aggr, name)(X) for name in seven} | {
            "dds": aggr.dds(X, QUANTILES),
            "hdr": aggr.hdr(X, QUANTILES, digits=self.digits, unit=self.unit),
        }


TEXTS = DataSet("10 text keys, hdr 2 digits", pa.array([f"host-{i}" for i in range(10)]), 2, 0.01)
INTEGER_KEYS = DataSet("100 whole keys, hdr 3 digits", pa.array(range(100)), 3, 0.001)
