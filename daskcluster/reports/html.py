"""A report as a page: one file, no script, nothing loaded from elsewhere."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape

from daskcluster.reports.charts import Chart
from daskcluster.reports.contents import Report, Section, Table
from daskcluster.reports.drawing import MISSING, as_svg, can_draw

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


_STYLE = f"""
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1.5rem;
  color: #1c2430; background: #fff }}
h1 {{ font-size: 1.7rem; margin: 0 0 .6rem; overflow-wrap: anywhere }}
h2 {{ font-size: 1.15rem; margin: 2.2rem 0 .8rem; padding-top: .8rem; border-top: 1px solid #e3e7ec }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; margin: .5rem 0 1rem }}
td, th {{ padding: .2rem .9rem .2rem 0; text-align: left; border-bottom: 1px solid #e3e7ec;
  vertical-align: top }}
td.n, th.n {{ text-align: right }} tr:hover td.n {{ background: #f4f6f9 }}
figure {{ margin: .5rem 0 }} img {{ width: 100%; height: auto }}
nav a {{ display: inline-block; margin: 0 .4rem .4rem 0; padding: .15rem .7rem; border-radius: 1rem;
  background: #e8f0fe; color: #0b57d0; text-decoration: none; font-size: .9rem }}
nav a:hover {{ background: #d3e3fd }} .note {{ color: #4a5563 }}
{STYLE}"""


def as_html(report: Report) -> str:
    """Return the page."""
    sections = report.sections()
    places = " ".join(
        f'<a href="#s{number}">{escape(section.title)}</a>'
        for number, section in enumerate(sections)
    )
    drawn = can_draw()
    parts = [
        f"<h1>{escape(report.title)}</h1>",
        f"<nav>{places}</nav>",
        "" if drawn else f'<p class="note">Charts are missing: {escape(MISSING)}.</p>',
        *(_section(section, number, drawn) for number, section in enumerate(sections)),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(report.title)}</title><style>{_STYLE}</style></head>\n<body>\n"
        + "\n".join(part for part in parts if part)
        + "\n</body></html>\n"
    )


def _section(section: Section, number: int, drawn: bool) -> str:
    parts = [
        _table(part) if isinstance(part, Table) else _image(part, f"{number}-{place}")
        for place, part in enumerate(section.parts)
        if isinstance(part, Table) or drawn
    ]
    return "\n".join([f'<h2 id="s{number}">{escape(section.title)}</h2>', *parts])


def _image(chart: Chart, name: str) -> str:
    # As data, not as elements: identifiers of one picture do not meet those of another.
    data = base64.b64encode(as_svg(chart, name).encode()).decode()
    text = escape(chart.text, quote=True)
    return f'<figure><img alt="{text}" src="data:image/svg+xml;base64,{data}"></figure>'


def _table(table: Table) -> str:
    note = f'<p class="note">{escape(table.note)}</p>' if table.note else ""
    if not table.header:
        return as_facts(table.rows) + note
    head = "".join(f'<th class="n">{escape(name)}</th>' for name in table.header)
    lines = "".join(
        "<tr>" + "".join(f'<td class="n">{escape(cell)}</td>' for cell in row) + "</tr>"
        for row in table.rows
    )
    return f"<table><tr>{head}</tr>{lines}</table>{note}"
