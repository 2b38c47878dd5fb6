"""HLL sketches: convert states of `hll` to the bytes of Apache DataSketches, which Spark's ``hll_…`` functions read.

A sketch of few values is written as a list or a set of 32-bit hashes, with a header of 8 or 12 bytes. Registers are
written as HLL_8, with a header of 40 bytes. The header marks the sketch as out of order, so that readers do not use the
estimate that depends on the order of rows.

Source: ``PreambleUtil`` of the HLL sketch of Apache DataSketches in Java.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from aggr.contrib import Hll
from aggr.distinct.murmur3 import ZERO_BITS
from aggr.extend.columns import compute as pc
from aggr.extend.columns import with_nulls
from aggr.extend.lists import Registers
from aggr.extend.tables import checked
from aggr.histograms.leb128 import of_arrow, to_arrow

# the version of the format
_VERSION = 1
# the id of HLL among DataSketches' families of sketches
_FAMILY = 7
# the id of the mode HLL_8, with registers of 8 bits
_EIGHT_BITS = 8
_LIST = 0
_SET = 1
_REGISTERS = 2
_EMPTY = 4
_COMPACT = 8
_OUT_OF_ORDER = 16
# the maximum number of 32-bit hashes that are written as a list; more hashes are written as a set
_MAX_LIST_SIZE = 7
# The header has two sums of 2^-register: one for the registers below this value, and one for the others.
_FIRST_LARGE_REGISTER = 32


def to_hll_sketch(states: pa.Array, function: Hll) -> pa.Array:
    """Write each state as an HLL sketch.

    Parameters
    ----------
    states : column of states of ``function``, shape (n,)
    function : Hll

    Returns
    -------
    array of binary, shape (n,); a null state gives null

    Raises
    ------
    ValueError
        If states belong to another function, or have another lg_k.

    Guarantee
    ---------
    Every register and every 32-bit hash is preserved. Readers may compute another estimate, which has the same error.

    Examples
    --------
    >>> from aggr.groups.groups import Groups
    >>> to_hll_sketch(Hll().reduce(pa.array([b"\\1"]), Groups.single(1)), Hll())[0].as_py().hex()
    '0201070c03080108c83e0106'
    """
    column = checked(function, states).states
    registers = column.drop_null().field("registers")
    parts = Registers(function.lg_k).parts(registers)
    n = len(registers)
    counts = np.zeros(n, np.int64)
    modes = np.full(n, _REGISTERS)
    counts[~parts.has_registers] = parts.counts
    modes[~parts.has_registers] = np.where(parts.counts > _MAX_LIST_SIZE, _SET, _LIST)
    flags = np.where(parts.has_registers, _OUT_OF_ORDER, _COMPACT | np.where(counts == 0, _EMPTY, 0))
    lg_array_size = np.where(
        modes == _SET, np.maximum(5, np.ceil(np.log2(np.maximum(counts, 1) * 4 / 3))), 3 * (modes == _LIST)
    )
    header = np.zeros((n, 40), np.uint8)
    header[:, 0] = np.array([2, 3, 10])[modes]  # the length of the header in words of 4 bytes
    header[:, 1:4] = _VERSION, _FAMILY, function.lg_k
    header[:, 4], header[:, 5], header[:, 7] = lg_array_size, flags, modes | _EIGHT_BITS
    header[:, 6] = np.where(modes == _LIST, counts, 0)
    header[modes == _SET, 8:12] = counts[modes == _SET].astype("<u4")[:, np.newaxis].view(np.uint8)
    powers = np.ldexp(1.0, -parts.registers.astype(np.int32))
    sums = [
        np.where((parts.registers >= _FIRST_LARGE_REGISTER) == is_large, powers, 0.0).sum(axis=1)
        for is_large in (False, True)
    ]
    header[parts.has_registers, 16:32] = np.stack(sums, axis=1).astype("<f8").view(np.uint8)
    header[parts.has_registers, 32:36] = (parts.registers == 0).sum(axis=1).astype("<u4")[:, np.newaxis].view(np.uint8)
    lengths = np.array([8, 12, 40])[modes]
    headers = to_arrow(header[np.arange(40) < lengths[:, np.newaxis]], np.append(0, np.cumsum(lengths)))
    leading_zeros = parts.coupons & ((1 << ZERO_BITS) - 1)
    addresses = parts.coupons >> ZERO_BITS
    data, offsets = of_arrow(registers)
    data = data[offsets[0] : offsets[-1]].copy()
    data[np.repeat(~parts.has_registers, np.diff(offsets))] = (
        (leading_zeros << 26 | addresses).astype("<u4").view(np.uint8)
    )
    bodies = to_arrow(data, offsets - offsets[0])
    return with_nulls(pc.binary_join_element_wise(headers, bodies, b""), column.is_valid())
