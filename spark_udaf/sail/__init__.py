"""Sail: an engine of Spark's API in Rust, which needs no Java."""

from spark_udaf.sail.engine import SAIL, sail_session

__all__ = ["SAIL", "sail_session"]
