"""Sketch packages: one sketch object per group, filled from arrays that are split by group in advance."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from aggr.arguments import shown
from aggr.bench.costs import GROUP, PARTS, Operation
from aggr.bench.exact import values_of
from aggr.bench.peers.contract import Peer
from aggr.call_text import Call, read_call, read_value

Array = np.ndarray[Any, Any]


class SketchPeer(Peer):
    """A peer with one sketch object per group.

    Its expression is ``NAME`` or ``NAME(parameter=value, …)``. The column and the quantiles are those of the measure.

    Class attributes
    ----------------
    is_mergeable : bool
        Whether the class implements `merged`, so that merging is timed.
    """

    is_mergeable: ClassVar[bool] = False

    @abstractmethod
    def build(self, values: Array) -> Any:
        """Return a new sketch with the values of one group."""

    @abstractmethod
    def read(self, sketch: Any) -> Any:
        """Return the result of one sketch: a number, or a list in the order of the measure's quantiles."""

    def merged(self, sketches: Sequence[Any]) -> Any:
        """Return a new sketch with the values of ``sketches``, which are not changed."""
        raise NotImplementedError(f"{self} does not merge sketches")

    def prepare(self, rows: pa.Table, group_count: int) -> Callable[[], Any]:
        """Split the values into one array per group, and return the call that builds and reads one sketch per group."""
        arrays = self._arrays(rows, group_count)
        return lambda: [self.read(self.build(array)) for array in arrays]

    def stages(self, rows: pa.Table, group_count: int) -> list[Operation]:
        """Return the operations that build one sketch per group, merge `PARTS` sketches per group, and read one sketch
        per group.
        """
        arrays = self._arrays(rows, group_count)
        sketches = [self.build(array) for array in arrays]
        operations = [
            Operation("reduce", unit="row", count=len(rows), call=lambda: [self.build(array) for array in arrays]),
            Operation("finish", unit="state", count=len(sketches), call=lambda: [self.read(s) for s in sketches]),
        ]
        if self.is_mergeable:
            parts = [[self.build(part) for part in np.array_split(array, PARTS) if len(part)] for array in arrays]
            part_count = sum(map(len, parts))
            merge = Operation("merge", unit="state", count=part_count, call=lambda: [self.merged(p) for p in parts])
            operations.append(merge)
        return operations

    def _arrays(self, rows: pa.Table, group_count: int) -> list[Array]:
        """Return the values of each group that has rows. Raise ``ValueError`` if the column has nulls."""
        values = values_of(self.measure, rows)
        if len(values) != len(rows):
            raise ValueError(f"{self}: the column has nulls, which this peer cannot process; drop the rows with nulls")
        ids = rows.column(GROUP).to_numpy()
        order = np.argsort(ids, kind="stable")
        group_ends = np.cumsum(np.bincount(ids, minlength=group_count))
        arrays = np.split(values.to_numpy(zero_copy_only=False)[order], group_ends[:-1])
        return [array for array in arrays if len(array)]

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
        call = self._call
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
        return self.expression if self._call is None else self._call.name

    @cached_property  # cached, because `build` uses the parsed expression for every group
    def _call(self) -> Call | None:
        return read_call(self.expression, allows_bare_name=True)
