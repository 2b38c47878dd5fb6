"""Names for packages that extend spark_udaf.

`Engine` and `Feature` describe an engine that implements Spark's API. `scalar_function` converts a function of Arrow
arrays to a function of Spark Columns. `column` converts a name to a Column, and `from_arrow_type` converts an Arrow
type to a Spark type.

>>> from spark_udaf.extend import Engine, Feature
>>> Engine("Spark", runs=lambda spark: True).has(Feature.STREAMS)
True
"""

from spark_udaf.plan.engine import Engine, Feature
from spark_udaf.udaf.aggregate_function import column
from spark_udaf.versions.arrow_types import from_arrow_type
from spark_udaf.versions.column_functions import scalar_function

__all__ = ["Engine", "Feature", "column", "from_arrow_type", "scalar_function"]
