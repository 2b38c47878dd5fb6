"""Laws of emit and late policies, which also apply to the policies of other packages."""

from aggr.testing.harness import LawBroken
from tiltframe.streaming.testing.checks import check_policy

__all__ = ["LawBroken", "check_policy"]
