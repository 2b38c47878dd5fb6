"""Labels: keys as text, which series a selector's matchers choose, and what aggregations keep apart."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import promql_parser
import pyarrow as pa
from numpy.typing import NDArray

from aggr.arguments import shown
from aggr.arrow import compute as pc
from aggr.arrow.normalize import normalize
from tiltframe.serve.errors import BadData
from tiltframe.text.results import iso_times, plain

Labels = Mapping[str, str]

NAME = "__name__"

_EQUAL, _UNEQUAL = promql_parser.MatchOp.Equal, promql_parser.MatchOp.NotEqual
_PLAIN = re.compile(r"[\w .:/@-]+", re.ASCII)  # needs no escape in SQL, and but for the point none in RE2


@dataclass(frozen=True)
class Matcher:
    """A condition on one label: ``=`` and ``!=`` a text, or ``=~`` and ``!~`` an expression of RE2 for all of it."""

    label: str
    text: str
    regex: bool
    negated: bool

    @classmethod
    def of(cls, matcher: promql_parser.Matcher) -> Matcher:
        """Take it from the parser."""
        regex = matcher.op not in (_EQUAL, _UNEQUAL)
        negated = matcher.op in (_UNEQUAL, promql_parser.MatchOp.NotRe)
        return cls(matcher.name, matcher.value, regex, negated)

    def matches(self, texts: pa.Array) -> NDArray[np.bool_]:
        """Say which texts match; null, an absent label, is the empty text. Raises `BadData` for a wrong expression."""
        texts = pc.fill_null(texts, "")
        if not self.regex:
            found = pc.equal(texts, self.text)
        else:
            try:
                found = pc.match_substring_regex(texts, rf"\A(?:{self.text})\z")
            except pa.ArrowInvalid as error:
                said = str(error).removeprefix("Invalid regular expression: ").split(":")[0]
                raise BadData(f"the regular expression {shown(self.text)} is not RE2's: {said}") from None
        mask: NDArray[np.bool_] = found.to_numpy(zero_copy_only=False) ^ self.negated
        return mask

    def takes(self, text: str) -> bool:
        """Say whether one text matches."""
        return bool(self.matches(pa.array([text]))[0])

    def condition(self, key: str) -> str | None:
        """Write it as SQL on a key of texts, for stores to leave out files by; None if that would take thought."""
        grouped = self.regex and self.text.startswith("(") and self.text.endswith(")")
        choice = self.text[1:-1] if grouped else self.text
        texts = choice.split("|") if self.regex else [choice]
        if self.negated or not all(_PLAIN.fullmatch(text) for text in texts) or (self.regex and "." in choice):
            return None
        quoted = ", ".join(f"'{text}'" for text in texts)
        return f"`{key.replace('`', '``')}` IN ({quoted})"


@dataclass(frozen=True)
class Grouping:
    """Which labels an aggregation keeps apart: ``by`` some, or ``without`` some."""

    labels: tuple[str, ...] = ()
    without: bool = False

    def keeps(self, label: str) -> bool:
        """Say whether a label is kept."""
        return (label in self.labels) != self.without and not (self.without and label == NAME)

    def kept(self, labels: Labels) -> dict[str, str]:
        """Choose the labels that are kept."""
        return {label: text for label, text in labels.items() if self.keeps(label)}

    def groups(self, series: Sequence[Labels]) -> tuple[NDArray[np.intp], list[dict[str, str]]]:
        """Number the groups of series, in their order, and say which labels each has."""
        numbers: dict[tuple[tuple[str, str], ...], int] = {}
        ids = [numbers.setdefault(identity(self.kept(labels)), len(numbers)) for labels in series]
        return np.array(ids, np.intp), [dict(labels) for labels in numbers]


ALL = Grouping(without=True)  # but for the name, which no function keeps


def identity(labels: Labels) -> tuple[tuple[str, str], ...]:
    """Make labels what a dict can be keyed by."""
    return tuple(sorted(labels.items()))


def label_texts(column: pa.ChunkedArray) -> pa.Array:
    """Write keys as text; null, and the empty text, is an absent label.

    >>> label_texts(pa.chunked_array([[1, None]])).to_pylist(), label_texts(pa.chunked_array([["", "a"]])).to_pylist()
    (['1', None], [None, 'a'])
    """
    keys = normalize(column)
    if not pa.types.is_string(keys.type):
        encoded = pc.dictionary_encode(keys)
        texts = iso_times(encoded.dictionary) if pa.types.is_timestamp(keys.type) else encoded.dictionary
        written = pa.array([text if isinstance(text, str) else _text(text) for text in texts.to_pylist()], pa.string())
        keys = written.take(encoded.indices)
    return pc.if_else(pc.equal(keys, ""), pa.scalar(None, pa.string()), keys)


def _text(key: object) -> str:
    text = plain(key)
    return str(text).lower() if isinstance(text, bool) else str(text)


def chosen(texts: Mapping[str, pa.Array], matchers: Iterable[Matcher], rows: int) -> NDArray[np.bool_]:
    """Say which rows match all matchers; a label that is not among the columns is absent from every row."""
    mask = np.ones(rows, np.bool_)
    for matcher in matchers:
        if matcher.label not in texts:
            mask &= matcher.takes("")
            continue
        encoded = pc.dictionary_encode(pc.fill_null(texts[matcher.label], ""))
        mask &= matcher.matches(encoded.dictionary)[encoded.indices.to_numpy()]
    return mask
