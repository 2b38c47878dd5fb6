"""Two more functions: geomean, written over columns, and prefix, written over one group at a time."""

from aggr_geomean.geomean import Geomean
from aggr_geomean.prefix import Prefix

__all__ = ["Geomean", "Prefix"]
