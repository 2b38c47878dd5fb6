"""An example package with two functions: geomean, written over columns, and prefix, written over single groups."""

from aggr_geomean.geomean import Geomean
from aggr_geomean.prefix import Prefix

__all__ = ["Geomean", "Prefix"]
