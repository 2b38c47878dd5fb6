"""range: how far the least and the greatest value of a column are apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from aggr.arrow import compute as pc
from aggr.arrow.damaged_state import DamagedState
from aggr.arrow.normalize import canonical, is_number
from aggr.arrow.sort_keys import order_keys
from aggr.fields import GREATEST, LEAST, Field
from aggr.functions.min_max import Min
from aggr.input_types import InputTypes

_SUBTRACTABLE = InputTypes(
    "integers, floats and decimals of up to 37 digits",
    "Of integers, floats or decimals of up to 37 digits.",
    lambda dtype: is_number(dtype) and not (pa.types.is_decimal(dtype) and dtype.precision > 37),
)


@dataclass(frozen=True)
class Range(Min):
    """Take the greatest value less the least; NaN if there is a NaN, or nothing but one infinity.

    Raises
    ------
    OverflowError
        When it is read, if a range of integers is beyond int64.

    Examples
    --------
    >>> from aggr import range
    >>> range("price")
    range('price')
    """

    name = "range"
    takes = _SUBTRACTABLE
    keeps = "the least and the greatest value"
    returns = "int64 of integers, else the input's type, decimals with a digit more; null if there are no values"
    guarantee = "correctly rounded"
    answers_for = frozenset({"min", "max"})
    state_fields: ClassVar[Mapping[str, Field]] = {"least": LEAST, "greatest": GREATEST}

    def check_consistency(self, states: pa.StructArray) -> None:
        least, greatest = (states.field(name) for name in self.state_fields)
        if least.type != greatest.type or not least.is_valid().equals(greatest.is_valid()):
            raise DamagedState("its least and its greatest value are not of the same rows")
        keys = order_keys(pa.concat_arrays([least.drop_null(), greatest.drop_null()]))
        if (keys[: len(keys) // 2] > keys[len(keys) // 2 :]).any():
            raise DamagedState("its least value is above its greatest")

    def finish_states(self, states: pa.StructArray) -> pa.Array:
        least, greatest = (states.field(name) for name in self.state_fields)
        if not pa.types.is_integer(least.type):
            return canonical(pc.subtract(greatest, least))
        valid = least.is_valid().to_numpy(zero_copy_only=False)
        ends = [pc.fill_null(end, 0).to_numpy().astype(np.uint64) for end in (greatest, least)]
        apart = ends[0] - ends[1]  # modulo 2^64, within which it lies
        if (apart > np.iinfo(np.int64).max).any():
            raise OverflowError(f"the range of integers is {apart.max()}, beyond int64; cast the column to a decimal")
        return pa.array(apart.astype(np.int64), mask=~valid)
