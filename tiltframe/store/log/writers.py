"""Writers: each commit is identified by the name of a writer and a number. For each writer, the store records the last
number, and fingerprints of the states in the writer's last commits.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.arguments import checked_whole, is_name, shown
from aggr.arrow.row_hash import row_hashes
from tiltframe.names import START
from tiltframe.store.log.records import RECORD_PREFIX

if TYPE_CHECKING:
    from tiltframe.store.log.manifest import Manifest
    from tiltframe.store.log.snapshot import Snapshot

# A digest of the states of a commit, as two 64-bit numbers.
Digest: TypeAlias = tuple[int, int]
# The key of an entry in the record of a writer. The entry has the number of values that the measures with
# ``bad_values="skip"`` have skipped: commit number → column of states → number of values.
REFUSED = "refused"


def check_writer(writer: str, commit: int) -> int:
    """Check the name of a writer and the number of a commit, and return the number.

    Parameters
    ----------
    writer : str
        The name of the writer. The name must not have the prefix of the store's own records.
    commit : int
        The number of the commit, from 0.

    Returns
    -------
    int
        The number.

    Raises
    ------
    ValueError
        If the writer or the number is invalid.

    Examples
    --------
    >>> check_writer("import", 7)
    7
    """
    if not is_name(writer) or writer.startswith(RECORD_PREFIX):
        raise ValueError(
            f"the name of a writer must be text that does not begin with {RECORD_PREFIX!r} and is not empty; "
            f"got {shown(writer)}"
        )
    return checked_whole(commit, "a commit number, which grows with every commit,")


def digests_of(states: pa.Table, manifest: Manifest, *, include_earlier_frames: bool) -> list[Digest]:
    """Return digests of states of the finest level. The first digest is computed from the columns of the store's
    current frame. With ``include_earlier_frames``, further digests follow, one for each earlier frame of the store. An
    earlier frame is left out if the states lack one of its columns. The digests of earlier frames identify a commit
    that is repeated after a change of the frame: the store has recorded it with the digest of the frame at that time.
    """
    return digests_of_each([states], manifest, include_earlier_frames=include_earlier_frames)[0]


def digests_of_each(
    tables: Sequence[pa.Table], manifest: Manifest, *, include_earlier_frames: bool
) -> list[list[Digest]]:
    """Return the result of `digests_of` for each table in ``tables``. All tables have the same schema. For small
    tables, this is faster than one call of `digests_of` per table, because all rows are hashed together.
    """
    frame = manifest.frame
    states = pa.concat_tables(tables)
    run_ends = np.cumsum([table.num_rows for table in tables])
    columns_of_frames = [
        [column.name for column in frame.states],
        *(manifest.earlier if include_earlier_frames else ()),
    ]
    complete_columns = [names for names in columns_of_frames if set(names) <= set(states.column_names)]
    digests = [_digests_of_rows(states, [START, *frame.keys, *names], run_ends) for names in complete_columns]
    return [list(digests_of_table) for digests_of_table in zip(*digests, strict=True)]


def _digests_of_rows(states: pa.Table, columns: Sequence[str], run_ends: NDArray[np.int64]) -> list[Digest]:
    """Return the digest of each run of consecutive rows of merged states of the finest level. ``run_ends`` has the end
    of each run. ``columns`` are the names of the columns to include: window_start, the keys and the columns of states.

    The states have one row per window and key, and equal input rows give states with equal bits. The digest is the sum
    of the hashes of the rows, modulo 2^64. The digest therefore does not depend on how rows were divided into batches
    and partitions, on their order, or on which attempt of a task wrote the states.
    """
    if not states.num_rows:
        return [(0, 0)] * len(run_ends)
    hashes = row_hashes([states.column(name) for name in columns])
    totals = np.cumsum(hashes, axis=1, dtype=np.uint64)
    at_ends = np.where(run_ends > 0, totals[:, run_ends - 1], np.uint64(0))
    first, second = np.diff(at_ends, axis=1, prepend=np.uint64(0)).tolist()
    return list(zip(first, second, strict=True))


def sum_digests(digests: Iterable[Sequence[int]]) -> Digest:
    """Return the sum of the digests of states that several tasks have written for one commit.

    >>> sum_digests([(1, 2), (2**64 - 1, 3)])
    (0, 5)
    """
    first = 0
    second = 0
    for low, high in digests:
        first = (first + low) % 2**64
        second = (second + high) % 2**64
    return first, second


def negate_digest(digest: Digest) -> Digest:
    """Return the digest of a retraction: the negative of the digest of the subtracted states, modulo 2^64. An append
    and a retraction of the same states therefore have different digests.

    >>> sum_digests([negate_digest((1, 2**63)), (1, 2**63)])
    (0, 0)
    """
    first, second = digest
    return -first % 2**64, -second % 2**64


def fingerprint(number: int, digest: Sequence[int]) -> str:
    """Return sixteen hexadecimal digits that identify a commit, from its number and the digest of its states."""
    return hashlib.sha256(f"{number} {digest[0]} {digest[1]}".encode()).hexdigest()[:16]


def last_commits(snapshot: Snapshot, writer: str) -> tuple[int, dict[str, str]]:
    """Return a writer's last commit number, and the fingerprints of the writer's last commits, as number → fingerprint.
    The last number is -1 if the writer has no commit.
    """
    record = f"{RECORD_PREFIX}writer {writer}"
    text = snapshot.text(record)
    if text is None:
        return -1, {}
    commits = json.loads(text)
    return commits["last"], commits["states"]


def skipped_value_counts(snapshot: Snapshot, writer: str) -> dict[str, dict[str, int]]:
    """Return the numbers of values that were skipped in a writer's last commits, as commit number → column of states →
    number of values.
    """
    text = snapshot.text(f"{RECORD_PREFIX}writer {writer}")
    return {} if text is None else dict(json.loads(text).get(REFUSED, {}))
