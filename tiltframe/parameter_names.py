"""Names of parameters in messages: as Python spells them, or as the options of the command that runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from aggr.arguments import shown


class _Spelling:
    """The options of the command that runs, by the names of parameters, or None if Python code runs."""

    def __init__(self) -> None:
        self.options: Mapping[str, str] | None = None


_spelling = _Spelling()  # of the process, so that threads of a command use its options as well


def name_options(options: Mapping[str, str]) -> None:
    """Let messages name the options of a command from now on, within `options_in_messages`.

    >>> with options_in_messages():
    ...     name_options({"order_by": "--order-by"})
    ...     parameter("order_by"), argument("limit", 5)
    ('--order-by', 'limit=5')
    """
    _spelling.options = options


@contextmanager
def options_in_messages() -> Iterator[None]:
    """Restore the spelling of Python at the end of the block.

    >>> with options_in_messages():
    ...     name_options({"per": "--per"})
    >>> argument("per", "1h")
    "per='1h'"
    """
    before = _spelling.options
    try:
        yield
    finally:
        _spelling.options = before


def parameter(name: str) -> str:
    """Return the name of a parameter for a message: ``order_by``, or ``--order-by`` in a command with this option.

    >>> parameter("order_by")
    'order_by'
    """
    return (_spelling.options or {}).get(name, name)


def argument(name: str, value: object) -> str:
    """Return a parameter with its value for a message: ``points=5``, or ``--points 5``. An option that is repeated has
    a sequence of values.

    >>> argument("points", 5)
    'points=5'
    """
    option = (_spelling.options or {}).get(name)
    if option is None:
        return f"{name}={shown(value)}"
    values = value if isinstance(value, list | tuple) else [value]
    return " ".join(f"{option} {item if isinstance(item, str) else shown(item)}" for item in values)


def by_caller(command: str, python: str) -> str:
    """Return advice for a user of the command line if a command runs, or else for a user of Python.

    >>> by_caller("pass --type COL=TYPE", "pass row_schema=SCHEMA")
    'pass row_schema=SCHEMA'
    """
    return python if _spelling.options is None else command
