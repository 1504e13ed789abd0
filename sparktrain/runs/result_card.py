"""A trial or a case as HTML for the end of a cell: small, escaped, and from memory alone. Pure."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from sparktrain.base import formatting

LONGEST_VALUE = 400
MOST_VALUES = 60
"""Parameters and metrics of a card; of more, the first ones."""
_LABEL_STYLE = 'style="text-align: left; padding-right: 16px; font-weight: normal; opacity: 0.75"'


def card_html(title: str, parts: Mapping[str, Mapping[str, Any]], lines: Sequence[str] = ()) -> str:
    """The card: a title, a small table for each part by its heading, and lines below them.

    A part without values is left out. It raises nothing: of a value that raises in `__str__` it shows the type.
    """
    tables = [_table(heading, values) for heading, values in parts.items() if values]
    below = [f"<p>{escape(_cut(line))}</p>" for line in lines if line]
    row = f'<div style="display: flex; flex-wrap: wrap; gap: 8px 40px">{"".join(tables)}</div>'
    return "\n".join(["<div>", f"<p><b>{escape(_cut(title))}</b></p>", row, *below, "</div>"])


def _table(heading: str, values: Mapping[str, Any]) -> str:
    shown = list(values.items())[:MOST_VALUES]
    rows = [
        f'<tr><th {_LABEL_STYLE}>{escape(_cut(name))}</th><td style="text-align: left">{escape(_text(value))}</td></tr>'
        for name, value in shown
    ]
    if (hidden_count := len(values) - len(shown)) > 0:
        rows.append(f"<tr><td>and {hidden_count} more</td></tr>")
    return f"<div><p>{escape(heading)}</p><table>{''.join(rows)}</table></div>"


def _text(value: Any) -> str:
    try:
        return _cut(formatting.value(value))
    except Exception:
        return f"a {type(value).__name__}"


def _cut(text: str) -> str:
    return formatting.shorten(formatting.plain(str(text)).encode("utf-8", "replace").decode(), LONGEST_VALUE)
