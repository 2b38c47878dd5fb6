"""list_errors: a sentence for the error with which Spark fails a query whose lists exceed their limit.

Spark's error reports the overflow of an interval, but not the call that caused it. Each call uses intervals with
different microseconds, which identify the call in the plan of the query.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count

from spark_udaf.udaf.job_errors import explain_errors
from spark_udaf.versions.java_objects import shared_state

_OVERFLOW = "INTERVAL_ARITHMETIC_OVERFLOW"
_NUMBERED = re.compile(r"INTERVAL '[\d :]+\.(\d{5}1)'")
_MOST_NUMBERS = 100_000
_MOST_LABELS = 3
_LATEST_QUERIES = 5
_numbers = count()
_labels: dict[str, tuple[int, int]] = {}  # the calls that bound a list -> the bound and the number, the latest last


def number_of_call(label: str, limit: int) -> int:
    """Return the number of a call whose lists have at most ``limit`` values, by which an error finds its label."""
    if label in _labels:
        _, number = _labels.pop(label)
    else:
        number = next(_numbers) % _MOST_NUMBERS
    _labels[label] = (limit, number)
    explain_errors(_sentence_of_overflow)
    return number


def interval_of(seconds: int, number: int) -> str:
    """Return an interval in Spark's SQL, whose microseconds are the number of a call.

    >>> interval_of(7, 12)
    "INTERVAL '7.000121' SECOND"
    """
    return f"INTERVAL '{seconds}.{number:05}1' SECOND"  # the last digit is not 0, which Spark would not print


def sentence(plans: Iterator[str]) -> str:
    """Return a message that names the call whose list is too long, and how to avoid it.

    Parameters
    ----------
    plans : iterator of str
        The latest queries, the latest first. Without a plan that has a bounded list, such as on Spark Connect, the
        latest calls are named.
    """
    limits = {label: limit for label, (limit, _) in _labels.items()}
    label = next((label for plan in plans for label in _labels_in(plan)), None)
    labels = [label] if label is not None else list(reversed(limits))[:_MOST_LABELS]
    return (
        f"{' or '.join(labels)}: a group has more than {limits[labels[0]]:,} values, which do not fit into a list in "
        "the memory of a task; use su.group_by(df, …).agg(…), which does not collect rows into lists, or groups='large'"
    )


def _labels_in(plan: str) -> list[str]:
    labels = {number: label for label, (_, number) in _labels.items()}
    numbers = (int(digits[:-1]) for digits in _NUMBERED.findall(plan))
    return [labels[number] for number in numbers if number in labels]


def _sentence_of_overflow(text: str) -> str | None:
    return sentence(_latest_plans()) if _OVERFLOW in text and _labels else None


def _latest_plans() -> Iterator[str]:
    """Return the plans of the latest queries of classic Spark."""
    try:
        shared = shared_state()
        if shared is None:
            return
        queries = shared.statusStore().executionsList()
        last = queries.size() - 1
        for place in range(last, max(last - _LATEST_QUERIES, -1), -1):
            yield str(queries.apply(place).physicalPlanDescription())
    except Exception:  # a release may lack any part; the error of the query must not be replaced by another one
        return
