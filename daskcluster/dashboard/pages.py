"""HTML pages about fits: a list of all fits, and one page per fit with its iterations."""

from __future__ import annotations

import time
from collections.abc import Sequence
from importlib.resources import files
from importlib.util import find_spec
from typing import Any

from daskcluster.dashboard.histories import FitHistory, Step
from daskcluster.host import format_bytes
from daskcluster.reports.pages import render
from daskcluster.reports.tables import format_field, format_rate, format_seconds

SILENT_SECONDS = 30.0
"""After so long without news, a page says since when there were none."""
_MOST_LISTED = 200
_SMALL, _LARGE = (150, 36), (960, 260)
"""Pixels of a curve in the list, and on the page of a fit."""
_MARGINS = 100, 22
"""Pixels to the left of the large curve and below it, for the axes."""


def script() -> str:
    """Return the script that renews a page."""
    return files("daskcluster").joinpath("templates/fits.js").read_text(encoding="utf-8")


def whole_page(title: str, part: str, *, root: str) -> str:
    """Return a page around `part`, which its script renews every second.

    Parameters
    ----------
    title : str
    part : Markup
        The HTML of what changes; a plain str is text.
    root : str
        The way from the page to the folder of the dashboard's pages, such as ``"../"``.
    """
    # Dask's own pages need bokeh, which is not among our dependencies.
    has_dask_pages = find_spec("bokeh") is not None
    values = {"title": title, "part": part, "root": root, "has_dask_pages": has_dask_pages}
    return render("dashboard.html", **values)


def list_of_fits(fits: Sequence[FitHistory], now: float) -> str:
    """Return a table with one line for each fit."""
    return render("fits.html", fits=[_line(fit, now) for fit in fits])


def page_of_fit(fit: FitHistory, now: float) -> str:
    """Return the figures of one fit, its curve and its last iterations."""
    facts = fit.facts
    figures = [
        ("estimator", facts.get("estimator", "")),
        ("algorithm", facts["algorithm"]),
        ("rows", f"{facts['n_rows']:,}"),
        ("features", f"{facts['n_features']:,}"),
        ("clusters", f"{facts['n_clusters']:,}"),
        ("began", time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(fit.began))),
        ("state", _state(fit, now) if fit.is_running or fit.has_failed else _ended(fit)),
        ("seeding", facts.get("seeding", "")),
        ("inertia", _number(facts.get("inertia"))),
        ("passes", _number(facts.get("passes"))),
        ("read", format_bytes(facts.get("bytes_read") or 0)),
        ("time", format_seconds(_seconds(fit, now))),
        ("left", _left(fit)),
    ]
    return render(
        "fit.html",
        known=[(name, str(value)) for name, value in figures if value],
        picture=large_curve(fit.steps),
        objective=facts.get("objective", "inertia"),
        steps=[_step(step) for step in reversed(fit.steps[-_MOST_LISTED:])],
    )


def small_curve(steps: Sequence[Step]) -> dict[str, Any]:
    """Return the objective by iteration as a small picture; nothing before the second one."""
    return _picture(_points(steps), *_SMALL, kind="small")


def large_curve(steps: Sequence[Step]) -> dict[str, Any]:
    """Return the same as a large picture with axes that says where the objective began and is."""
    points = _points(steps)
    if len(points) < 2:
        return {}
    text = (
        f"from {points[0][1]:,.8g} to {points[-1][1]:,.8g}, "
        f"{format_seconds(steps[-1].elapsed)} of iterations"
    )
    values = [value for _, value in points]
    width, height = _LARGE
    left, bottom = _MARGINS
    foot = height - 4
    texts = [
        (width - 8, 16, "end", text),
        (left - 6, 14, "end", f"{max(values):,.6g}"),
        (left - 6, height - bottom, "end", f"{min(values):,.6g}"),
        (left, foot, "start", f"{points[0][0]:,}"),
        ((left + width) // 2, foot, "middle", "iteration"),
        (width - 2, foot, "end", f"{points[-1][0]:,}"),
    ]
    return _picture(points, *_LARGE, *_MARGINS, texts=texts, kind="large")


def _points(steps: Sequence[Step]) -> list[tuple[int, float]]:
    # By iteration: the first one of a process may take as long as all others, to compile kernels.
    return [(step.number, step.value) for step in steps if step.value is not None]


def _picture(
    points: Sequence[tuple[int, float]],
    width: int,
    height: int,
    left: int = 0,
    bottom: int = 0,
    *,
    texts: Sequence[tuple[int, int, str, str]] = (),
    kind: str,
) -> dict[str, Any]:
    if len(points) < 2:
        return {}
    first, last = points[0][0], points[-1][0]
    low, high = min(y for _, y in points), max(y for _, y in points)
    across = (width - left - 4) / ((last - first) or 1.0)
    up = (height - bottom - 4) / ((high - low) or 1.0)
    line = " ".join(
        f"{left + 2 + (x - first) * across:.1f},{2 + (high - y) * up:.1f}" for x, y in points
    )
    box = {"width": width, "height": height, "left": left, "base": height - bottom}
    return {"line": line, "texts": texts, "kind": kind, **box}


def _line(fit: FitHistory, now: float) -> dict[str, Any]:
    facts = fit.facts
    last = fit.steps[-1] if fit.steps else None
    state, _, phase = _state(fit, now).partition(": ")
    return {
        "key": facts.get("fit", ""),
        "title": fit.title,
        "algorithm": facts.get("algorithm", ""),
        "began": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(fit.began)),
        "shape": f"{facts['n_rows']:,} x {facts['n_features']:,}",
        "n_clusters": f"{facts['n_clusters']:,}",
        "kind": state
        if state in ("running", "failed")
        else "silent"
        if fit.is_running
        else "ended",
        "state": state,
        "phase": phase,
        "done": 0 if last is None else last.number,
        "most": facts["max_iter"],
        "objective": _number(facts.get("inertia") if last is None else last.value),
        "curve": small_curve(fit.steps),
        "speed": "" if last is None else _speed(last),
        "skipped": "" if last is None else _skipped(last),
        "seconds": format_seconds(_seconds(fit, now)),
        "left": _left(fit),
    }


def _step(step: Step) -> Sequence[str]:
    took = format_seconds(step.seconds)
    return str(step.number), _number(step.value), took, _speed(step), _skipped(step)


def _speed(step: Step) -> str:
    return "" if step.rows_per_second is None else format_rate(step.rows_per_second)


def _skipped(step: Step) -> str:
    return "" if step.skipped is None else f"{step.skipped:.1%}"


def _state(fit: FitHistory, now: float) -> str:
    if fit.has_failed:
        return f"failed: {fit.facts.get('reason') or 'unknown reason'}"
    if not fit.is_running:
        return str(fit.facts.get("stop_reason", "ended")).replace("_", " ")
    silent = now - fit.updated
    if silent > SILENT_SECONDS:
        return f"no news for {format_seconds(silent)}"
    phase, share = fit.facts.get("phase"), fit.facts.get("share")
    if not phase:
        return "running"
    return f"running: {phase}" if share is None else f"running: {phase} {share:.0%}"


def _ended(fit: FitHistory) -> str:
    return format_field("stop_reason", fit.facts.get("stop_reason", "ended"))


def _seconds(fit: FitHistory, now: float) -> float:
    if fit.facts.get("seconds") is not None:
        return float(fit.facts["seconds"])
    return max(0.0, (now if fit.is_running else fit.updated) - fit.began)


def _left(fit: FitHistory) -> str:
    return "" if fit.at_most is None else f"≤ {format_seconds(fit.at_most)}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:,.8g}"
