"""Tables as HTML, for notebooks."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape


def html_table(names: Iterable[str], rows: Iterable[Iterable[object]], caption: str = "") -> str:
    """Return a table as HTML; the text of every cell is escaped.

    >>> html_table(["n"], [[1], ["<"]], caption="a & b")
    '<table><caption>a &amp; b</caption><tr><th>n</th></tr><tr><td>1</td></tr><tr><td>&lt;</td></tr></table>'
    """
    above = f"<caption>{escape(caption)}</caption>" if caption else ""
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join(f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table>{above}<tr>{head}</tr>{body}</table>"
