"""What emit and late policies share: frozen values that show themselves as Python and as text."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, ClassVar

from aggr.arguments import shown
from aggr.call_text import write_call
from aggr.duration import duration_text, read_duration

DURATION = {"shortest": 0}  # metadata of a field: text such as 10s, not shorter than so many microseconds
LONGER_THAN_0 = {"shortest": 1}


class Policy:
    """A frozen dataclass, whose fields are the arguments that its text has."""

    name: ClassVar[str]

    def __post_init__(self) -> None:
        """Check the durations, and write each in its longest unit."""
        for argument in fields(self):  # type: ignore[arg-type]
            value = getattr(self, argument.name)
            if value is None or "shortest" not in argument.metadata:
                continue
            length = read_duration(value, argument.name)
            if length < argument.metadata["shortest"]:
                raise ValueError(f"the {argument.name} must be longer than 0; got {shown(value)}")
            object.__setattr__(self, argument.name, duration_text(length) if length else "0s")

    def written(self) -> dict[str, Any]:
        """Name what differs from the defaults, in the order of the arguments."""
        own = sorted(fields(self), key=lambda f: bool(f.kw_only))  # type: ignore[arg-type]
        return {f.name: getattr(self, f.name) for f in own if getattr(self, f.name) != f.default}

    def __str__(self) -> str:
        return write_call(self.name, self.written())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self.written().items())})"


def micros(duration: str) -> int:
    """Read a duration in microseconds.

    Parameters
    ----------
    duration : str
        Such as ``10s``.

    Returns
    -------
    int

    Raises
    ------
    ValueError
        If it cannot be read.
    """
    return read_duration(duration, "duration")
