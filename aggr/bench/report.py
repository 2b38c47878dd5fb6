"""The report of a benchmark: dataclasses with times, sizes, errors, memory and the resources of Spark jobs.

A report can be written as JSON, read again, and compared with an earlier report.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from aggr.arguments import shown

OURS = "tiltframe"
FORMAT = 1  # the version of the JSON format


@dataclass(frozen=True)
class Timing:
    """The time of one operation.

    Parameters
    ----------
    measure : str
        The measure, as text of its call.
    by : str
        ``tiltframe``, or another package with its expression, such as ``duckdb:avg(x)``.
    stage : str
        ``reduce``, ``merge``, ``finish``, or ``answers`` for the complete computation from rows to results.
    groups, rows : int
    unit : str
        The unit: ``row`` or ``state``.
    ns : float
        The median of the rounds, in nanoseconds per unit.
    keys : str
        How rows are distributed over groups: ``even``, ``skewed`` if half of the rows are in one group, or the names of
        the columns by which they are grouped.
    """

    measure: str
    by: str
    stage: str
    groups: int
    rows: int
    unit: str
    ns: float
    keys: str = "even"


@dataclass(frozen=True)
class Size:
    """The size in bytes of one state, or of one serialized sketch of another package, computed from ``rows`` rows.

    ``bytes`` has the value None if the function raises an error for this number of rows, because the number exceeds the
    function's limit.
    """

    measure: str
    by: str
    rows: int
    bytes: int | None


@dataclass(frozen=True)
class Error:
    """The errors of one part of a result, such as one quantile, over several groups of values from one distribution.

    The last three fields are those of `aggr.bench.exact.PartErrors`.
    """

    measure: str
    by: str
    distribution: str
    part: str
    worst_relative: float
    mean_relative: float
    worst_rank: float | None


@dataclass(frozen=True)
class Memory:
    """The growth of resident memory while a measure is computed, in bytes, or None if it could not be measured."""

    measure: str
    groups: int
    rows: int
    bytes: int | None


@dataclass(frozen=True)
class Traffic:
    """The resources that a job on Spark used. None stands for bytes that could not be measured.

    Parameters
    ----------
    measure, by : str
    groups, rows : int
    keys : str
        As in `Timing`.
    shuffle_bytes : int or None
        The bytes that tasks wrote for other tasks in the last run.
    spill_bytes : int or None
        The bytes that Spark wrote to disk in the last run because they did not fit into memory.
    worker_bytes : int or None
        The largest peak of resident memory of a Python worker in any run, including its libraries. None if the job
        needs no Python workers.
    """

    measure: str
    by: str
    groups: int
    rows: int
    keys: str
    shuffle_bytes: int | None
    spill_bytes: int | None
    worker_bytes: int | None


@dataclass(frozen=True)
class Report:
    """All figures of a benchmark.

    Parameters
    ----------
    about : mapping
        The commit, the machine, the versions and the settings.
    keeps_bits : mapping of str to bool
        For the call of each measure, whether merged states are bit-for-bit equal to the states of all rows.
    timings, sizes, errors, memory : sequences
    traffic : sequence of Traffic
        One entry for each job on Spark.
    notes : sequence of str
        Reasons why jobs were left out.
    is_complete : bool
        False if the benchmark was interrupted.

    Examples
    --------
    >>> report = Report({"seed": 1}, timings=[Timing("sum('x')", "tiltframe", "reduce", 1, 1000, "row", 2.5)])
    >>> Report.from_json(report.to_json()) == report
    True
    """

    about: Mapping[str, Any]
    keeps_bits: Mapping[str, bool] = field(default_factory=dict)
    timings: Sequence[Timing] = field(default_factory=list)
    sizes: Sequence[Size] = field(default_factory=list)
    errors: Sequence[Error] = field(default_factory=list)
    memory: Sequence[Memory] = field(default_factory=list)
    traffic: Sequence[Traffic] = field(default_factory=list)
    notes: Sequence[str] = field(default_factory=list)
    is_complete: bool = True

    def to_json(self) -> str:
        """Return the report as the text of a JSON object."""
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1, default=str)

    @classmethod
    def from_json(cls, text: str) -> Report:
        """Return the report that `to_json` has written.

        Raises
        ------
        ValueError
            If the text is not a report in JSON.
        """
        try:
            data = json.loads(text)
            if data.pop("format") != FORMAT:
                raise ValueError(f"the field format must be {FORMAT}")
            return cls(
                timings=[Timing(**row) for row in data.pop("timings")],
                sizes=[Size(**row) for row in data.pop("sizes")],
                errors=[Error(**row) for row in data.pop("errors")],
                memory=[Memory(**row) for row in data.pop("memory")],
                traffic=[Traffic(**row) for row in data.pop("traffic", [])],
                **data,
            )
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            start = shown(text[:40])
            raise ValueError(
                f"not a report of tiltframe bench ({error}): {start}; pass a file written by --out"
            ) from None

    def changes_since(self, earlier: Report, threshold: float = 0.1) -> list[tuple[Timing, float]]:
        """List the timings that differ from an earlier report.

        Parameters
        ----------
        earlier : Report
        threshold : float
            The minimum relative difference to list.

        Returns
        -------
        list of (Timing, float)
            The timings of this report, each with the ratio of the new time to the earlier one.
        """
        before = {_key(timing): timing.ns for timing in earlier.timings}
        changes = []
        for timing in self.timings:
            earlier_ns = before.get(_key(timing))
            if earlier_ns and abs(timing.ns / earlier_ns - 1) >= threshold:
                changes.append((timing, timing.ns / earlier_ns))
        return changes


def _key(timing: Timing) -> tuple[Any, ...]:
    return tuple(getattr(timing, column.name) for column in fields(timing) if column.name != "ns")
