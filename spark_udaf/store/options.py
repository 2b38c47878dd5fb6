"""Options: a query of a store, as the text that Spark's options are, and back.

A list of names is written ``p, n``, or as JSON where names have commas in them; new measures are JSON.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from aggr import Measure, from_description, get
from aggr.function import column_keywords
from aggr.states.flat_results import flat_schema, flattened
from tiltframe import FrameStore
from tiltframe.level_chain import labelled
from tiltframe.store import StoreError
from tiltframe.store.backends.open import absolute_uri
from tiltframe.store.backends.protocol import Backend
from tiltframe.store.manifest import Manifest
from tiltframe.store.query.execution import execute, moment, read_states
from tiltframe.store.query.plan import ALL, QueryPlan, plan_query
from tiltframe.store.query.results import answers, requested_states

STORAGE = "storage."
_ASKED = ("per", "within", "where", "keys", "measures", "fill", "flat", "states", "now")
KNOWN = ("path", *_ASKED, "name", "rows_per_task")
ROWS_PER_TASK = 50_000  # states of some kilobytes: some hundred megabytes a task
_TABLE = {"owner", "provider"}  # options of a CREATE TABLE, with which Spark tells whose the table is


@dataclass(frozen=True)
class StoreQuery:
    """A query of a store; it pickles, for the tasks that run it.

    Parameters
    ----------
    backend : Backend
    manifest : Manifest
    plan : QueryPlan
    fill : bool
        Give windows without events too.
    flat : bool
        Give plain columns in place of records.
    states : bool
        Give the states of a level in place of results.
    now : moment or None
        For `partial`; the clock's, when it is read.
    rows_per_task : int
        Rows of states, about.
    """

    backend: Backend
    manifest: Manifest
    plan: QueryPlan
    fill: bool
    flat: bool
    states: bool
    now: str | None
    rows_per_task: int

    @property
    def whole(self) -> bool:
        """Whether one task must see all: there is but one window, or keys of the whole range fill it."""
        return self.fill or self.plan.whole

    @property
    def schema(self) -> pa.Schema:
        """The schema of the results, for which nothing is read."""
        nothing = requested_states(self.manifest.schema.empty_table(), self.plan, (0, 0))
        if self.states:
            return labelled(nothing, self.plan.frame, self.plan.target).schema
        schema = answers(nothing, self.plan, 0, 0).schema
        return flat_schema(schema) if self.flat else schema

    def execute(self, plan: QueryPlan) -> pa.Table:
        """Execute the plan, or one of a part of its range."""
        if self.states:
            return labelled(read_states(self.backend, self.manifest, plan), plan.frame, plan.target)
        now = moment(self.now, plan.frame.timezone)
        results = pa.concat_tables(execute(self.backend, self.manifest, plan, self.fill, now))
        return flattened(results) if self.flat else results


def to_options(
    uri: str | os.PathLike[str],
    measures: Sequence[str] | Mapping[str, Measure] | None,
    keys: Sequence[str] | None,
    storage_options: Mapping[str, str] | None,
    **given: Any,
) -> dict[str, str]:
    """Write parameters of `tiltframe.FrameStore.query` as options."""
    if not isinstance(uri, str | os.PathLike):
        raise TypeError(f"say where the store is, by a path or URI; got {uri!r}")
    if not isinstance(storage_options or {}, Mapping):
        raise TypeError(f"storage_options must be options by name; got {storage_options!r}")
    for name in ("where", "name"):
        if not isinstance(given.get(name, ""), str | None):
            raise TypeError(f"{name} must be text; got {given[name]!r}")
    texts = {name: _text(value) for name, value in given.items()}
    texts |= {"measures": _measures(measures), "keys": _names("keys", keys)}
    texts |= {STORAGE + name: value for name, value in (storage_options or {}).items()}
    return {"path": absolute_uri(os.fspath(uri))} | {name: text for name, text in texts.items() if text is not None}


def _measures(measures: Sequence[str] | Mapping[str, Measure] | None) -> str | None:
    """Write names of measures, or new ones."""
    if not isinstance(measures, Mapping):
        return _names("measures", measures)
    for name, measure in measures.items():
        if not isinstance(measure, Measure):
            raise TypeError(f"cannot ask for {measure!r} as {name!r}; measures are made by aggr, say aggr.sum('x')")
    return json.dumps({name: measure.describe() for name, measure in measures.items()})


def _names(what: str, names: Sequence[str] | None) -> str | None:
    if names is None or isinstance(names, str):
        return names
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise TypeError(f"{what} must be a list of names; got {names!r}")
    return json.dumps(list(names))


def from_options(options: Mapping[str, str]) -> StoreQuery:
    """Read options, and look what is there; raises ``ValueError`` and `StoreError` as `tiltframe.FrameStore` does."""
    if options.keys() >= _TABLE:  # its reader would get the columns alone (PySpark 4.3, PythonDataSourceV2.getTable)
        raise ValueError(
            "Spark's catalog loses the options of a table; use CREATE TEMPORARY VIEW … USING tiltframe OPTIONS "
            "(path '…', per '…'), or su.read"
        )
    unknown = [name for name in options if name not in KNOWN and not name.startswith(STORAGE)]
    if unknown:
        raise ValueError(f"there is no option {unknown[0]!r}; there are {', '.join(KNOWN)} and {STORAGE}…")
    if "path" not in options:
        raise ValueError(
            "say where the store is: load(uri), or the option path; Spark's catalog keeps no options of tables: use "
            "CREATE TEMPORARY VIEW name USING tiltframe OPTIONS (path '…', per '…')"
        )
    storage = {name.removeprefix(STORAGE): text for name, text in options.items() if name.startswith(STORAGE)}
    store = _store(options["path"], options.get("name"), storage)
    if "per" not in options:
        levels = ", ".join(level.name for level in store.frame.levels)
        raise ValueError(f"say what results are per, in the option per: {levels}, a whole multiple of these, or {ALL}")
    measures, keys = _listed("measures", options), _listed("keys", options)
    if isinstance(measures, dict):
        measures = {name: _measure(name, described) for name, described in measures.items()}
    where = options.get("where")
    at = moment(options.get("now"), store.frame.timezone)
    plan = plan_query(store.frame, options["per"].strip(), options.get("within"), where, measures, keys, at)
    rows = _rows(options.get("rows_per_task", str(ROWS_PER_TASK)))
    truths = ("fill", "flat", "states")
    fill, flat, states = (_truth(name, options.get(name, "false")) for name in truths)
    if states:
        _check_states(plan, [name for name in ("fill", "flat", "measures", "keys") if name in options])
    return StoreQuery(store.backend, store.manifest, plan, fill, flat, states, options.get("now"), rows)


def _check_states(plan: QueryPlan, beside: Sequence[str]) -> None:
    """Raise ``ValueError`` where states cannot be given as they are asked for."""
    if beside:
        raise ValueError(f"states are given as the store keeps them, by level: leave out {beside[0]}")
    plan.frame.level(plan.per)


def _store(path: str, name: str | None, storage: Mapping[str, str]) -> FrameStore:
    """Open a store; of a table's path, Spark makes a URI with one slash."""
    if path.startswith("file:/") and not path.startswith("file://"):
        path = "file://" + path.removeprefix("file:")
    try:
        return FrameStore(path, name=name, storage_options=storage)
    except StoreError as error:
        if absolute_uri(path) == path:
            raise
        raise StoreError(f"{error} in {os.getcwd()}, where Spark runs; give the whole path") from None


