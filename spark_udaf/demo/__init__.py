"""The demo: a year of real flights."""

from spark_udaf.demo.command import demo

__all__ = ["demo"]
