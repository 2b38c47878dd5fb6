"""The contract of a function: zero, reduce, merge, finish, over columns of states.

A state is one row of an Arrow struct column. A function names the fields of its state and how each is merged
(`aggr.fields`), and writes two methods: one from values to fields, one from fields to results. Everything
else is derived here, once: the merge, the identity, the types, the version and the parameters that travel in
every state, and the checks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aggr.fields import Field
from aggr.groups import Groups
from aggr.plain import plain

_MOST_ROWS = 1 << 24  # exact sums keep int64 headroom for this many rows at once


@dataclass(frozen=True)
class Function(ABC):
    """A mergeable aggregate function; a frozen dataclass whose fields are its parameters.

    Class attributes that a function sets
    -------------------------------------
    name : the word it is called by
    keeps, returns, guarantee : a few words each, for people
    shape : parameter name -> Arrow type, of the parameters that shape the state and so travel in it; the
        others only read
    covers : names of functions whose states this one's state contains, for the same column
    timed : whether it takes events, structs of value and time
    version : of the state's layout

    Guarantee
    ---------
    ``merge`` gives the state that ``reduce`` gives for the merged rows, to the bit, whatever the order or tree.
    `aggr.laws.check` proves it for a function of yours.
    """

    name: ClassVar[str]
    keeps: ClassVar[str]
    returns: ClassVar[str]
    guarantee: ClassVar[str]
    shape: ClassVar[Mapping[str, pa.DataType]] = {}
    covers: ClassVar[frozenset[str]] = frozenset()
    timed: ClassVar[bool] = False
    version: ClassVar[int] = 1

    # What a function writes.

    @property
    @abstractmethod
    def merges(self) -> Mapping[str, Field]:
        """Name the fields of the state, each with the operation that merges it."""

    @abstractmethod
    def _reduce(self, values: pa.Array, groups: Groups) -> Mapping[str, pa.Array]:
        """Reduce values, none null, to the fields of one state per group."""

    @abstractmethod
    def _finish(self, states: pa.StructArray) -> pa.Array:
        """Read one result per state, none null; never change a state. Nothing to read from: null."""

    def check_input(self, kind: pa.DataType) -> None:
        """Raise ``TypeError`` for a type of input that the function does not take; by default it takes any."""
        return

    def drop_null(self, values: pa.Array, groups: Groups) -> tuple[pa.Array, Groups]:
        """Leave out the rows that do not count: those that are null."""
        if not values.null_count:
            return values, groups
        return values.drop_null(), groups.where(values.is_valid().to_numpy(zero_copy_only=False))

    # What every function has.

    def zero(self, n: int, input_type: pa.DataType) -> pa.StructArray:
        """Make ``n`` identity states for inputs of a type."""
        return self.reduce(pa.array([], input_type), Groups.of([], n))

    def reduce(self, values: pa.Array, groups: Groups) -> pa.StructArray:
        """Reduce grouped rows to one state per group.

        Parameters
        ----------
        values : array, shape (rows,)
            Nulls are skipped.
        groups : Groups
            As many rows as ``values``.

        Returns
        -------
        column of states, shape (groups.n,)

        Raises
        ------
        TypeError
            If the function does not take this type.
        ValueError
            If a value is refused by name, or the lengths differ.
        """
        values = plain(values)
        if len(values) != len(groups):
            raise ValueError(f"{self.name}: {len(values)} values for {len(groups)} group ids")
        self.check_input(values.type)
        if len(values) > _MOST_ROWS:
            starts = range(0, len(values), _MOST_ROWS)
            slices = [slice(start, start + _MOST_ROWS) for start in starts]
            parts = [self.reduce(values[s], Groups(groups.ids[s], groups.n)) for s in slices]
            return self.merge(pa.concat_arrays(parts), Groups(np.tile(np.arange(groups.n), len(parts)), groups.n))
        return self._pack(self._reduce(*self.drop_null(values, groups)), groups.n)

    def merge(self, states: pa.StructArray, groups: Groups) -> pa.StructArray:
        """Merge grouped states into one state per group; null states count as identities.

        Raises ``ValueError`` for states of another function, of unequal parameters, or of a newer version.
        """
        states = plain(states)
        if len(states) != len(groups):
            raise ValueError(f"{self.name}: {len(states)} states for {len(groups)} group ids")
        if states.null_count:
            groups = groups.where(states.is_valid().to_numpy(zero_copy_only=False))
            states = states.drop_null()
        self.check_states(states)
        if len(states) == groups.n and self._is_current(states) and (groups.counts() == 1).all():
            in_order = (np.diff(groups.ids) > 0).all()
            return states if in_order else states.take(pa.array(np.argsort(groups.ids)))
        return self._merge(states, groups)

    def _merge(self, states: pa.StructArray, groups: Groups) -> pa.StructArray:
        merged = {name: field.merge(states.field(name), groups) for name, field in self.merges.items()}
        return self._pack(merged, groups.n)

    def _is_current(self, states: pa.StructArray) -> bool:
        """Say whether all states have the layout of this release, so that one alone is its own merge."""
        if states.type != _merged_type(self, states.type):
            return False
        versions = states.field("version")
        return pc.all(pc.equal(versions, pa.scalar(self.version, versions.type))).as_py() is not False

    def finish(self, states: pa.StructArray) -> pa.Array:
        """Read one result per state; a null state gives null. The states stay as they are."""
        states = plain(states)
        kept = states.drop_null() if states.null_count else states
        self.check_states(kept)
        if kept is states:
            return self._finish(states)
        valid = states.is_valid().to_numpy(zero_copy_only=False)
        rows = np.where(valid, np.cumsum(valid) - 1, -1)
        return self._finish(kept).take(pa.array(rows, mask=~valid))

    def state_type(self, input_type: pa.DataType) -> pa.StructType:
        """Return the type of the states for inputs of a type."""
        return self.zero(0, input_type).type

    def result_type(self, state_type: pa.StructType) -> pa.DataType:
        """Return the type of the results for states of a type."""
        return self.finish(pa.array([], state_type)).type

    def state(self) -> Self:
        """Return the function that keeps this one's state: the same, with whatever only reads at its default."""
        reading = {f.name: f.default for f in fields(self) if f.name not in self.shape}
        return replace(self, **reading)

    def parameters(self) -> dict[str, Any]:
        """Return the parameters by name."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def check_states(self, states: pa.StructArray) -> None:
        """Raise ``ValueError`` unless this function can merge and finish these states, none of them null."""
        kind = states.type
        missing = [
            name
            for name in ("version", *self.shape, *self.merges)
            if not pa.types.is_struct(kind) or kind.get_field_index(name) < 0
        ]
        if missing:
            raise ValueError(f"these are not states of {self.name}: no field {missing[0]!r} in {kind}")
        newest = pc.max(states.field("version")).as_py()
        if newest is not None and newest > self.version:
            raise ValueError(
                f"a {self.name} state has version {newest}, and this release reads up to {self.version}; "
                "upgrade tiltframe"
            )
        for name in self.shape:
            mine = getattr(self, name)
            for given in pc.unique(states.field(name)).to_pylist():
                if given != mine:
                    raise ValueError(
                        f"states of {self.name} with {name}={given} cannot be merged or read as {name}={mine}; "
                        f"use the same {name} everywhere"
                    )

    def _pack(self, parts: Mapping[str, pa.Array], n: int) -> pa.StructArray:
        columns = {"version": pa.array(np.full(n, self.version, np.int8))}
        for name, kind in self.shape.items():
            columns[name] = pa.repeat(pa.scalar(getattr(self, name), kind), n)
        columns |= {name: parts[name] for name in self.merges}
        return pa.StructArray.from_arrays(list(columns.values()), names=list(columns))


@lru_cache(maxsize=512)
def _merged_type(function: Function, kind: pa.StructType) -> pa.DataType:
    """Return the type that states of a type have once merged."""
    return function._merge(pa.array([], kind), Groups.of([], 0)).type


def refuse(function: Function, kind: pa.DataType, takes: str, hint: str = "") -> TypeError:
    """Say which input a function does not take, which it does, and what to do."""
    return TypeError(f"{function.name} cannot take a column of type {kind}; it takes {takes}{hint}")
