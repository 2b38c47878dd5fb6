"""Queries whose parameters are text: parameters of a URL, options of Spark, and options of a command."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from aggr.arguments import checked_whole, shown
from tiltframe.parameter_names import parameter_text
from tiltframe.store.query.query import Query
from tiltframe.text.measures import query_measures_from

REPEATABLE_PARAMETERS = ("per", "measures", "keys", "order_by")  # parameters that may be repeated

LEAST_NUMBERS = {"limit": 0, "points": 1}  # integer parameters, with the smallest number that each allows
BOOLEAN_PARAMETERS = tuple(field.name for field in fields(Query) if field.type == "bool")
_BOOLEANS = {"true": True, "false": False}


def query_from_words(words: Mapping[str, str | Sequence[str]]) -> Query:
    """Return the query whose parameters are written as text.

    Parameters
    ----------
    words : mapping
        Maps the name of a parameter of `Query` to its text, or to a list of texts if the parameter is repeated.
        Booleans are ``true`` or ``false``, in any case, and numbers are decimal digits. If ``measures`` is repeated,
        each text is the name of a measure, or a definition such as ``rate=errors/n``. A single text may list several
        measures or keys: names separated by commas, or JSON. JSON is also allowed for a window, as `Query.describe`
        returns it.

    Returns
    -------
    Query

    Raises
    ------
    ValueError
        If a text cannot be read, if a parameter does not exist or must not be repeated, or for the same reasons as
        `Query`.

    Examples
    --------
    >>> query_from_words({"per": "1h", "measures": ["n", "rate=errors/n"], "limit": "5"}).measures
    {'n': 'n', 'rate': 'errors/n'}
    >>> query_from_words({"per": "1h", "keys": "host, path", "flat": "TRUE"}).keys
    ('host', 'path')
    """
    members: dict[str, Any] = {}
    for name, text in words.items():
        if isinstance(text, str):
            members[name] = _value_of_text(name, text)
        elif name in REPEATABLE_PARAMETERS:
            texts = [part for part in text if part]
            members[name] = query_measures_from(texts) if name == "measures" else texts
        elif len(text) == 1:
            members[name] = _value_of_text(name, text[0])
        else:
            raise ValueError(f"{name} is passed {len(text)} times; pass it once")
    return Query.from_dict(members)


def truth_from_text(name: str, text: str) -> bool:
    """Return the boolean of a parameter that is written as text.

    Parameters
    ----------
    name : str
        The parameter, for the message.
    text : str
        ``true`` or ``false``, in any case. Spaces around it are ignored.

    Returns
    -------
    bool

    Raises
    ------
    ValueError
        If the text is neither ``true`` nor ``false``.

    Examples
    --------
    >>> truth_from_text("flat", " TRUE ")
    True
    """
    truth = _BOOLEANS.get(text.strip().lower())
    if truth is None:
        raise ValueError(f"{parameter_text(name)} must be true or false; got {shown(text)}")
    return truth


def number_from_text(name: str, text: str, low: int = 0) -> int:
    """Return the whole number of a parameter that is written as text.

    Parameters
    ----------
    name : str
        The parameter, for the message.
    text : str
        At most 18 decimal digits. Spaces around them are ignored.
    low : int
        The smallest number that is allowed.

    Returns
    -------
    int

    Raises
    ------
    ValueError
        If the text is not a number, or if the number is smaller than ``low``.

    Examples
    --------
    >>> number_from_text("limit", "100")
    100
    """
    is_number = re.fullmatch(r"\s*[0-9]{1,18}\s*", text)
    return checked_whole(int(text) if is_number else text, parameter_text(name), low)


def _value_of_text(name: str, text: str) -> Any:
    """Return the value of a parameter from its text, such as ``true`` or ``10``."""
    is_json = text.lstrip().startswith(("[", "{"))
    if name in BOOLEAN_PARAMETERS or (name == "fill" and text.strip().lower() in _BOOLEANS):
        return truth_from_text(name, text)
    if name in LEAST_NUMBERS:
        return number_from_text(name, text, LEAST_NUMBERS[name])
    if name in ("measures", "keys"):
        return _read_names(name, text) if is_json else [part.strip() for part in text.split(",") if part.strip()]
    if name == "per":
        return _read_json(name, text, "a window such as 1h") if is_json else text.strip()
    return text


def _read_names(name: str, text: str) -> Any:
    """Return a list of names, or a dict of names to definitions, that is written as JSON."""
    values = _read_json(name, text, "names separated by commas")
    if isinstance(values, list) and not all(isinstance(value, str) for value in values):
        raise ValueError(f"{name} must be names, separated by commas or as a list in JSON; got {text}")
    return values


def _read_json(name: str, text: str, alternative: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError(f"cannot read {name} {text!r} as JSON; write {alternative}") from None
