"""Charts as SVG or PNG. matplotlib is an extra: without it pages have tables alone, and say so."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from daskcluster.errors import MissingExtraError
from daskcluster.reports.charts import WIDTH, Chart

MISSING = 'matplotlib is not installed; pip install "daskcluster[plots]"'
_DPI = 150


def can_draw() -> bool:
    """Return whether matplotlib is there."""
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
    """Return charts below each other, each under its title, as one PNG.

    Raises
    ------
    MissingExtraError
    """
    if not can_draw():
        raise MissingExtraError(f"a PNG is drawn, but {MISSING}.")
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
    """Return an empty drawing of that width and height."""
    from matplotlib.figure import Figure

    return Figure(figsize=inches, facecolor="white", **settings)


@contextmanager
def style(name: str, font_size: float = 8) -> Iterator[None]:
    """Draw under settings for which the same chart and name give the same bytes, and text stays text."""
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
