"""Laws of emit and late policies, for policies of other packages as well."""

from aggr.testing.harness import LawBroken
from tiltframe.streaming.testing.checks import check_policy

__all__ = ["LawBroken", "check_policy"]
