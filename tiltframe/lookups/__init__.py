"""Lookups: when a query runs, a table replaces a key of the frame by another one, such as each device by its site."""

from tiltframe.lookups.table_keys import Lookup, lookup

__all__ = ["Lookup", "lookup"]
