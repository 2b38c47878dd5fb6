"""The tilt frame: a chain of window levels over the same keys and measures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from aggr import Measure, from_description
from aggr.keyed import check_rows, columns_read, states_fields
from aggr.plan import StateColumn, plan
from windows import Window, window

LEVEL, START, END = "level", "window_start", "window_end"
INSTANT = pa.timestamp("us", "UTC")


@dataclass(frozen=True, init=False, eq=False)
class TiltFrame:
    """A chain of windows, from fine to coarse, over named measures.

    Parameters
    ----------
    levels : window sizes, from the finest to the coarsest
        Each must be made of whole windows of the one before: ``["10s", "1m", "10m", "1h"]``.
    time : str
        The column of event times: timestamps (naive ones are UTC), dates, ISO 8601 strings, or whole numbers,
        which are Unix milliseconds.
    measures : name -> measure
        As made by `aggr.count`, `aggr.dds` and the others.
    keys : column names
        Windows are kept per key. Null is a legal key.
    timezone : str
        The IANA zone that the windows are aligned in.

    Raises
    ------
    ValueError
        If the levels do not nest, a name is taken twice or reserved, or the zone is unknown.

    Examples
    --------
    >>> import aggr
    >>> TiltFrame(["10s", "1m"], time="ts", keys=["host"], measures={"requests": aggr.count()})
    TiltFrame(10s → 1m by host; requests=count())
    """

    levels: tuple[Window, ...]
    time: str
    measures: Mapping[str, Measure]
    keys: tuple[str, ...]
    timezone: str

    def __init__(
        self,
        levels: Sequence[str],
        time: str,
        measures: Mapping[str, Measure],
        keys: Sequence[str] = (),
        timezone: str = "UTC",
    ) -> None:
        """Check everything that can be known without data."""
        if isinstance(levels, str) or not levels:
            raise ValueError(f"levels must be a list of window sizes, say ['10s', '1m', '1h']; got {levels!r}")
        if isinstance(keys, str):
            raise ValueError(f"keys must be a list of column names; got {keys!r}: write [{keys!r}]")
        set_field = object.__setattr__
        set_field(self, "levels", tuple(window(level, timezone) for level in levels))
        set_field(self, "time", time)
        set_field(self, "measures", MappingProxyType(dict(measures)))
        set_field(self, "keys", tuple(keys))
        set_field(self, "timezone", timezone)
        self._check_levels()
        self._check_names()

    @cached_property
    def states(self) -> tuple[StateColumn, ...]:
        """The columns of states that the measures need; some serve several measures."""
        return plan(self.measures)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The input columns that the frame reads, time first."""
        return tuple(dict.fromkeys([self.time, *columns_read(self.keys, self.states)]))

    def level(self, name: str) -> Window:
        """Find a level by its size; raises ``ValueError`` naming those there are."""
        for level in self.levels:
            if level.name == window(name).name:
                return level
        raise ValueError(f"the frame has no level {name!r}; it has {', '.join(w.name for w in self.levels)}")

    def check(self, schema: pa.Schema) -> None:
        """Raise ``ValueError`` or ``TypeError`` unless data of this schema can be rolled up."""
        check_rows(schema, self.columns, self.keys, self.states, INSTANT)

    def states_schema(self, schema: pa.Schema) -> pa.Schema:
        """Return the schema of the states for data of a schema: level, window_start, window_end, keys, states."""
        self.check(schema)
        return pa.schema([*_WINDOW_FIELDS, *states_fields(schema, self.keys, self.states, INSTANT)])

    def results_schema(self, states: pa.Schema) -> pa.Schema:
        """Return the schema of the results for states of a schema."""
        self.check_states(states)
        results = [
            pa.field(name, measure.function.result_type(states.field(self.state_of(name)).type))
            for name, measure in self.measures.items()
        ]
        return pa.schema([*_WINDOW_FIELDS, *(states.field(k) for k in self.keys), *results])

    def state_of(self, measure: str) -> str:
        """Name the column of states that a measure is read from."""
        return next(column.name for column in self.states if measure in column.serves)

    def check_states(self, schema: pa.Schema) -> None:
        """Raise ``ValueError`` unless these are states of this frame."""
        wanted = [LEVEL, START, END, *self.keys, *(c.name for c in self.states)]
        missing = [name for name in wanted if name not in schema.names]
        if missing:
            raise ValueError(f"these are not states of this frame: they have no column {missing[0]!r}")

    def describe(self) -> dict[str, Any]:
        """Describe the frame as plain data, for JSON; `from_dict` reads it back."""
        return {
            "levels": [level.name for level in self.levels],
            "time": self.time,
            "keys": list(self.keys),
            "timezone": self.timezone,
            "measures": {name: measure.describe() for name, measure in self.measures.items()},
        }

    @classmethod
    def from_dict(cls, described: Mapping[str, Any]) -> TiltFrame:
        """Make a frame from its description."""
        measures = {name: from_description(m) for name, m in described["measures"].items()}
        return cls(described["levels"], described["time"], measures, described["keys"], described["timezone"])

    def difference(self, other: TiltFrame) -> str | None:
        """Name the first thing in which another frame differs; None if it is the same."""
        mine, theirs = self.describe(), other.describe()
        for part, value in mine.items():
            if part == "measures":
                for name in [*value, *theirs[part]]:
                    if value.get(name) != theirs[part].get(name):
                        given = [str(f.measures.get(name, "missing")) for f in (self, other)]
                        return f"measure {name!r} is {given[0]} here and {given[1]} there"
            elif value != theirs[part]:
                return f"{part} is {value} here and {theirs[part]} there"
        return None

    def __eq__(self, other: object) -> bool:
        """Compare by description."""
        return isinstance(other, TiltFrame) and self.describe() == other.describe()

    def __hash__(self) -> int:
        """Hash by description."""
        return hash(repr(self.describe()))

    def __repr__(self) -> str:
        """Show levels, keys and measures in one line."""
        chain = " → ".join(level.name for level in self.levels)
        by = f" by {', '.join(self.keys)}" if self.keys else ""
        zone = "" if self.timezone == "UTC" else f" in {self.timezone}"
        measures = ", ".join(f"{name}={measure!r}" for name, measure in self.measures.items())
        return f"TiltFrame({chain}{zone}{by}; {measures})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by what it was made of; functions travel themselves, also those that are registered nowhere else."""
        levels = [level.name for level in self.levels]
        return TiltFrame, (levels, self.time, dict(self.measures), self.keys, self.timezone)

    def _check_levels(self) -> None:
        for fine, coarse in zip(self.levels, self.levels[1:], strict=False):
            if fine.sort_key == coarse.sort_key:
                raise ValueError(f"the levels {fine.name} and {coarse.name} are the same size; give each once")
            if not fine.nests_in(coarse):
                raise ValueError(
                    f"{coarse.name} is not made of whole windows of {fine.name}: {_why(fine, coarse)}; "
                    "give levels from fine to coarse, each a whole multiple of the one before"
                )

    def _check_names(self) -> None:
        if not self.measures:
            raise ValueError("a frame needs at least one measure, say measures={'requests': aggr.count()}")
        for name, measure in self.measures.items():
            if not isinstance(measure, Measure):
                raise ValueError(f"the measure {name!r} must be made by aggr, say aggr.sum('x'); got {measure!r}")
        names = [LEVEL, START, END, *self.keys, *self.measures]
        for name in names:
            if not isinstance(name, str) or not name:
                raise ValueError(f"names of keys and measures must be text; got {name!r}")
            if names.count(name) > 1:
                raise ValueError(f"the name {name!r} is taken twice among {LEVEL}, {START}, {END}, keys and measures")
        if not isinstance(self.time, str) or not self.time:
            raise ValueError(f"time must name the column of event times; got {self.time!r}")


_WINDOW_FIELDS = (pa.field(LEVEL, pa.string()), pa.field(START, INSTANT), pa.field(END, INSTANT))


def _why(fine: Window, coarse: Window) -> str:
    if fine.sort_key > coarse.sort_key:
        return f"{fine.name} is longer"
    if fine.unit == "w":
        return "weeks run across the ends of months and years"
    if coarse.unit == "w":
        return f"weeks begin on Monday, and windows of {fine.name} do not all"
    if coarse.unit in ("mo", "q", "y") and fine.unit not in ("mo", "q", "y"):
        return f"windows of {fine.name} run across the ends of months"
    return f"{coarse.name} is no whole multiple of {fine.name}"
