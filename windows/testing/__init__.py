"""The laws of time windows, as checks that users can run on their own kinds of windows."""

from aggr.testing.harness import LawBroken
from windows.testing.laws import LAWS, check
from windows.testing.times import times_of

__all__ = ["LAWS", "LawBroken", "check", "times_of"]
