"""Column uses: how keys, measures and a condition use the values of each column of the rows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import pyarrow as pa

from aggr import sql
from aggr.measure import Measure
from aggr.remembered import remembered
from aggr.sql.inputs import columns_in, is_column, quoted
from aggr.sql.number_columns import Use
from aggr.tables.keys import KeyPath, columns_keys_may_read, key_paths, names_with_keys, records_of_keys

Uses = Mapping[str, frozenset[Use]]
_NUMBERS = frozenset({Use.NUMBER, Use.ORDER})
_NO_USES: frozenset[Use] = frozenset()


@dataclass(frozen=True)
class ColumnUses:
    """The keys, the measures and the condition ``where``, which read columns of the rows.

    ``measures`` contains one tuple per column of states, with the measures that share it.

    Examples
    --------
    >>> import aggr
    >>> uses = ColumnUses({"zip": "zip"}, ((aggr.sum("price * 2"),),)).among(("zip", "price"))
    >>> {name: [use.value for use in found] for name, found in uses.items()}
    {'zip': ['keep'], 'price': ['number']}
    """

    keys: Mapping[str, str] = field(default_factory=dict)
    measures: tuple[tuple[Measure, ...], ...] = ()
    where: str | None = None

    @remembered
    def among(self, names: tuple[str, ...]) -> Uses:
        """Return the uses of each column in ``names``. Columns that are not read are left out.

        An expression that reads a column outside ``names`` is ignored, because the frame raises an error for such an
        expression later.
        """
        uses: dict[str, frozenset[Use]] = {}
        try:
            readable = names_with_keys(self.keys, names)
        except ValueError:
            readable = list(names)
        for text, use in self._texts_with_uses():
            for name, part in _uses_in(text, readable):
                if name in names:
                    uses[name] = uses.get(name, _NO_USES) | {use if part is Use.VALUE else part}
        conditions = [self.where, *(measure.where for group in self.measures for measure in group)]
        for condition in conditions:
            if condition is None:
                continue
            for path, use in sql.uses_of(condition):
                column = sql.column_in(path, names)
                if column is not None:
                    uses[column] = uses.get(column, _NO_USES) | {use}
        return uses

    def complete_structs(self, schema: pa.Schema) -> frozenset[str]:
        """Return the columns in which a key, a measure or the condition reads a complete struct.

        A column is included if the column itself, or a struct or a list inside it, is read as a value.
        """
        names = schema.names
        complete_columns = set[str]()
        readable = [name for name, field in zip(names, schema, strict=True) if pa.types.is_nested(field.type)]
        if not readable:
            return frozenset()
        conditions = [self.where, *(measure.where for group in self.measures for measure in group)]
        texts = [(text, "expression") for text, _ in self._texts_with_uses()]
        texts += [(text, "condition") for text in conditions if text is not None]
        paths = list[str]()
        # Invalid texts are ignored here, because the frame raises an error for them later.
        with suppress(ValueError):
            paths += records_of_keys(self.keys, names).values()
        for text, what in texts:
            with suppress(ValueError):
                read = sql.uses_among(text, names, what) if text not in names else [(text, Use.VALUE)]
                paths += [path for path, _ in read]
        for path in paths:
            column = sql.column_in(path, readable)
            with suppress(ValueError):
                if column is not None and pa.types.is_nested(sql.value_type(quoted(path), schema)):
                    complete_columns.add(column)
        return frozenset(complete_columns)

    def is_missing(self, schema: pa.Schema) -> bool:
        """Return whether a key or a measure reads a column that is missing in a schema, or has the null type."""
        try:
            readable = names_with_keys(self.keys, schema.names)
            read = [
                name
                for text, _ in self._texts_with_uses()
                for name in columns_in(text, readable)
                if name in schema.names
            ]
        except ValueError:
            return True
        return any(pa.types.is_null(schema.field(name).type) for name in read)

    def key_paths(self, names: Collection[str]) -> list[KeyPath]:
        """Return the path of each key that is a column, a field of a column, or ``each`` of one of them.

        `aggr.tables.keys.key_paths` computes the paths.
        """
        return key_paths(self.keys, names)

    def keys_may_read(self) -> tuple[str, ...]:
        """Return all names in the keys that may be columns. The columns of the rows need not be known yet."""
        return columns_keys_may_read(self.keys)

    def conflict(self, name: str) -> tuple[Measure, ...]:
        """Return the measures that share a state and use the column ``name`` both as values to copy and as numbers.

        The result is empty if there are no such measures. Uses for two different inputs do not conflict: in
        ``arg_max('x', by='x')``, the values are copied as text for the first input, and compared as numbers for the
        second.
        """
        for group in self.measures:
            for same_input in zip(*(measure.input_uses() for measure in group), strict=True):
                uses = {use for text, use in same_input if text == name}
                if Use.KEEP in uses and uses & _NUMBERS:
                    return group
        return ()

    def _texts_with_uses(self) -> Iterator[tuple[str, Use]]:
        yield from ((text, Use.KEEP) for text in self.keys.values())
        for group in self.measures:
            for measure in group:
                yield from measure.input_uses()


def _uses_in(text: str, names: Collection[str]) -> list[tuple[str, Use]]:
    """Return the columns that a text reads, with their uses.

    The result is empty if the text cannot be parsed, or reads a column that is not in ``names``.
    """
    with suppress(ValueError):
        if is_column(text, names):
            return [(text, Use.VALUE)]
        columns_in(text, names)
        uses = [(sql.column_in(name, names), use) for name, use in sql.uses_among(text, names, "expression")]
        return [(name, use) for name, use in uses if name is not None]
    return []
