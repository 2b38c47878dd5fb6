"""list_errors: explain Spark's error for a query whose lists have too many values.

To limit the length of a list, the query also sums a constant SQL interval, once per value (`bounded_lists`). If the
list is too long, the sum overflows, and the query fails. Spark's error reports only this overflow: it names neither the
call that reads the list nor the group. The intervals of different calls have different microseconds, which identify the
call in the plan of the query. The plan also contains the keys by which rows are grouped. On classic Spark, a second job
counts the values of each group to find the largest group. The job is cancelled after six seconds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import count
from typing import TYPE_CHECKING

from spark_udaf.udaf.job_errors import explain_errors
from spark_udaf.versions.failed_query import LargestGroup, failed_dataframe, largest_group, plan_text
from spark_udaf.versions.java_objects import shared_state

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_OVERFLOW = "INTERVAL_ARITHMETIC_OVERFLOW"
_CALL_INTERVAL = re.compile(r"INTERVAL '[\d :]+\.(\d{5}1)'")
_CALL_ID_LIMIT = 100_000  # Call ids are less than this limit, so that they have at most five digits.
_MAX_LABELS = 3
_LATEST_QUERIES = 5
# The time limit in seconds for counting the values of each group. With this limit, the error of the query appears
# within ten seconds.
_COUNT_SECONDS = 6.0
_next_call_ids = count()
# A dict from the label of each call that reads bounded lists to two values: the maximum number of values of a list, and
# the call id. The label that was registered last is at the end.
_registered_calls: dict[str, tuple[int, int]] = {}


def register_call(label: str, limit: int) -> int:
    """Return the call id of the call ``label``, and record that the lists of this call have at most ``limit`` values.
    The call id is a part of the plan of the query. After an error, the plan thus reveals the call.
    """
    if label in _registered_calls:
        _, call_id = _registered_calls.pop(label)
    else:
        call_id = next(_next_call_ids) % _CALL_ID_LIMIT
    _registered_calls[label] = (limit, call_id)
    explain_errors(_explain_overflow)
    return call_id


def interval_text(seconds: int, call_id: int) -> str:
    """Return the text of an interval of ``seconds`` seconds in Spark's SQL. The microseconds of the interval consist of
    the call id and the digit 1.

    >>> interval_text(7, 12)
    "INTERVAL '7.000121' SECOND"
    """
    return f"INTERVAL '{seconds}.{_microsecond_digits(call_id)}' SECOND"


def _microsecond_digits(call_id: int) -> str:
    """Return a call id as text of six digits, which are used as microseconds. The last digit is 1, because Spark does
    not print trailing zeros.
    """
    return f"{call_id:05}1"


def long_list_message(
    plans: Iterator[str], find_largest_group: Callable[[str], LargestGroup | None] = lambda marker: None
) -> str:
    """Return a message that names the call whose list is too long, and functions that avoid such lists.

    Parameters
    ----------
    plans : iterator of str
        The plans of the latest queries, the latest first. The message names the call whose interval occurs in one of
        the plans. If no plan has such an interval, the message names the latest calls.
    find_largest_group : callable
        Receives the text in a plan that marks the lists of a call, and returns the group with the most values, or None
        if it is unknown.
    """
    label = next((label for plan in plans for label in _labels_in(plan)), None)
    labels = [label] if label is not None else list(reversed(_registered_calls))[:_MAX_LABELS]
    limit, call_id = _registered_calls[labels[0]]
    group = None if label is None else find_largest_group(f".{_microsecond_digits(call_id)}'")
    group_text = "" if group is None else f" (the group {group.keys_text} has {group.value_count:,})"
    return (
        f"{' or '.join(labels)}: a group has more than {limit:,} values{group_text}, which do not fit into a list in "
        "the memory of a task; use su.group_by(df, …).agg(…), which does not collect rows into lists, or groups='large'"
    )


def _labels_in(plan: str) -> list[str]:
    labels = {call_id: label for label, (_, call_id) in _registered_calls.items()}
    call_ids = (int(digits[:-1]) for digits in _CALL_INTERVAL.findall(plan))
    return [labels[call_id] for call_id in call_ids if call_id in labels]


def _explain_overflow(text: str) -> str | None:
    """Return the explanation that is put before Spark's error ``text`` if a list had too many values, and None
    otherwise.
    """
    if _OVERFLOW not in text or not _registered_calls:
        return None
    df = failed_dataframe()

    def find_largest_group(marker: str) -> LargestGroup | None:
        return None if df is None else largest_group(df, marker, _COUNT_SECONDS)

    return long_list_message(_latest_plans(df), find_largest_group)


def _latest_plans(df: DataFrame | None) -> Iterator[str]:
    """Yield the plans of the latest queries of classic Spark as text, the latest first. On Spark Connect, yield the
    plan of the failed DataFrame.
    """
    try:
        spark_state = shared_state()
        if spark_state is None:
            if df is not None:
                yield plan_text(df)
            return
        queries = spark_state.statusStore().executionsList()
        last = queries.size() - 1
        for index in range(last, max(last - _LATEST_QUERIES, -1), -1):
            yield str(queries.apply(index).physicalPlanDescription())
    except Exception:  # An error that occurs here must not replace the error of the query.
        return
