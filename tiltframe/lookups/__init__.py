"""Lookups: a query replaces a key of the frame by a key from a table. For example, the device is replaced by the site
of the device.
"""

from tiltframe.lookups.table_keys import Lookup, lookup

__all__ = ["Lookup", "lookup"]
