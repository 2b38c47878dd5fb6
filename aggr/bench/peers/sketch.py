"""Sketch packages: one sketch object per group, filled from arrays that are split by group in advance."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from aggr.arguments import shown
from aggr.bench.costs import GROUP
from aggr.bench.exact import values_of
from aggr.bench.peers.contract import Peer
from aggr.call_text import read_call, read_value

Array = np.ndarray[Any, Any]


class SketchPeer(Peer):
    """A peer with one sketch object per group.

    Its expression is ``NAME`` or ``NAME(parameter=value, …)``. The column and the quantiles are those of the measure.
    """

    @abstractmethod
    def build(self, values: Array) -> Any:
        """Return a new sketch with the values of one group."""

    @abstractmethod
    def read(self, sketch: Any) -> Any:
        """Return the result of one sketch: a number, or a list in the order of the measure's quantiles."""

    def prepare(self, rows: pa.Table, group_count: int) -> Callable[[], Any]:
        """Split the values into one array per group, and return the call that builds and reads one sketch per group."""
        values = values_of(self.measure, rows)
        if len(values) != len(rows):
            raise ValueError(f"{self}: the column has nulls, which this peer cannot process; drop the rows with nulls")
        ids = rows.column(GROUP).to_numpy()
        order = np.argsort(ids, kind="stable")
        group_ends = np.cumsum(np.bincount(ids, minlength=group_count))
        arrays = np.split(values.to_numpy(zero_copy_only=False)[order], group_ends[:-1])
        return lambda: [self.read(self.build(array)) for array in arrays if len(array)]

    def results(self, answer: Any) -> Sequence[Any]:
        """Return the results, which are already ordered by group."""
        results: list[Any] = answer
        return results

    def state_bytes(self, values: pa.Array) -> int | None:
        """Return the number of bytes of a serialized sketch of ``values``."""
        writable = np.array(values.to_numpy(zero_copy_only=False))  # some packages reject read-only arrays
        return self.serialized_bytes(self.build(writable))

    @abstractmethod
    def serialized_bytes(self, sketch: Any) -> int:
        """Return the number of bytes of a sketch after serialization."""

    def quantiles(self) -> Sequence[float]:
        """Return the quantiles of the measure; raises ``ValueError`` if it has no quantiles."""
        quantiles: Sequence[float] = getattr(self.measure.function, "quantiles", ())
        if not quantiles:
            raise ValueError(
                f"{self} computes quantiles; compare it with a measure that returns quantiles, not with {self.measure}"
            )
        return quantiles

    def parameters(self, allowed: Mapping[str, Any]) -> dict[str, Any]:
        """Read the parameters of the expression.

        Parameters
        ----------
        allowed : mapping from name to default value

        Returns
        -------
        dict
            The allowed names, each with the value in the expression or with its default.

        Raises
        ------
        ValueError
            If the expression is not a call with these parameters.
        """
        call = read_call(self.expression, name_alone=True)
        form = f"{self.name}:NAME or {self.name}:NAME({', '.join(f'{n}={v}' for n, v in allowed.items())})"
        if call is None:
            raise ValueError(f"cannot read {shown(str(self))} as a peer; write {form}")
        parameters = dict(allowed)
        for name, text in call.arguments:
            if name is None or name not in allowed:
                raise ValueError(f"{shown(str(self))} has an unknown argument {shown(name or text)}; write {form}")
            parameters[name] = read_value(text)
        return parameters

    def sketch_name(self) -> str:
        """Return the name of the sketch in the expression, such as ``kll``."""
        call = read_call(self.expression, name_alone=True)
        return self.expression if call is None else call.name
