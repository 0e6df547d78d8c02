"""Tables, and pages of a report: HTML that escapes every value, Markdown, and charts as SVG or PNG."""

from __future__ import annotations

import base64
import io
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from daskcluster.errors import (
    DatasetNotFoundError,
    InvalidParameterError,
    OutputExistsError,
)
from daskcluster.extras import import_extra, install_command
from daskcluster.host import format_bytes
from daskcluster.models.fitted import Model
from daskcluster.reports.charts import NARROW, WIDTH, Chart
from daskcluster.storage.files import file_size, write_file
from daskcluster.storage.location import Location, locate

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


Rows = list[tuple[str, str]]


@dataclass(frozen=True)
class Table:
    """A table of texts.

    Attributes
    ----------
    rows : sequence of sequences of str
    header : sequence of str
        Empty for a table of names and values; otherwise, cells are numbers.
    note : str
    ends_in_words : bool
        The last column is text.
    """

    rows: Sequence[Sequence[str]]
    header: Sequence[str] = ()
    note: str = ""
    ends_in_words: bool = False


_STOP_REASONS = {
    "converged": "converged: the centres are a fixed point",
    "tolerance": "the centres moved less than tol allows",
    "no_improvement": "the inertia of batches has stopped falling",
    "max_iter": "max_iter reached",
    "max_time": "max_time reached",
    "callback": "stopped by a callback",
}


def format_seconds(seconds: float) -> str:
    """Return a duration as text.

    Examples
    --------
    >>> format_seconds(0.25), format_seconds(75), format_seconds(7300)
    ('0.25 s', '1 min 15 s', '2 h 01 min')
    """
    if seconds < 59.5:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


def format_rate(rows_per_second: float) -> str:
    """Return a speed as text.

    Examples
    --------
    >>> format_rate(1234567.0)
    '1,230,000 rows/s'
    """
    return f"{float(f'{rows_per_second:.3g}'):,.0f} rows/s"


def right_aligned(lines: Sequence[Sequence[str]], gap: str = "  ") -> list[str]:
    """Return the lines of a table of texts, of which all cells are aligned at their right.

    Examples
    --------
    >>> right_aligned([("k", "cost"), ("10", "1.5")])
    [' k  cost', '10   1.5']
    """
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        gap.join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]


def rows_of_record(record: Mapping[str, Any]) -> Rows:
    """Return what is known of something by name as lines of text; records within it are left out.

    Examples
    --------
    >>> rows_of_record({"n_rows": 12345, "bytes_read": 2048, "labels": None, "versions": {"numpy": "2"}})
    [('rows', '12,345'), ('bytes read', '2.0 KiB')]
    """
    shown = {name: value for name, value in record.items() if value is not None and value != ""}
    return [
        (name.removeprefix("n_").replace("_", " "), format_field(name, value))
        for name, value in shown.items()
        if not any(isinstance(each, Mapping) for each in (value, *_entries(value)))
    ]


