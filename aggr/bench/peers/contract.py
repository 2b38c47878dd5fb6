"""The contract of a peer: another package that computes a comparable result from the same rows."""

from __future__ import annotations

import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from aggr.measure import Measure


@dataclass(frozen=True)
class Peer(ABC):
    """Another package with an expression, such as DuckDB with ``quantile_cont(x, 0.5)``.

    Parameters
    ----------
    expression : str
        In the language of the package.
    measure : Measure
        The measure that it is compared with; packages of sketches take column and quantiles from it.

    Class attributes
    ----------------
    name : str
        The word before the colon in ``--against``.
    package : str
        The distribution to install.
    row_limit : int or None
        The number of rows to measure for packages that need one Python call per row.
    """

    expression: str
    measure: Measure

    name: ClassVar[str]
    package: ClassVar[str]
    row_limit: ClassVar[int | None] = None

    def __post_init__(self) -> None:
        """Check the expression as far as that is possible without rows."""
        self.check()

    def check(self) -> None:  # noqa: B027, because a peer without a check of its own needs none
        """Refuse an expression that cannot be evaluated; raises ``ValueError``."""

    @abstractmethod
    def prepare(self, rows: pa.Table, group_count: int) -> Callable[[], Any]:
        """Load the rows in the package's best form and return the call to be timed, from rows to results.

        Parameters
        ----------
        rows : pa.Table
            With the columns of the measure and ``bench_group``, whole numbers from 0.
        group_count : int

        Returns
        -------
        callable without parameters
            It returns what `results` reads.

        Raises
        ------
        ValueError
            If the package cannot evaluate the expression; the message contains the package's own words.
        """

    @abstractmethod
    def results(self, answer: Any) -> Sequence[Any]:
        """List the results of all groups, in the order of the groups.

        Parameters
        ----------
        answer
            As the call of `prepare` returned it.

        Returns
        -------
        sequence of numbers, lists or mappings
        """

    def state_bytes(self, values: pa.Array) -> int | None:
        """Return the bytes of the serialized sketch of some values; None if the package has no such state."""
        return None

    @classmethod
    def is_installed(cls) -> bool:
        """Return whether the package can be imported."""
        return importlib.util.find_spec(cls.package) is not None

    def __str__(self) -> str:
        """Write the peer as in ``--against``."""
        return f"{self.name}:{self.expression}"
