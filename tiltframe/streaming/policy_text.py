"""Policies as text: ``periodic(1m, repeat, having='n > 300')``, written and read alike for every family."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, ClassVar, TypeVar

from aggr.arguments import shown
from aggr.call_text import read_as, write_call
from aggr.duration import duration_text, read_duration

DURATION = {"duration from": 0}  # metadata of a field: text such as 10s
LONGER_THAN_0 = {"duration from": 1}  # microseconds

P = TypeVar("P", bound="Policy")


class Policy:
    """A frozen value that shows itself as Python and as the text that `read_policy` reads."""

    name: ClassVar[str]

    def __post_init__(self) -> None:
        """Check the durations, and write each in its longest unit."""
        for argument in fields(self):  # type: ignore[arg-type]
            value = getattr(self, argument.name)
            if value is not None and "duration from" in argument.metadata:
                checked = checked_duration(value, argument.name, argument.metadata["duration from"])
                object.__setattr__(self, argument.name, checked)

    def written(self) -> dict[str, Any]:
        """Name what differs from the defaults, in the order of the arguments."""
        own = sorted(fields(self), key=lambda f: bool(f.kw_only))  # type: ignore[arg-type]
        return {f.name: getattr(self, f.name) for f in own if getattr(self, f.name) != f.default}

    def __str__(self) -> str:
        """Write it as the command line takes it."""
        return write_call(self.name, self.written())

    def __repr__(self) -> str:
        """Write it as the call that makes it."""
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self.written().items())})"


def checked_duration(given: str | None, what: str, least: int = 0) -> str:
    """Check a duration and write it in its longest unit; raises ``ValueError``."""
    length = read_duration(given, what)  # type: ignore[arg-type]
    if length < least:
        raise ValueError(f"the {what} must be longer than 0; got {shown(given)}")
    return duration_text(length) if length else "0s"


def micros(duration: str) -> int:
    """Read a checked duration, in microseconds."""
    return read_duration(duration, "duration")


def read_policy(text: str, family: Mapping[str, type[P]], what: str, example: str) -> P:
    """Read a policy from text.

    Parameters
    ----------
    text : str
        A call as `aggr.call_text` reads it, or a name alone.
    family : name -> class of policies
    what : str
        What the family is, for errors.
    example : str
        A policy of the family, for errors.

    Raises
    ------
    ValueError
        If it cannot be read, or the policy refuses its arguments.
    """
    return read_as(family, text, what, f"one of {', '.join(family)}, such as {example}", name_alone=True)
