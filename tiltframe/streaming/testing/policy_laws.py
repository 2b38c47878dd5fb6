"""The law that emit and late policies share: copies of a policy, and the policy read from its text, are equal to it."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from aggr.testing.harness import holds
from tiltframe.streaming.policies import EmitPolicy, LatePolicy


def check_value(policy: EmitPolicy | LatePolicy, read: Callable[[str], Any]) -> None:
    """Raise `LawBroken` if a copy of a policy differs from it, or its text is read as a different policy.

    Parameters
    ----------
    policy : EmitPolicy or LatePolicy
    read : callable
        The function that reads the text: `read_emit` or `read_late`.
    """
    holds(isinstance(policy.name, str) and policy.name.isidentifier(), f"the name {policy.name!r} is not a word")
    copies = [copy.deepcopy(policy)]
    # a class that was defined in a notebook's cell or in a function
    with suppress(pickle.PicklingError, AttributeError):
        copies.append(pickle.loads(pickle.dumps(policy)))
    for other in copies:
        holds(other == policy and hash(other) == hash(policy), f"a copy of {policy!r} is {other!r}")
    try:
        read_back = read(str(policy))
    except ValueError:
        return  # the name of the policy is not registered
    if type(read_back) is type(policy):
        holds(read_back == policy, f"the text {str(policy)!r} of {policy!r} is read as {read_back!r}")
