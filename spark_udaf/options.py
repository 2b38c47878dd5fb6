"""Options: what is asked of a store, as the text that Spark's options are, and back.

A list of names is written ``p, n``, or as JSON where names have commas in them; new measures are JSON.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from aggr import Measure, from_description
from tiltframe import FrameStore
from tiltframe.store.answer import answer, moment
from tiltframe.store.ask import answers
from tiltframe.store.description import Description
from tiltframe.store.question import ALL, Question, question
from tiltframe.store.tables import Tables, whole_path

STORAGE = "storage."
KNOWN = ("path", "per", "within", "where", "keys", "measures", "fill", "now", "name", "rows_per_task", "pushdown")
ROWS_PER_TASK = 50_000


@dataclass(frozen=True)
class Asked:
    """A question to a store, ready to travel to tasks.

    Parameters
    ----------
    tables, description : of the store
    question : Question
    fill : bool
        Give windows without events too.
    now : moment or None
        For `partial`; the clock's, when it is read.
    rows_per_task : int
        Rows of states, about.
    pushdown : bool
        Let filters narrow what is read.
    """

    tables: Tables
    description: Description
    question: Question
    fill: bool
    now: str | None
    rows_per_task: int
    pushdown: bool

    @property
    def whole(self) -> bool:
        """Whether one task must see all: there is but one window, or keys of the whole range fill it."""
        return self.fill or self.question.target is None

    @property
    def schema(self) -> pa.Schema:
        """The schema of the answers, which takes no reading."""
        return answers(self.description.schema.empty_table(), self.question, None, 0, 0).schema

    def answer(self, asked: Question) -> pa.Table:
        """Answer the question, or a part of it."""
        now = moment(self.now, asked.frame.timezone)
        return answer(self.tables, self.description, asked, self.fill, (), None, now)


def to_options(
    uri: str | os.PathLike[str],
    measures: Sequence[str] | Mapping[str, Measure] | None,
    keys: Sequence[str] | None,
    storage_options: Mapping[str, str] | None,
    **asked: Any,
) -> dict[str, str]:
    """Write parameters of `tiltframe.FrameStore.query` as options."""
    texts = {name: _text(value) for name, value in asked.items()}
    if isinstance(measures, Mapping):
        texts["measures"] = json.dumps({name: measure.describe() for name, measure in measures.items()})
    elif measures is not None:
        texts["measures"] = measures if isinstance(measures, str) else json.dumps(list(measures))
    if keys is not None:
        texts["keys"] = keys if isinstance(keys, str) else json.dumps(list(keys))
    texts |= {STORAGE + name: value for name, value in (storage_options or {}).items()}
    return {"path": whole_path(os.fspath(uri))} | {name: text for name, text in texts.items() if text is not None}


def from_options(options: Mapping[str, str]) -> Asked:
    """Read options, and look what is there; raises ``ValueError`` and `StoreError` as `tiltframe.FrameStore` does."""
    unknown = [name for name in options if name not in KNOWN and not name.startswith(STORAGE)]
    if unknown:
        raise ValueError(f"there is no option {unknown[0]!r}; there are {', '.join(KNOWN)} and {STORAGE}…")
    if "path" not in options:
        raise ValueError("say where the store is: load(uri), or the option path")
    storage = {name.removeprefix(STORAGE): text for name, text in options.items() if name.startswith(STORAGE)}
    store = FrameStore(options["path"], name=options.get("name"), storage_options=storage)
    if "per" not in options:
        levels = ", ".join(level.name for level in store.frame.levels)
        raise ValueError(f"say what results are per, in the option per: {levels}, a whole multiple of these, or {ALL}")
    measures, keys = _listed(options.get("measures")), _listed(options.get("keys"))
    if isinstance(measures, dict):
        measures = {name: from_description(described) for name, described in measures.items()}
    where = options.get("where")
    asked = question(store.frame, options["per"].strip(), options.get("within"), where, measures, keys)
    moment(options.get("now"), store.frame.timezone)  # which must be one
    rows = _rows(options.get("rows_per_task", str(ROWS_PER_TASK)))
    fill, pushdown = (_truth(name, options.get(name, "false")) for name in ("fill", "pushdown"))
    return Asked(store.tables, store.description, asked, fill, options.get("now"), rows, pushdown)


def _text(value: Any) -> str | None:
    """Write a window, a moment, a range or text."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(str(_text(each)) for each in value)
    name = getattr(value, "name", None)  # of windows
    return name or (value.isoformat() if hasattr(value, "isoformat") else str(value))


def _listed(text: str | None) -> Any:
    if text is None:
        return None
    if not text.lstrip().startswith(("[", "{")):
        return [name.strip() for name in text.split(",") if name.strip()]
    try:
        return json.loads(text)
    except ValueError:
        raise ValueError(f"cannot read {text!r} as JSON; write names with commas between them") from None


def _truth(name: str, text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise ValueError(f"{name} must be true or false; got {text!r}")
    return text.strip().lower() == "true"


def _rows(text: str) -> int:
    if not text.strip().isdigit() or int(text) < 1:
        raise ValueError(f"rows_per_task must be a whole number from 1; got {text!r}")
    return int(text)
