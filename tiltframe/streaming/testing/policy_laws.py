"""The law for emit policies and late policies: a policy is equal to its copy, and to the policy that is read from its
text.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from aggr.testing.harness import require
from tiltframe.streaming.policies import EmitPolicy, LatePolicy


def check_value(policy: EmitPolicy | LatePolicy, read: Callable[[str], Any]) -> None:
    """Raise `LawBroken` if a policy differs from its copy, or from the policy that is read from its text.

    Parameters
    ----------
    policy : EmitPolicy or LatePolicy
    read : callable
        The function that reads a policy from text: `read_emit` or `read_late`.
    """
    require(isinstance(policy.name, str) and policy.name.isidentifier(), f"the name {policy.name!r} is not a word")
    copies = [copy.deepcopy(policy)]
    # a class that was defined in a function or a notebook cannot be pickled
    with suppress(pickle.PicklingError, AttributeError):
        copies.append(pickle.loads(pickle.dumps(policy)))
    for other in copies:
        require(other == policy and hash(other) == hash(policy), f"a copy of {policy!r} is {other!r}")
    try:
        read_back = read(str(policy))
    except ValueError:
        return  # the policy cannot be read from text, because its name is not registered
    if type(read_back) is type(policy):
        require(read_back == policy, f"the text {str(policy)!r} of {policy!r} is read as {read_back!r}")
