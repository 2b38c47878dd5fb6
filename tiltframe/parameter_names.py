"""Names of parameters in messages: ``order_by`` for users of Python, ``--order-by`` for users of the command line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from aggr.arguments import shown


class _Spelling:
    """The way in which messages name parameters. ``options`` maps names of parameters to the options of the command
    that is running; it is None if no command is running.
    """

    def __init__(self) -> None:
        self.options: Mapping[str, str] | None = None


# shared by all threads, so that messages from all threads of a command name the options of the command
_spelling = _Spelling()


def use_option_names(options: Mapping[str, str]) -> None:
    """Use the options of a command instead of the names of parameters in messages, until the surrounding block of
    `options_in_messages` ends. ``options`` maps names of parameters to options.

    >>> with options_in_messages():
    ...     use_option_names({"order_by": "--order-by"})
    ...     parameter_text("order_by"), argument_text("limit", 5)
    ('--order-by', 'limit=5')
    """
    _spelling.options = options


@contextmanager
def options_in_messages() -> Iterator[None]:
    """At the end of the block, undo the calls of `use_option_names` that were made in the block. Messages then name
    parameters as before the block.

    >>> with options_in_messages():
    ...     use_option_names({"per": "--per"})
    >>> argument_text("per", "1h")
    "per='1h'"
    """
    before = _spelling.options
    try:
        yield
    finally:
        _spelling.options = before


def parameter_text(name: str) -> str:
    """Return the name of a parameter for a message: ``order_by``, or ``--order-by`` if a command with this option runs.

    >>> parameter_text("order_by")
    'order_by'
    """
    return (_spelling.options or {}).get(name, name)


def argument_text(name: str, value: object) -> str:
    """Return a parameter with its value for a message: ``points=5``, or ``--points 5`` if a command with this option
    runs. A list becomes a repeated option: ``--by host --by path``.

    >>> argument_text("points", 5)
    'points=5'
    """
    option = (_spelling.options or {}).get(name)
    if option is None:
        return f"{name}={shown(value)}"
    values = value if isinstance(value, list | tuple) else [value]
    return " ".join(f"{option} {item if isinstance(item, str) else shown(item)}" for item in values)


def by_caller(command: str, python: str) -> str:
    """Return ``command`` if a command runs, and otherwise ``python``. Both are forms of the same part of a message, for
    users of the command line and for users of Python.

    >>> by_caller("pass --type COL=TYPE", "pass row_schema=SCHEMA")
    'pass row_schema=SCHEMA'
    """
    return python if _spelling.options is None else command
