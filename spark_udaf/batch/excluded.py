"""Excluded groups and values of a job, as an `Observation` of Spark.

A group is excluded if it has more values than the limit of a measure with ``beyond="null"``. A value is excluded if a
measure with ``bad_values="skip"`` refuses it. The tasks that merge states count the excluded groups and values. They
return the counts in additional columns, in the first row of each table, and Spark adds the counts up when an action
runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from aggr import Measure
from aggr.arguments import shown
from aggr.state import State
from aggr.tables.state_plan import plan_state_columns
from spark_udaf.plan.engine import Feature, check_supports
from tiltframe import TiltFrame
from tiltframe.exclusions import excluded_states, sum_excluded
from tiltframe.names import LEVEL

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_BEYOND = "groups beyond the limit"
_REFUSED = "refused values"


@dataclass(frozen=True)
class ExclusionColumns:
    """Columns with the counts of excluded groups and values of measures.

    Parameters
    ----------
    measures : TiltFrame, or name -> measure
        The measures. A frame has separate counts for each level, because its levels contain the same rows.
    """

    measures: TiltFrame | Mapping[str, Measure]

    @cached_property
    def column_names(self) -> dict[tuple[str, str | None], tuple[str, str]]:
        """The names of the columns of counts, for each column of states and each level.

        A key of the dict is a pair: a column of states, and a level (None for measures without a frame). The value is a
        pair of names: the column that counts groups beyond the limit, and the column that counts refused values.
        """
        levels: list[str | None] = [None]
        if isinstance(self.measures, TiltFrame):
            levels = [level.name for level in self.measures.levels]
        return {
            (name, level): (_count_name(name, _BEYOND, level), _count_name(name, _REFUSED, level))
            for name in self._states
            for level in levels
        }

    @cached_property
    def _states(self) -> dict[str, State]:
        return excluded_states(
            self.measures.states if isinstance(self.measures, TiltFrame) else plan_state_columns(self.measures)
        )

    def schema(self, schema: pa.Schema) -> pa.Schema:
        """Return ``schema`` with the columns of counts of excluded groups and values added at its end."""
        return pa.schema(
            [*schema, *(pa.field(name, pa.int64()) for pair in self.column_names.values() for name in pair)]
        )

    def append(self, table: pa.Table, states: pa.Table) -> pa.Table:
        """Return the table with the columns of counts added at its end. The first row has the counts for all
        ``states``, and the other rows have null.
        """
        counts = {name: 0 for pair in self.column_names.values() for name in pair}
        for (name, level), pair in self.column_names.items():
            states_of_level = states
            if level is not None:
                states_of_level = states.filter(pc.equal(states.column(LEVEL), pa.scalar(level, pa.string())))
            counts.update(zip(pair, sum_excluded(self._states[name], states_of_level.column(name)), strict=True))
        for name, count in counts.items():
            values = pa.array([count, *[None] * (table.num_rows - 1)], pa.int64()).slice(0, table.num_rows)
            table = table.append_column(name, values)
        return table

    def observe(self, rows: DataFrame, observation: Any) -> DataFrame:
        """Return the rows without the columns that count excluded groups and values. When Spark computes the rows,
        ``observation`` receives the sum of each removed column.
        """
        column_names = [name for pair in self.column_names.values() for name in pair]
        if not column_names:
            raise ValueError(
                "the argument excluded counts groups beyond a limit and refused values, but no measure has "
                "beyond='null' or bad_values='skip'; leave out excluded"
            )
        sums = [F.coalesce(F.sum(F.col(f"`{name.replace('`', '``')}`")), F.lit(0)).alias(name) for name in column_names]
        return rows.observe(observation, *sums).drop(*column_names)


def check_observation(observation: Any, rows: Any) -> None:
    """Raise ``ValueError`` if ``observation`` is not an `Observation` of PySpark, or if the engine of the session of
    ``rows`` does not support observations.
    """
    # The name of the class is compared, because Spark Connect has its own class Observation.
    if type(observation).__name__ != "Observation":
        raise ValueError(f"excluded must be an Observation of PySpark; got {shown(observation)}")
    spark = getattr(rows, "sparkSession", None) or rows.spark
    check_supports(spark, Feature.OBSERVED_PYTHON_COLUMNS, "a count of excluded groups", "leave out excluded")


def _count_name(column: str, kind: str, level: str | None) -> str:
    return f"{column} {kind}" + ("" if level is None else f", {level}")
