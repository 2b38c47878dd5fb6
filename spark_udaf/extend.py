"""Names for extensions of spark_udaf: engines that implement Spark's API, and functions of Columns that are computed
from Arrow arrays.

>>> from spark_udaf.extend import Engine, Feature
>>> Engine("Spark", runs=lambda spark: True).has(Feature.STREAMS)
True
"""

from spark_udaf.plan.engine import Engine, Feature
from spark_udaf.udaf.aggregate_function import column
from spark_udaf.versions.arrow_types import from_arrow_type
from spark_udaf.versions.column_functions import scalar_function

__all__ = ["Engine", "Feature", "column", "from_arrow_type", "scalar_function"]
