"""Laws that emit policies and late policies must obey, including those of other packages."""

from aggr.testing.harness import LawBroken
from tiltframe.streaming.testing.checks import check_policy

__all__ = ["LawBroken", "check_policy"]