def _entries(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


def format_field(name: str, value: Any) -> str:
    """Return one field of a record or a model as text."""
    if name == "stop_reason":
        return _STOP_REASONS.get(value, str(value))
    if name == "seconds":
        return format_seconds(value)
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        return str(value)
    if name.startswith("bytes"):
        return format_bytes(float(value))
    if name == "share":
        return f"{value:.0%}"
    if name in ("random_state", "seed"):
        return str(value)  # as --random-state takes it
    return f"{value:,}" if isinstance(value, int) else f"{value:,.10g}"


def rows_of_model(model: Model) -> Rows:
    """Return the lines that describe a model."""
    fields = {
        **model.facts(),
        "estimator": model.estimator,
        "n_clusters": model.n_clusters,
        "n_features": model.n_features,
        "n_rows": model.n_rows,
        "n_iter": model.n_iter,
        "stop_reason": model.stop_reason,
        "seeding": model.seeding,
        "passes": model.passes,
        "bytes_read": model.bytes_read,
    }
    rows = rows_of_record(fields)
    versions = ", ".join(f"{name} {version}" for name, version in model.created_with.items())
    return [*rows, ("made with", versions)] if versions else rows


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

    def save(
        self,
        path: str,
        *,
        overwrite: bool = False,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        """Write the report: a page (.html), its charts (.png), its tables (.md), or its figures (.json).

        The file, by its path or URL, appears only when complete.

        Raises
        ------
        InvalidParameterError
            The name ends otherwise.
        OutputExistsError
            The file exists, and `overwrite` is False.
        MissingExtraError
            matplotlib is missing, which .png needs.
        """
        check_output(path, overwrite=overwrite, storage_options=storage_options)
        kind = os.path.splitext(path)[1].lower()
        if kind == ".png":
            content = as_png(self)
        elif kind == ".json":
            content = json.dumps(self.as_dict(), indent=1).encode()
        else:
            content = (as_markdown(self) if kind == ".md" else as_html(self)).encode()
        write_file(*_split(path, storage_options), content)

    def _repr_html_(self) -> str:
        return as_html(self, alone=False)


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


def as_png(report: Pages) -> bytes:
    """Return the charts of a report as one PNG, one below the other, each with its title.

    Raises
    ------
    MissingExtraError
    """
    import_extra("matplotlib", "plots", "PNG output needs matplotlib")
    charts = [
        (section.title, part)
        for section in report.sections()
        for part in section.parts
        if isinstance(part, Chart)
    ]
    with style(report.title):
        heights = [chart.height + 0.3 for _, chart in charts]
        figure = blank((WIDTH, sum(heights, 0.4)), layout="constrained")
        figure.suptitle(report.title, fontsize=10)
        parts = figure.subfigures(len(charts), 1, height_ratios=heights, squeeze=False)
        for part, (name, chart) in zip(parts[:, 0], charts, strict=True):
            part.suptitle(name, fontsize=9)
            chart.draw(part)
        written = io.BytesIO()
        figure.savefig(written, format="png", dpi=_DPI, metadata={"Software": None})
    return written.getvalue()


def as_markdown(report: Pages) -> str:
    """Return the tables of a report as Markdown."""
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
    return "| " + " | ".join(map(_safe, cells)) + " |"


def _safe(text: str) -> str:
    for sign in ("\\", "|", "<", "`", "*", "_", "[", "]"):
        text = text.replace(sign, f"\\{sign}")
    return text.replace("\n", " ")


def blank(inches: tuple[float, float], **settings: Any) -> Any:
    """Return an empty figure of this width and height; it needs no display and is not kept alive."""
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
    >>> "<main>a&lt;b</main>" in render("dashboard.html", part="a<b", has_dask_pages=False)
    True
    """
    from markupsafe import Markup

    return Markup(_environment().get_template(template).render(values))


def as_html(report: Pages, *, alone: bool = True) -> str:
    """Return a report as one HTML file without scripts or external resources.

    Unless it stands `alone`, it is shown within another page, such as a notebook.
    """

    def picture(chart: Chart, section: int, place: int, width: float = WIDTH) -> str:
        # As a data URL, so that ids of different images cannot collide.
        data = base64.b64encode(as_svg(chart, f"{section}-{place}", width).encode()).decode()
        return f"data:image/svg+xml;base64,{data}"

    template = "report.html" if alone else "report_body.html"
    figures: dict[str, Any] = {
        "drawn": can_draw(),
        "missing": missing_matplotlib(),
        "picture": picture,
    }
    figures |= {"sections": report.sections(), "narrow": NARROW}
    return str(render(template, report=report, linked=alone, **figures))


def check_format(path: str) -> None:
    """Raise if the name of a report does not say its format."""
    if os.path.splitext(path)[1].lower() not in FORMATS:
        raise InvalidParameterError(
            f"output {path!r} should end in one of {', '.join(FORMATS)}, which sets the format."
        )


def check_output(
    path: str, *, overwrite: bool = True, storage_options: Mapping[str, Any] | None = None
) -> None:
    """Raise, before any work, if a file exists, its folder does not, or its format is unknown."""
    check_format(path)
    folder, name = _split(path, storage_options)
    exists = (
        os.path.lexists(f"{folder.url}/{name}") if folder.is_local else file_size(folder, name) >= 0
    )
    if exists and not overwrite:
        raise OutputExistsError(
            f"The output {path!r} exists already; pass overwrite=True to replace it, or choose another "
            "name."
        )
    if folder.is_local and not os.path.isdir(folder.url):
        raise DatasetNotFoundError(
            f"The folder {folder.url!r} for {name!r} does not exist; create it."
        )


def _split(path: str, storage_options: Mapping[str, Any] | None) -> tuple[Location, str]:
    """Return the folder and the name of a file, by its path or URL."""
    place = locate(path, storage_options)
    folder, _, name = place.url.rpartition("/")
    return replace(place, url=folder or "/"), name
