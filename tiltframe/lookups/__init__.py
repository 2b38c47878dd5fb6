"""Lookups: a query replaces a key of the frame by another one, which it reads from a table, such as the site of each
device.
"""

from tiltframe.lookups.table_keys import Lookup, lookup

__all__ = ["Lookup", "lookup"]
