"""Tables as HTML, for notebooks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import Decimal
from html import escape

# A click on the name of a column sorts the rows by this column, and the next click sorts them in the other direction.
# Numbers come before text, and null is last. The script is an attribute of the table and not a separate element,
# because a notebook may show the table alone.
_SORT = """
const head = event.target.closest('th'), body = this.parentNode.tBodies[0], at = head.cellIndex;
const way = head.dataset.way = -(head.dataset.way || -1);
const key = row => {
  const cell = row.cells[at], value = cell.dataset.value ?? cell.textContent;
  return value === '·' ? [2, 0] : value.trim() === '' || isNaN(value) ? [1, value] : [0, Number(value)];
};
const compare = ([kind, one], [otherKind, other]) =>
  kind - otherKind || way * (kind === 1 ? one.localeCompare(other) : one - other);
[...body.rows].sort((row, other) => compare(key(row), key(other))).forEach(row => body.append(row));
"""


def html_table(
    names: Iterable[str],
    rows: Iterable[Iterable[object]],
    caption: str = "",
    *,
    text: Callable[[object], str] = str,
    is_sortable: bool = False,
) -> str:
    """Return a table as HTML. The text of every cell is escaped.

    ``text`` converts a value to its text. A value with a method ``_repr_html_`` is inserted as the HTML that the method
    returns. If ``is_sortable`` is true, a click on the name of a column sorts the rows by the values of the column, so
    that 1,000 comes after 20.

    >>> html_table(["n"], [["<"]], caption="a & b")
    '<table><caption>a &amp; b</caption><thead><tr><th>n</th></tr></thead><tbody><tr><td>&lt;</td></tr></tbody></table>'
    """
    above = f"<caption>{escape(caption)}</caption>" if caption else ""
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join(f"<tr>{''.join(_cell(value, text, is_sortable) for value in row)}</tr>" for row in rows)
    sorting = f' onclick="{escape(_SORT.strip())}" style="cursor:pointer" title="sort"' if is_sortable else ""
    return f"<table>{above}<thead{sorting}><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: object, text: Callable[[object], str], is_sortable: bool) -> str:
    inner = value._repr_html_() if hasattr(value, "_repr_html_") else escape(text(value))
    is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
    number = str(value).replace("inf", "Infinity")  # the spelling of infinity in JavaScript
    exact = f' data-value="{number}"' if is_sortable and is_number and inner != number else ""
    return f"<td{exact}>{inner}</td>"
