"""Failures: the sentence in which a task says what is wrong, without the traces around it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException

from tiltframe import StoreError

_SAID = re.compile(r"^\W*(?:[\w.]+\.)?(StoreError|ValueError|TypeError|OverflowError): (.+)$", re.MULTILINE)
_KINDS: dict[str, type[Exception]] = {
    kind.__name__: kind for kind in (StoreError, ValueError, TypeError, OverflowError)
}


@contextmanager
def raise_task_error() -> Iterator[None]:
    """Raise what a store or a measure has refused in a task as it would be raised here; other failures stay."""
    try:
        yield
    except PySparkException as error:
        sentences = _SAID.findall(str(error))
        if not sentences:
            raise
        kind, sentence = sentences[-1]
        raise _KINDS[kind](sentence) from None
