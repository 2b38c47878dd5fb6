"""Checks of the guarantees of `tiltframe.store.backends.protocol.Backend`, for any implementation."""

from __future__ import annotations

from collections.abc import Callable

from tiltframe.store.backends.guarantees.conflicts import (
    check_combined_transaction,
    check_conflicts,
    check_ranges,
    check_revisions,
)
from tiltframe.store.backends.guarantees.optional_operations import check_kept_tables, check_results
from tiltframe.store.backends.guarantees.other_processes import (
    check_added_columns,
    check_concurrent_commits,
    check_concurrent_replacements,
    check_vacuum,
)
from tiltframe.store.backends.guarantees.single_commits import (
    check_commit,
    check_empty,
    check_manifest,
    check_many_rows,
    check_parts,
    check_removal,
    check_written_twice,
)
from tiltframe.store.backends.guarantees.store_under_test import StoreUnderTest
from tiltframe.store.backends.protocol import Backend


def check_backend(make_backend: Callable[[], Backend]) -> None:
    """Check that a backend fulfils the guarantees of the protocol, and those of `ResultReader` and `TableKeeper` if it
    has their operations.

    Parameters
    ----------
    make_backend : callable
        A function without parameters. Each call returns a backend for a new, empty location. The function is called
        once for each check, about fifteen times.

    Raises
    ------
    AssertionError
        If the backend breaks a guarantee. The message names the first guarantee that is broken. Errors that the backend
        raises are not caught.

    Examples
    --------
    >>> from tiltframe.store.testing import MemoryBackend
    >>> check_backend(MemoryBackend)
    """
    check_manifest(make_backend())
    checks_of_states = (
        check_empty,
        check_commit,
        check_parts,
        check_many_rows,
        check_written_twice,
        check_removal,
    )
    checks_of_transactions = (check_conflicts, check_revisions, check_ranges, check_combined_transaction)
    checks_of_processes = (
        check_concurrent_commits,
        check_concurrent_replacements,
        check_added_columns,
        check_vacuum,
    )
    for check in (*checks_of_states, *checks_of_transactions, *checks_of_processes, check_results, check_kept_tables):
        check(StoreUnderTest.create(make_backend()))
