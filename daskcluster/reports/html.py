"""Pages: from the templates in ``daskcluster/templates``, in which every value is escaped."""

from __future__ import annotations

import base64
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from daskcluster.reports.charts import Chart
from daskcluster.reports.contents import Report
from daskcluster.reports.drawing import MISSING, as_svg, can_draw


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
    """Return a report as a page: one file, no script, nothing loaded from elsewhere."""
    drawn, sections = can_draw(), report.sections()
    figures = {"drawn": drawn, "missing": MISSING, "picture": _picture}
    return str(render("report.html", report=report, sections=sections, **figures))


def _picture(chart: Chart, section: int, place: int) -> str:
    # As data, not as elements: identifiers of one picture do not meet those of another.
    data = base64.b64encode(as_svg(chart, f"{section}-{place}").encode()).decode()
    return f"data:image/svg+xml;base64,{data}"
