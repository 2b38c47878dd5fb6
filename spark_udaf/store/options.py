"""Options: convert a query of a store to Spark's options, which are texts, and back.

A list of names is written ``p, n``, or as JSON if names contain commas. Measures that the store does not have are
declared in JSON.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from tiltframe import FrameStore, Query
from tiltframe.store import (
    BOOLEAN_PARAMETERS,
    PlannedQuery,
    StoreError,
    number_from_text,
    query_from_words,
    truth_from_text,
)
from tiltframe.store.backends import absolute_uri
from windows import AllTime

STORAGE = "storage."
_TEXT_FIELDS = ("per", "within", "where", "keys", "measures", "having", "points", "timezone", "now", "fill", "edges")
_QUERY_FIELDS = (*_TEXT_FIELDS, *BOOLEAN_PARAMETERS)
_STATES_FIELDS = ("per", "within", "where", "now")  # The query options that are allowed with states=true.
WARN = "warn"
OPTIONS = ("path", *_QUERY_FIELDS, "states", "name", "rows_per_task", WARN)
# The default number of rows of states per task. With a few kilobytes per row, a task needs some hundred megabytes.
ROWS_PER_TASK = 50_000
_CATALOG_OPTIONS = {"owner", "provider"}  # Options that Spark adds in CREATE TABLE.


def to_options(
    uri: str | os.PathLike[str], query: Query, storage_options: Mapping[str, str] | None, **options: Any
) -> dict[str, str]:
    """Return a query of the store at ``uri`` as options of Spark. ``options`` are further settings, such as
    ``rows_per_task``.
    """
    if not isinstance(uri, str | os.PathLike):
        raise TypeError(f"the store must be a path or URI; got {uri!r}")
    if not isinstance(storage_options or {}, Mapping):
        raise TypeError(f"storage_options must be a dict of names to options; got {storage_options!r}")
    if not isinstance(options.get("name"), str | None):
        raise TypeError(f"name must be text; got {options['name']!r}")
    values = {**query.describe(), **{name: value for name, value in options.items() if value is not None}}
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in values.items()}
    texts |= {STORAGE + name: value for name, value in (storage_options or {}).items()}
    return {"path": absolute_uri(os.fspath(uri))} | texts


def from_options(options: Mapping[str, str]) -> tuple[PlannedQuery, int]:
    """Return two values: the query that Spark's options describe, planned for the store, and the approximate number of
    rows of states per task. Raise ``ValueError`` for invalid options, and `StoreError` if the store cannot be opened.
    """
    # CREATE TABLE … USING tiltframe cannot work: for a table of its catalog, Spark passes the columns to the reader,
    # but not the options (PySpark 4.3, PythonDataSourceV2.getTable).
    if options.keys() >= _CATALOG_OPTIONS:
        raise ValueError(
            "Spark's catalog loses the options of a table; use CREATE TEMPORARY VIEW … USING tiltframe OPTIONS "
            "(path '…', per '…'), or su.read"
        )
    unknown_options = [name for name in options if name not in OPTIONS and not name.startswith(STORAGE)]
    if unknown_options:
        raise ValueError(f"unknown option {unknown_options[0]!r}; the options are {', '.join(OPTIONS)} and {STORAGE}…")
    if "path" not in options:
        raise ValueError(
            "the path of the store is missing; pass load(uri), or the option path. Spark's catalog does not keep the "
            "options of tables; use "
            "CREATE TEMPORARY VIEW name USING tiltframe OPTIONS (path '…', per '…')"
        )
    storage = {name.removeprefix(STORAGE): text for name, text in options.items() if name.startswith(STORAGE)}
    store = _open_store(options["path"], options.get("name"), storage)
    if not {"per", "points"} & options.keys():
        levels = ", ".join(level.name for level in store.frame.levels)
        raise ValueError(
            f"the option per is missing; set it to the window of the results: {levels}, a whole multiple of a level, "
            f"or {AllTime().name}"
        )
    query = query_from_words({name: options[name] for name in _QUERY_FIELDS if name in options})
    states = truth_from_text("states", options.get("states", "false"))
    if len(query.sizes) > 1:
        raise ValueError(
            f"a DataFrame can have results of only one kind of window; got per={options['per']}; read each kind "
            "separately"
        )
    if states:
        unsupported_options = [name for name in _QUERY_FIELDS if name in options and name not in _STATES_FIELDS]
        if unsupported_options:
            raise ValueError(
                f"the option {unsupported_options[0]} cannot be used with states=true, which returns the states of a "
                "level; leave it out"
            )
        store.frame.level(query.sizes[0])
    should_warn(options)  # This call raises an error if the option ``warn`` has an invalid value.
    rows = number_from_text("rows_per_task", options.get("rows_per_task", str(ROWS_PER_TASK)), 1)
    return store.plan(query, as_states=states, stored_types=True), rows


def should_warn(options: Mapping[str, str]) -> bool:
    """Return whether to warn of windows that have expired, and of measures that were added after rows were written."""
    return truth_from_text(WARN, options.get(WARN, "true"))


def _open_store(path: str, name: str | None, storage: Mapping[str, str]) -> FrameStore:
    """Return the store at a path or URI. A URI with one slash, such as ``file:/a``, is also accepted, because
    Spark converts the path of a table to this form.
    """
    if path.startswith("file:/") and not path.startswith("file://"):
        path = "file://" + path.removeprefix("file:")
    try:
        return FrameStore(path, name=name, storage_options=storage)
    except StoreError as error:
        if absolute_uri(path) == path:
            raise
        problem = str(error).partition("; ")[0]
        raise StoreError(f"{problem} in {os.getcwd()}, the working directory of Spark; pass an absolute path") from None
