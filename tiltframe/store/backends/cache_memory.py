"""Cache memory: the maximum size of the caches of stores. All stores of a process share one limit for each kind of
backend, such as Delta Lake.

The cache of Delta Lake contains footers of files, the rows of small files, results of stored rows, and results and
merged states of parts.
"""

from __future__ import annotations

from aggr.arguments import checked_whole

_DEFAULT_BYTES = 5 << 28
_max_cache_bytes = _DEFAULT_BYTES


def cache_memory() -> int:
    """Return the maximum size, in bytes, of the caches of each kind of backend, such as Delta Lake. The default is 1.25
    GiB.

    >>> cache_memory() > 0
    True
    """
    return _max_cache_bytes


def set_cache_memory(most_bytes: int) -> None:
    """Set the maximum memory of the caches of each kind of backend. All stores of this process share these caches.

    Parameters
    ----------
    most_bytes : int
        The maximum number of bytes, at least 0. A new limit takes effect when a cache is next used.

    Returns
    -------
    None

    Raises
    ------
    ValueError
        If ``most_bytes`` is not a whole number of at least 0.

    Guarantee
    ---------
    Results of queries do not depend on the limit. Files that were removed from a cache are opened again when they are
    needed.

    Examples
    --------
    >>> set_cache_memory(5 << 28)
    """
    checked_whole(most_bytes, "the memory of caches", 0)
    global _max_cache_bytes
    _max_cache_bytes = most_bytes
