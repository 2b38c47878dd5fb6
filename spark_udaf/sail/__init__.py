"""Sail: an engine written in Rust that implements Spark's API and does not need Java."""

from spark_udaf.sail.engine import SAIL, sail_session

__all__ = ["SAIL", "sail_session"]
