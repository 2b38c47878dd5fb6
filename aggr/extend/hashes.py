"""Hashes of values, for samples and for counts of distinct values, and the registers of HyperLogLog.

>>> import pyarrow as pa
>>> from aggr.extend.hashes import NO_THRESHOLD, hash64
>>> a, b, again = hash64(pa.array(["a", "b", "a"])).tolist()
>>> a == again, a == b, max(a, b) < NO_THRESHOLD
(True, False, True)
"""

from aggr.arrow.row_hash import NO_THRESHOLD, hash64
from aggr.distinct.item_hashes import HASHABLE
from aggr.distinct.least_hashes import LeastHashes, Sketches
from aggr.distinct.registers import Registers

__all__ = ["HASHABLE", "NO_THRESHOLD", "LeastHashes", "Registers", "Sketches", "hash64"]
