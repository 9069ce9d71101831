"""Tables in HTML, for notebooks: what `_repr_html_` of public objects returns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def html_table(rows: Iterable[Sequence[object]], head: Sequence[str] = (), caption: str = "") -> str:
    """A table whose cells are the text of their values; the first cell of a row is its heading."""
    parts = ["<table>"]
    if caption:
        parts.append(f"<caption>{escape(caption)}</caption>")
    if head:
        parts.append(f"<thead><tr>{''.join(f'<th>{escape(name)}</th>' for name in head)}</tr></thead>")
    parts.append("<tbody>")
    for first, *others in rows:
        cells = "".join(f"<td>{escape(str(value))}</td>" for value in others)
        parts.append(f"<tr><th>{escape(str(first))}</th>{cells}</tr>")
    return "".join([*parts, "</tbody></table>"])
