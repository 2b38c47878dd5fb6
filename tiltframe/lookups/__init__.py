"""Lookups: keys of results that a table derives from a key of the frame when a query runs."""

from tiltframe.lookups.table_keys import Lookup, lookup

__all__ = ["Lookup", "lookup"]
