"""Pages of a report: HTML from templates that escape every value, Markdown, and charts as SVG or PNG."""

from __future__ import annotations

import base64
import io
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from daskcluster.errors import (
    DatasetNotFoundError,
    InvalidParameterError,
    MissingExtraError,
    OutputExistsError,
)
from daskcluster.extras import install_command
from daskcluster.reports.charts import NARROW, WIDTH, Chart
from daskcluster.reports.tables import Table
from daskcluster.storage.files import write_file
from daskcluster.storage.location import locate

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

FORMATS = (".html", ".png", ".md", ".json")
_DPI = 150


@dataclass(frozen=True)
class Section:
    """A part of a report with a title; `technical` ones are folded."""

    title: str
    parts: Sequence[Table | Chart]
    technical: bool = False


class Pages(ABC):
    """A report: it can be written in several formats, and is shown as a page in notebooks."""

    title: str

    @abstractmethod
    def sections(self) -> list[Section]:
        """Return all sections that are not empty."""

    @abstractmethod
    def as_dict(self) -> dict[str, Any]:
        """Return the figures of the report as plain JSON values."""

    def save(self, path: str, *, overwrite: bool = False) -> None:
        """Write the report: a page (.html), its charts (.png), its tables (.md) or its figures (.json).

        The file appears only when complete.

        Raises
        ------
        InvalidParameterError
            The name ends otherwise.
        OutputExistsError
            The file exists, and `overwrite` is False.
        MissingExtraError
            matplotlib is missing, which .png needs.
        """
        check_output(path, FORMATS, overwrite=overwrite)
        kind = os.path.splitext(path)[1].lower()
        if kind == ".png":
            charts = [
                (section.title, part)
                for section in self.sections()
                for part in section.parts
                if isinstance(part, Chart)
            ]
            content = as_png(charts, self.title)
        elif kind == ".json":
            content = json.dumps(self.as_dict(), indent=1).encode()
        else:
            content = (as_markdown(self) if kind == ".md" else as_html(self)).encode()
        write_output(path, content)

    def _repr_html_(self) -> str:
        return as_fragment(self)


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


def as_svg(chart: Chart, name: str, width: float = WIDTH) -> str:
    """Return the chart as SVG; the same chart, name and width give the same text."""
    with style(name):
        figure = blank((width, chart.height), layout="constrained")
        chart.draw(figure)
        written = io.StringIO()
        figure.savefig(written, format="svg", dpi=_DPI, metadata={"Date": None, "Creator": None})
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
        figure = blank((WIDTH, sum(heights, 0.4)), layout="constrained")
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


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined  # deferred: few calls need it

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
    from markupsafe import Markup

    return Markup(_environment().get_template(template).render(values))


def as_html(report: Pages) -> str:
    """Return a report as one HTML file without scripts or external resources."""
    return _page("report.html", report, linked=True)


def as_fragment(report: Pages) -> str:
    """Return a report as HTML to be shown within another page, such as a notebook."""
    return _page("report_body.html", report, linked=False)


def _page(template: str, report: Pages, *, linked: bool) -> str:
    figures = {"drawn": can_draw(), "missing": missing_matplotlib(), "picture": _picture}
    sections = report.sections()
    return str(
        render(template, report=report, sections=sections, linked=linked, narrow=NARROW, **figures)
    )


def check_output(path: str, formats: Sequence[str], *, overwrite: bool) -> None:
    """Raise, before any work, if a file exists, its folder does not, or its format is unknown."""
    if os.path.splitext(path)[1].lower() not in formats:
        raise InvalidParameterError(
            f"output {path!r} should end in one of {', '.join(formats)}, which sets the format."
        )
    if os.path.lexists(path) and not overwrite:
        raise OutputExistsError(
            f"The output {path!r} exists already; pass overwrite=True to replace it, or choose another "
            "name."
        )
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise DatasetNotFoundError(
            f"The folder {folder!r} for {os.path.basename(path)!r} does not exist; create it."
        )


def write_output(path: str, content: bytes) -> None:
    """Write a file that appears only when complete."""
    folder, name = os.path.split(os.path.abspath(path))
    write_file(locate(folder), name, content)


def _picture(chart: Chart, section: int, place: int, width: float = WIDTH) -> str:
    # As a data URL, so that ids of different images cannot collide.
    data = base64.b64encode(as_svg(chart, f"{section}-{place}", width).encode()).decode()
    return f"data:image/svg+xml;base64,{data}"


def as_markdown(report: Pages) -> str:
    """Return a report as Markdown."""
    lines = [f"# {_safe(report.title)}", ""]
    for section in report.sections():
        tables = [part for part in section.parts if isinstance(part, Table)]
        if tables:
            lines += [f"## {_safe(section.title)}", ""]
        for table in tables:
            header = table.header or ("", "")
            lines += [_line(header), _line(["---"] * len(header)), *map(_line, table.rows)]
            lines += ["", table.note, ""] if table.note else [""]
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(_safe(cell) for cell in cells) + " |"


def _safe(text: str) -> str:
    for sign in ("\\", "|", "<", "`", "*", "_", "[", "]"):
        text = text.replace(sign, f"\\{sign}")
    return text.replace("\n", " ")
