"""Command lines as data: a command with its options. One option is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tests.bad_inputs.world import World


@dataclass(frozen=True)
class Line:
    """A wrong line: ``options`` by name, "" for the argument, and what is appended; ``says`` is in the sentence.

    ``{root}``, ``{store}`` and ``{new}`` stand for a world's folders.
    """

    name: str
    command: str
    options: Mapping[str, str]
    more: tuple[str, ...] = ()
    says: tuple[str, ...] = ()

    def argv(self, world: World) -> list[str]:
        """Write it out for a world."""
        places = {"root": str(world.root), "store": world.path, "new": world.new}
        words = [self.command] if self.command else []
        for name, value in self.options.items():
            words += [value.format(**places)] if not name else [name, value.format(**places)]
        return [*words, *(word.format(**places) for word in self.more)]


def by_name(texts: Mapping[str, str]) -> dict[str, str]:
    """Give wrong names of windows as they stand in a line."""
    return {label: text.replace("{", "{{").replace("}", "}}") for label, text in texts.items()}


def options(command: str, good: Mapping[str, str], name: str, values: Mapping[str, str], *says: str) -> list[Line]:
    """Make a row of each wrong value of one option."""
    return [
        Line(f"{command} {name or 'argument'} = {label}", command, {**good, name: value}, (), says)
        for label, value in values.items()
    ]
