"""The interface of a peer: another package that computes a comparable result from the same rows."""

from __future__ import annotations

import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from aggr.bench.costs import Operation
from aggr.measure import Measure


@dataclass(frozen=True)
class Peer(ABC):
    """Another package with an expression to evaluate, such as DuckDB with ``quantile_cont(x, 0.5)``.

    Parameters
    ----------
    expression : str
        An expression in the language of the package.
    measure : Measure
        The measure with which the peer is compared. Sketch packages use the column and the quantiles of the measure.

    Class attributes
    ----------------
    name : str
        The name that precedes the colon in ``--against``.
    package : str
        The distribution that must be installed.
    row_limit : int or None
        The maximum number of rows that are passed to the package, or None for no limit. Packages that need one Python
        call per row have a limit, because they are slow.
    is_in_process : bool
        Whether the package computes results in this process, so that its CPU time can be measured.
    """

    expression: str
    measure: Measure

    name: ClassVar[str]
    package: ClassVar[str]
    row_limit: ClassVar[int | None] = None
    is_in_process: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the expression as far as that is possible without rows."""
        self.check()

    def check(self) -> None:  # noqa: B027, because a peer whose expression needs no check does not override it
        """Raise ``ValueError`` for an expression that cannot be evaluated."""

    @abstractmethod
    def prepare(self, rows: pa.Table, group_count: int) -> Callable[[], Any]:
        """Load the rows in the format that the package reads fastest. Return the call to be timed, which computes the
        results from the loaded rows.

        Parameters
        ----------
        rows : pa.Table
            Rows with the columns of the measure and ``bench_group``, the number of the group of each row, from 0.
        group_count : int

        Returns
        -------
        callable without parameters
            Its result is passed to `results`.

        Raises
        ------
        ValueError
            If the package cannot evaluate the expression; the message contains the package's own error.
        """

    @abstractmethod
    def results(self, answer: Any) -> Sequence[Any]:
        """List the results of all groups that have rows, ordered by group.

        Parameters
        ----------
        answer
            The result of the call that `prepare` returned.

        Returns
        -------
        sequence of numbers, lists or mappings
        """

    def stages(self, rows: pa.Table, group_count: int) -> list[Operation]:
        """Return the operations that are timed in addition to the call that `prepare` returns.

        Parameters
        ----------
        rows : pa.Table
        group_count : int
            As in `prepare`.

        Returns
        -------
        list of Operation
            Operations with the stages ``reduce``, ``merge`` and ``finish``. Empty by default, because a query engine
            does not expose states.
        """
        return []

    def state_bytes(self, values: pa.Array) -> int | None:
        """Return the number of bytes of a serialized sketch of ``values``, or None if the package does not have
        sketches.
        """
        return None

    @classmethod
    def is_installed(cls) -> bool:
        """Return whether the package can be imported."""
        return importlib.util.find_spec(cls.package) is not None

    def __str__(self) -> str:
        """Return the peer in the syntax of ``--against``."""
        return f"{self.name}:{self.expression}"
