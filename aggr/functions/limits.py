"""Limits on the number of values per group. A group beyond its limit raises an error, or gets an absorbing state
without a result.

    max=3     [1, 4]  ─┐
                       ├─ merge ─▶  null      five values: a null list, which stays null in every later merge
           [2, 5, 9]  ─┘

A group is beyond its limit if it has more than ``max`` values in total. The error is raised, or the null list is
stored, as soon as a part of the group's values exceeds the limit, because the group then exceeds the limit too. States
therefore do not depend on the order or the tree of merges. The values of a group beyond its limit are not stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from aggr.arguments import shown
from aggr.arrays import Flags, Whole
from aggr.groups.groups import Groups

ERROR = "error"
NULL = "null"
ACTIONS = (ERROR, NULL)

# the name of the parameter that determines the action for a group with more values than the limit
BEYOND = "beyond"

# the type of the parameter ``beyond`` in states; a state has this parameter only if ``beyond`` is not "error"
BEYOND_PARAMETER: Mapping[str, pa.DataType] = {BEYOND: pa.string()}


@dataclass(frozen=True)
class Limit:
    """The maximum number of values of a group, and the action for a group with more values.

    The action is to raise an error, or to give the group an absorbing state: a null list, which stays null in every
    later merge.

    >>> Limit(3, NULL).groups_beyond(np.array([2, 5]), "the list", "keep fewer")
    array([False,  True])
    """

    max: int
    beyond: str = ERROR

    @property
    def is_absorbing(self) -> bool:
        """Whether a group beyond the limit gets a null list."""
        return self.beyond == NULL

    def groups_beyond(self, counts: Whole, what: str, instead: str, absorbed: Flags | None = None) -> Flags | None:
        """Return a mask of the groups beyond the limit, or None if there are none.

        ``counts`` has the number of values of each group. A group is beyond the limit if this number exceeds ``max``,
        or if ``absorbed`` marks the group because one of its merged parts was beyond the limit. If there is such a
        group and ``self.beyond`` is not "null", raise ``ValueError``. The error message begins with ``what``, and
        proposes the alternative ``instead``.
        """
        is_beyond = counts > self.max
        if self.is_absorbing and absorbed is not None:
            is_beyond |= absorbed
        if not is_beyond.any():
            return None
        if not self.is_absorbing:
            raise ValueError(
                f"{what} holds at most max={self.max} values a group; one group has {counts.max():,}; raise max, "
                f"{instead}, or use beyond='null' for a null result in such groups"
            )
        return is_beyond


def check_max(size: int) -> None:
    """Raise ``ValueError`` unless ``size`` is a whole number from 1 to 2^31 - 1."""
    if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size < 2**31:
        raise ValueError(
            f"max, the maximum number of values in a group, must be a whole number of at least 1; got {shown(size)}"
        )


def check_beyond(beyond: object, allowed: Sequence[str] = ACTIONS) -> None:
    """Raise ``ValueError`` unless ``beyond`` is one of the texts in ``allowed``."""
    if not isinstance(beyond, str) or beyond not in allowed:
        words = f"{', '.join(map(repr, allowed[:-1]))} or {allowed[-1]!r}"
        raise ValueError(f"beyond must be {words}; got {shown(beyond)}")


def beyond_parameter(beyond: str) -> Mapping[str, pa.DataType]:
    """Return the name and the type of the parameter ``beyond``, or {} if states do not store the parameter.

    States do not store the default, "error", so that they have the same layout as before the parameter existed.
    """
    return {} if beyond == ERROR else BEYOND_PARAMETER


def null_lists(lists: pa.Array) -> Flags | None:
    """Return a mask of the null lists, or None if no list is null. A state beyond its limit has a null list."""
    return lists.is_null().to_numpy(zero_copy_only=False) if lists.null_count else None


def absorbed_groups(lists: pa.Array, groups: Groups) -> Flags | None:
    """Return a mask of the groups with a null list, shape (groups.n,), or None if no list is null."""
    is_beyond = null_lists(lists)
    if is_beyond is None:
        return None
    absorbed = np.zeros(groups.n, np.bool_)
    absorbed[groups.ids[is_beyond]] = True
    return absorbed
