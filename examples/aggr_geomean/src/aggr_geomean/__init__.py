"""An example package with two functions: geomean processes whole columns, and prefix processes one group at a time."""

from aggr_geomean.geomean import Geomean
from aggr_geomean.prefix import Prefix

__all__ = ["Geomean", "Prefix"]
