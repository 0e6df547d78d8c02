"""Names and values as pages show them: small names over large values, as many a line as fit."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

STYLE = """
table.facts { display: block } table.facts tbody { display: grid; gap: .6rem;
  grid-template-columns: repeat(auto-fill, minmax(11rem, 1fr)) }
table.facts tr { display: flex; flex-direction: column; padding: .5rem .8rem; border-radius: .5rem;
  background: #f4f6f9 }
table.facts tr.long { grid-column: 1 / -1 }
table.facts th, table.facts td { padding: 0; border: 0; text-align: left; white-space: normal;
  overflow-wrap: anywhere }
table.facts th { font-size: .8rem; font-weight: 400; color: #57606a }
table.facts td { font-size: 1.05rem; font-weight: 600 }
table.facts tr.long td { font-size: .95rem; font-weight: 400 }
"""
_LONG = 45
"""Characters of a value that gets a line of its own."""


def as_facts(rows: Sequence[Sequence[str]]) -> str:
    """Return names and values as a table for which `STYLE` is meant.

    Examples
    --------
    >>> as_facts([("a<b", "1,797")])
    '<table class="facts"><tbody><tr><th>a&lt;b</th><td>1,797</td></tr></tbody></table>'
    """
    lines = "".join(_line(name, value) for name, value in rows)
    return f'<table class="facts"><tbody>{lines}</tbody></table>'


def _line(name: str, value: str) -> str:
    kind = ' class="long"' if len(value) > _LONG else ""
    return f"<tr{kind}><th>{escape(name)}</th><td>{escape(value)}</td></tr>"
