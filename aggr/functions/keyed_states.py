"""Keyed states: states that map keys to states of other functions. A state for too many keys can contain a sample of
the keys.

group 0    theta 2^63-1    ("a", n: 3, p: …)  ("c", n: 1, p: …)       keys in their order, each with its states

If there are more than `max` keys, an error is raised, the list becomes null (`aggr.functions.limits`), or the `max`
keys with the smallest hashes are kept. A key in the sample of all rows is also in the sample of every part of the rows
that contains the key. The merged states of a key in the final sample therefore cover all rows of the key. theta is the
smallest hash outside of the sample. The sample therefore contains each key with the probability theta / 2^63. A sum
over the sampled keys, divided by this probability, is an unbiased estimate of the sum over all keys.

Source: Cohen, Kaplan, "Summarizing data using bottom-k sketches", PODC 2007.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from aggr.arrays import Flags, Floats, Ids, Whole
from aggr.arrow.damaged_state import RESTORE, DamagedState, field_of_type
from aggr.arrow.normalize import normalize_floats
from aggr.arrow.row_hash import NO_THRESHOLD, hash64
from aggr.excluded_counts import ExcludedCounts
from aggr.fields import Field
from aggr.function import Function
from aggr.functions.limits import ERROR, Limit, absorbed_groups, null_lists
from aggr.functions.value_lists import check_set, checked_entries, entries_of, lists_of
from aggr.groups.groups import Groups, group_by
from aggr.groups.numbers import sum_by_group
from aggr.state_checks import check_states, mark_as_checked

SAMPLE = "sample"  # the value of ``beyond`` for which a state with too many keys keeps a sample of its keys
_KEY = "key"


class KeyGroups(NamedTuple):
    """The keys of one map per group, and the assignment of rows (or states) to these keys.

    A group is called the owner of its keys. ``keys`` contains the keys of all maps, ordered by owner and then by key,
    and ``owners`` the owner of each key. ``rows`` is a mask of the rows whose key is in ``keys``, or None if no row is
    left out. Rows are left out if their key is outside the sample, or if their owner has too many keys and its map
    therefore becomes null. ``groups`` assigns each row in the mask to an entry of ``keys``. ``thetas`` has one hash per
    owner: all keys of the owner with smaller hashes are in ``keys``. ``beyond`` is a mask of the owners whose map
    becomes null because of too many keys, or None if no map does.
    """

    groups: Groups
    rows: Flags | None
    keys: pa.Array
    owners: Ids
    thetas: Whole
    beyond: Flags | None = None


@dataclass(frozen=True)
class KeyedStates(Field):
    """The field of a state: a map from up to ``max`` keys to states of other functions.

    ``functions`` contains the names and the functions. For a group with more keys, ``beyond`` determines whether an
    error is raised (``"error"``), the map becomes null (``"null"``), or a sample of the keys is kept (``"sample"``).
    ``instead`` is the part of the error message that names an alternative.
    """

    functions: tuple[tuple[str, Function], ...]
    max: int
    beyond: str = ERROR
    instead: str = "keep a sample of the keys by beyond='sample'"

    def group(self, keys: pa.Array, owners: Groups) -> KeyGroups:
        """Group rows by their owner and by their key.

        ``owners`` contains the owner of each row, which is a group. ``keys`` contains the key of each row, and no
        nulls.
        """
        return self._group(normalize_floats(keys), owners, np.full(owners.n, NO_THRESHOLD))

    def pack(self, keyed: KeyGroups, states: list[pa.StructArray]) -> pa.StructArray:
        """Return one map of keys to states for each owner in ``keyed``. An owner is a group of rows.

        ``states`` has one column per function, with one state for each of ``keyed.keys``.
        """
        names = [_KEY, *(name for name, _ in self.functions)]
        entries = pa.StructArray.from_arrays([keyed.keys, *states], names=names)
        lists = lists_of(entries, np.bincount(keyed.owners, minlength=len(keyed.thetas)), keyed.beyond)
        return pa.StructArray.from_arrays([pa.array(keyed.thetas), lists], names=["theta", "entries"])

    def merge(self, column: pa.StructArray, groups: Groups) -> pa.StructArray:
        thetas = np.full(groups.n, NO_THRESHOLD)
        np.minimum.at(thetas, groups.ids, column.field("theta").to_numpy())
        entries, owners = entries_of(column.field("entries"), groups)
        absorbed = absorbed_groups(column.field("entries"), groups)
        keyed = self._group(entries.field(_KEY), owners, thetas, absorbed)
        if keyed.rows is not None:
            entries = entries.filter(pa.array(keyed.rows))
        merged = [
            function.merge(mark_as_checked(entries.field(name)), keyed.groups) for name, function in self.functions
        ]
        return self.pack(keyed, [states.states for states in merged])

    def finish(self, column: pa.StructArray) -> tuple[pa.StructArray, Groups]:
        """Return the results for all keys of all maps, as one column of structs, and the number of the map of each key.

        A struct contains the key and the result of each function. Maps are numbered by their rows in ``column``.
        """
        entries, owners = entries_of(column.field("entries"), Groups.each(len(column)))
        results = {name: function.finish(mark_as_checked(entries.field(name))) for name, function in self.functions}
        columns = {_KEY: entries.field(_KEY), **results}
        return pa.StructArray.from_arrays(list(columns.values()), names=list(columns)), owners

    def shares(self, column: pa.StructArray) -> Floats:
        """Return the sampling probability of each map: the expected share of the group's keys that are in the map.

        The probability is 1 unless the map is a sample.
        """
        thetas = column.field("theta").to_numpy()
        return np.where(thetas == NO_THRESHOLD, 1.0, thetas / 2.0**63)

    def beyond_limit(self, column: pa.StructArray) -> Flags | None:
        """Return a mask of the maps whose entries are null because of too many keys, or None if no map has null."""
        return null_lists(column.field("entries"))

    def excluded_counts(self, column: pa.StructArray) -> ExcludedCounts:
        """Return how many groups and how many values the results of each map leave out.

        Both numbers are summed over all states in the map. A map that is null because of too many keys counts as one
        group.
        """
        beyond = self.beyond_limit(column)
        by_kind: list[list[Whole]] = [[] if beyond is None else [beyond.astype(np.int64)], []]
        entries, owners = entries_of(column.field("entries"), Groups.each(len(column)))
        for name, function in self.functions:
            counts_of_keys = function.own_state.excluded_counts(entries.field(name))
            for total, counts in zip(by_kind, counts_of_keys, strict=True):
                if counts is not None:
                    total.append(sum_by_group(counts, owners))
        return ExcludedCounts(*(np.sum(counts, axis=0) if counts else None for counts in by_kind))

    def _group(self, keys: pa.Array, owners: Groups, thetas: Whole, absorbed: Flags | None = None) -> KeyGroups:
        """Group rows by owner and key. Leave out the keys outside the samples, and all keys of maps that become null.

        ``owners`` contains the group of each row, which is the owner of the row's key. ``thetas`` has the lowest theta
        of the states that are merged for each owner. ``absorbed`` is a mask of the owners for which a merged map
        already had too many keys and is null.
        """
        groups, first_rows = group_by([pa.array(owners.ids), keys], len(keys))
        keys = keys.take(pa.array(first_rows))
        key_owners = owners.ids[first_rows]
        counts = np.bincount(key_owners, minlength=owners.n)
        keyed = KeyGroups(groups, rows=None, keys=keys, owners=key_owners, thetas=thetas)
        if self.beyond != SAMPLE:
            limit = Limit(self.max, self.beyond)
            beyond = limit.groups_beyond(counts, "the map", self.instead, absorbed)
            return keyed if beyond is None else _select_keys(keyed, ~beyond[key_owners])._replace(beyond=beyond)
        crowded = counts > self.max
        if not crowded.any():
            # Here, no group has more than max keys, so no keys need to be removed. A sample has exactly max keys. If
            # samples were merged for a group, all of them therefore contain the same keys, which are all keys of the
            # group. ``thetas`` has the lowest theta of the samples, and all keys of the group have smaller hashes.
            return keyed
        hashes = hash64(keys)
        thetas = thetas.copy()
        is_crowded_key = crowded[key_owners]
        thetas[crowded] = _next_thetas(
            hashes[is_crowded_key], key_owners[is_crowded_key], thetas, crowded=crowded, max_keys=self.max
        )
        return _select_keys(keyed, hashes < thetas[key_owners])._replace(thetas=thetas)

    def check(self, column: pa.Array) -> None:
        names = [_KEY, *(name for name, _ in self.functions)]
        if not pa.types.is_struct(column.type) or sorted(f.name for f in column.type) != ["entries", "theta"]:
            raise DamagedState(f"has type {column.type}, not a struct of theta and entries")
        entries, lengths = checked_entries(column.field("entries"), self.max, self.beyond)
        if not pa.types.is_struct(entries.type) or [f.name for f in entries.type] != names:
            raise DamagedState(f"has entries of type {entries.type}, not structs of {', '.join(names)}")
        check_set(entries.field(_KEY), lengths)
        self._check_thetas(field_of_type(column.field("theta"), pa.int64()).to_numpy(), entries.field(_KEY), lengths)
        for name, function in self.functions:
            states = entries.field(name)
            try:
                if states.null_count:
                    raise DamagedState("contains null in some states")
                check_states(function.own_state, states, function, False, is_complete=True)
            except ValueError as problem:
                cause = str(problem).removesuffix(RESTORE)
                raise DamagedState(f"contains wrong states of the result {name!r}: {cause}") from None

    def _check_thetas(self, thetas: Whole, keys: pa.Array, lengths: Whole) -> None:
        sampled = thetas < NO_THRESHOLD
        if not sampled.any():
            return
        has_max_keys = self.beyond == SAMPLE and (lengths[sampled] == self.max).all()
        if not has_max_keys or (hash64(keys) >= np.repeat(thetas, lengths)).any():
            raise DamagedState("is a sample that does not consist of the keys with the smallest hashes")


def _select_keys(keyed: KeyGroups, is_kept: Flags) -> KeyGroups:
    """Return only the keys that the mask ``is_kept`` selects, and only the rows with these keys."""
    rows = is_kept[keyed.groups.ids]
    new_positions = np.cumsum(is_kept) - 1
    groups = Groups(new_positions[keyed.groups.ids[rows]], int(is_kept.sum()))
    keys = keyed.keys.filter(pa.array(is_kept))
    return keyed._replace(groups=groups, rows=rows, keys=keys, owners=keyed.owners[is_kept])


def _next_thetas(hashes: Whole, owners: Ids, thetas: Whole, crowded: Flags, max_keys: int) -> Whole:
    """Return the new theta of each group with too many keys: the smallest hash outside the group's sample.

    ``crowded`` is a mask of the groups with too many keys. ``hashes`` and ``owners`` have the hash and the group of
    each key of such groups. ``max_keys`` is the number of keys in a sample. The previous theta of a group, in
    ``thetas``, counts as one more hash of the group.
    """
    owners = np.concatenate([owners, np.flatnonzero(crowded)])
    hashes = np.concatenate([hashes, thetas[crowded]])
    order = np.lexsort((hashes, owners))
    owners = owners[order]
    hashes = hashes[order]
    is_new = np.append(True, (owners[1:] != owners[:-1]) | (hashes[1:] != hashes[:-1]))
    first_positions = np.flatnonzero(np.append(True, np.diff(owners[is_new]) != 0))
    new_thetas: Whole = hashes[is_new][first_positions + max_keys]
    return new_thetas