def _text(value: Any) -> str | None:
    """Write a window, a moment, a range or text."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"{value:09}"  # eight digits would be a date
    if isinstance(value, list | tuple):
        return ",".join(str(_text(each)) for each in value)
    name = getattr(value, "name", None)  # of windows
    return name or (value.isoformat() if hasattr(value, "isoformat") else str(value))


def _listed(what: str, options: Mapping[str, str]) -> Any:
    text = options.get(what)
    if text is None:
        return None
    if not text.lstrip().startswith(("[", "{")):
        return [name.strip() for name in text.split(",") if name.strip()]
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError(f"cannot read {what} {text!r} as JSON; write names with commas between them") from None
    if isinstance(found, list) and not all(isinstance(name, str) for name in found):
        raise ValueError(f"{what} must be names; got {text}")
    return found


def _measure(name: str, described: Any) -> Measure:
    """Read a new measure, as `aggr.Measure.describe` writes it."""
    try:
        if not isinstance(described, dict):
            raise TypeError("it is no object in JSON")
        inputs = column_keywords(get(described["function"]))
        if not {"function", "column", *inputs, "where", "parameters"} >= described.keys():
            raise TypeError(f"there are {', '.join(['function', 'column', *inputs, 'where'])} and parameters")
        return from_description(described)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"cannot read {described!r} as the measure {name!r}; write it as aggr.Measure.describe gives it, "
            f'say {{"function": "sum", "column": "bytes"}} ({error})'
        ) from None


def _truth(name: str, text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise ValueError(f"{name} must be true or false; got {text!r}")
    return text.strip().lower() == "true"


def _rows(text: str) -> int:
    if not text.strip().isdigit() or int(text) < 1:
        raise ValueError(f"rows_per_task must be a whole number from 1; got {text!r}")
    return int(text)
