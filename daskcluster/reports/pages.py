"""Pages of a report: HTML from templates that escape every value, Markdown, and charts as SVG or PNG."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from daskcluster.errors import MissingExtraError
from daskcluster.extras import install_command
from daskcluster.reports.charts import WIDTH, Chart
from daskcluster.reports.contents import Report, Table

_DPI = 150


def missing_matplotlib() -> str:
    """Return what a page says where plots would be."""
    return f"matplotlib is not installed; {install_command('plots')}"


def can_draw() -> bool:
    """Return whether matplotlib is installed."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        return False
    return True


def as_svg(chart: Chart, name: str) -> str:
    """Return the chart as SVG; the same chart and name give the same text."""
    with style(name):
        figure = _figure(chart.height)
        chart.draw(figure)
        written = io.StringIO()
        figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None})
    return written.getvalue()


def as_png(charts: Sequence[tuple[str, Chart]], title: str) -> bytes:
    """Return charts as one PNG, one below the other, each with its title.

    Raises
    ------
    MissingExtraError
    """
    if not can_draw():
        raise MissingExtraError(f"PNG output needs matplotlib, but {missing_matplotlib()}.")
    with style(title):
        heights = [chart.height + 0.3 for _, chart in charts]
        figure = _figure(sum(heights, 0.4))
        figure.suptitle(title, fontsize=10)
        parts = figure.subfigures(len(charts), 1, height_ratios=heights, squeeze=False)
        for part, (name, chart) in zip(parts[:, 0], charts, strict=True):
            part.suptitle(name, fontsize=9)
            chart.draw(part)
        written = io.BytesIO()
        figure.savefig(written, format="png", dpi=_DPI, metadata={"Software": None})
    return written.getvalue()


def blank(inches: tuple[float, float], **settings: Any) -> Any:
    """Return an empty figure of this width and height."""
    from matplotlib.figure import Figure

    return Figure(figsize=inches, facecolor="white", **settings)


@contextmanager
def style(name: str, font_size: float = 8) -> Iterator[None]:
    """Use settings that give the same bytes for the same chart and name, and keep text as text."""
    import matplotlib as mpl

    settings: Any = {
        "svg.fonttype": "none",
        "svg.hashsalt": name,
        "font.size": font_size,
        "axes.linewidth": 0.6,
    }
    with mpl.rc_context(settings):
        yield


def _figure(height: float) -> Any:
    return blank((WIDTH, height), layout="constrained")


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("daskcluster"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def render(template: str, **values: Any) -> Markup:
    """Return a template of the package with these values.

    Examples
    --------
    >>> page = render("fit.html", known=[("a<b", "1,797")], picture={}, steps=[])
    >>> "<th>a&lt;b</th><td>1,797</td>" in page
    True
    """
    return Markup(_environment().get_template(template).render(values))


def as_html(report: Report) -> str:
    """Return a report as one HTML file without scripts or external resources."""
    drawn, sections = can_draw(), report.sections()
    figures = {"drawn": drawn, "missing": missing_matplotlib(), "picture": _picture}
    return str(render("report.html", report=report, sections=sections, **figures))


def _picture(chart: Chart, section: int, place: int) -> str:
    # As a data URL, so that ids of different images cannot collide.
    data = base64.b64encode(as_svg(chart, f"{section}-{place}").encode()).decode()
    return f"data:image/svg+xml;base64,{data}"


def as_markdown(report: Report) -> str:
    """Return a report as Markdown."""
    lines = [f"# {_safe(report.title)}", ""]
    for section in report.sections():
        tables = [part for part in section.parts if isinstance(part, Table)]
        if tables:
            lines += [f"## {_safe(section.title)}", ""]
        for table in tables:
            lines += [*_table(table), ""]
    return "\n".join(lines)


def _table(table: Table) -> list[str]:
    header = table.header or ("", "")
    lines = [_line(header), _line(["---"] * len(header)), *(_line(row) for row in table.rows)]
    return [*lines, "", table.note] if table.note else lines


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(_safe(cell) for cell in cells) + " |"


def _safe(text: str) -> str:
    for sign in ("\\", "|", "<", "`", "*", "_", "[", "]"):
        text = text.replace(sign, f"\\{sign}")
    return text.replace("\n", " ")
