"""States of approx_count_distinct beside Spark's own Theta sketches: each reads the other's; set operations on Spark."""

from __future__ import annotations

from tests.spark_queries import *  # noqa: F403
