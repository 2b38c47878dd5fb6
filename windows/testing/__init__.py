"""What every kind of time window must obey, as checks that anyone can run on a kind of their own."""

from aggr.testing.harness import LawBroken
from windows.testing.laws import LAWS, check
from windows.testing.times import times_of

__all__ = ["LAWS", "LawBroken", "check", "times_of"]
