"""Policies as text: ``periodic(1m, repeat, having='n > 300')``, written and read alike for every family."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from typing import Any, ClassVar, TypeVar

from aggr.arguments import checked_truth, checked_whole, nearest, shown
from aggr.duration import duration_text, read_duration

DURATION = {"holds": "duration"}  # metadata of a field: text such as 10s

P = TypeVar("P", bound="Policy")


class Policy:
    """A frozen value that shows itself as Python and as the text that `read_policy` reads."""

    name: ClassVar[str]

    def written(self) -> dict[str, Any]:
        """Name what differs from the defaults, in the order of the arguments."""
        return {f.name: getattr(self, f.name) for f in _arguments(type(self)) if getattr(self, f.name) != f.default}

    def __str__(self) -> str:
        """Write it as the command line takes it."""
        said = [_as_text(name, value) for name, value in self.written().items()]
        return f"{self.name}({', '.join(said)})" if said else self.name

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
        A name alone, or with arguments in parentheses: by place or ``name=value``; a truth by its name alone.
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
    match = (
        re.fullmatch(r"\s*([a-z_]+)\s*(?:\((.*)\))?\s*", text, re.ASCII | re.DOTALL) if isinstance(text, str) else None
    )
    if match is None:
        raise ValueError(f"cannot read {shown(text)} as {what}; write one of {', '.join(family)}, such as {example}")
    if match[1] not in family:
        raise ValueError(f"there is no {what} {shown(match[1])}; {nearest(match[1], family)}")
    kind = family[match[1]]
    return kind(**_read_arguments(_parts(match[2] or ""), kind, text))


def _read_arguments(parts: list[str], kind: type[Policy], text: str) -> dict[str, Any]:
    known = {f.name: f for f in _arguments(kind)}
    places = iter([f for f in known.values() if not f.kw_only])
    given: dict[str, Any] = {}
    for part in parts:
        match = re.fullmatch(r"([a-z_]+)\s*=\s*(.*)", part, re.ASCII | re.DOTALL)
        if match is None and part in known and known[part].default is False:
            name, value = part, "true"
        elif match is None:
            field = next(places, None)
            if field is None:
                raise ValueError(f"cannot read {shown(part)} in {shown(text)}; {_takes(kind)}")
            name, value = field.name, part
        else:
            name, value = match[1], match[2]
        if name not in known:
            raise ValueError(f"{kind.name} takes no {name!r}; {nearest(name, known)}")
        if name in given:
            raise ValueError(f"{kind.name} is given {name!r} twice in {shown(text)}; give it once")
        given[name] = _read_value(value, known[name])
    missing = [name for name, f in known.items() if f.default is MISSING and name not in given]
    if missing:
        raise ValueError(f"{kind.name} needs {missing[0]}; {_takes(kind)}")
    return given


def _read_value(text: str, field: Field[Any]) -> Any:
    quoted = re.fullmatch(r"'((?:[^']|'')*)'", text, re.DOTALL)
    if quoted:
        return quoted[1].replace("''", "'")
    if field.default is False and text in ("true", "false"):
        return text == "true"
    return int(text) if re.fullmatch(r"-?[0-9]{1,18}", text, re.ASCII) else text


def _parts(text: str) -> list[str]:
    """Split arguments at commas that stand neither in quotes nor in parentheses."""
    found = re.findall(r"(?:'(?:[^']|'')*'|\([^()]*\)|[^,'()])+", text)
    if re.sub(r"[\s,]", "", "".join(found)) != re.sub(r"[\s,]", "", text) and "'" not in text:
        raise ValueError(f"cannot read the arguments {shown(text)}; parentheses and quotes must be closed")
    return [part.strip() for part in found if part.strip()]


def _arguments(kind: type[Policy]) -> list[Field[Any]]:
    own = fields(kind)  # type: ignore[arg-type]
    return sorted(own, key=lambda f: bool(f.kw_only))


def _takes(kind: type[Policy]) -> str:
    return f"it takes {', '.join(f.name for f in _arguments(kind)) or 'nothing'}"


def _as_text(name: str, value: Any) -> str:
    if value is True:
        return name
    plain = not isinstance(value, str) or re.fullmatch(r"[A-Za-z0-9_]+", value, re.ASCII)
    quoted = str(value).replace("'", "''")
    return f"{name}={value}" if plain else f"{name}='{quoted}'"


__all__ = ["DURATION", "Policy", "checked_duration", "checked_truth", "checked_whole", "micros", "read_policy"]
