"""Amounts of memory as text, such as ``512MiB``."""

from __future__ import annotations

import re

from aggr.arguments import shown


def memory_size(text: str) -> int:
    """Return the number of bytes that a text means.

    Parameters
    ----------
    text : str
        A number with a unit: ``KB``, ``MB``, ``GB`` and ``TB`` are powers of 1000; ``KiB``, ``MiB``, ``GiB`` and
        ``TiB`` are powers of 1024. The ``B`` may be missing.

    Returns
    -------
    int
        The number of bytes.

    Raises
    ------
    TypeError
        If ``text`` is not a text.
    ValueError
        If the text is not an amount of memory.

    Examples
    --------
    >>> memory_size("1.5 GB"), memory_size("512MiB")
    (1500000000, 536870912)
    """
    if not isinstance(text, str):
        raise TypeError(f"an amount of memory must be a text with a unit, such as '512MiB'; got {shown(text)}")
    match = re.fullmatch(r"\s*([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*([KMGT])(i?)B?\s*", text, re.IGNORECASE)
    if not match:
        raise ValueError(f"{shown(text)} is not an amount of memory; write an amount such as 500MB, 2GB or 4GiB")
    return int(float(match[1]) * (1024 if match[3] else 1000) ** (" KMGT".index(match[2].upper())))
