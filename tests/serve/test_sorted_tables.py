"""HTML tables of results in a browser: a click on the head of a column sorts the rows by its values."""

from __future__ import annotations

import math
from decimal import Decimal

import pyarrow as pa
import pytest

from tiltframe import show

pytestmark = [pytest.mark.store, pytest.mark.slow]

COLUMNS = {
    "order": pa.array([0, 1, 2, 3, 4]),
    "n": pa.array([1_000, 9, None, -20, 300]),
    "x": pa.array([0.0131, 0.0132, 1e-9, -math.inf, 1e300]),  # the first two have the same text
    "d": pa.array([Decimal("2.50"), Decimal("10.00"), None, Decimal("-1.00"), Decimal("3.00")]),
    "host": pa.array(["web-10", "<b>", None, "", "api"]),
    "at": pa.array([5, 4, 3, 2, 1], pa.timestamp("us", "UTC")),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_a_click_on_a_head_sorts_by_values_and_null_is_last(tab, name):
    tab.set_content(show(pa.table(COLUMNS))._repr_html_())
    values = COLUMNS[name].to_pylist()
    ascending = sorted(range(5), key=lambda i: (values[i] is None, 0 if values[i] is None else values[i]))
    present = [i for i in ascending if values[i] is not None]
    missing = [i for i in ascending if values[i] is None]
    head = tab.locator("th").nth(list(COLUMNS).index(name))
    for expected in (present + missing, present[::-1] + missing, present + missing):
        head.click()
        assert [int(row.locator("td").nth(0).inner_text()) for row in tab.locator("tbody tr").all()] == expected
