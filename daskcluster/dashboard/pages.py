"""The pages about fits, as HTML: a list of all, and one of each with its iterations."""

from __future__ import annotations

import time
from collections.abc import Sequence
from html import escape

from daskcluster.dashboard.histories import FitHistory, Step
from daskcluster.host import format_bytes
from daskcluster.reports.tables import format_rate, format_seconds

SILENT_SECONDS = 30.0
"""After so long without news, a page says since when there were none."""
_MOST_LISTED = 200
_HEADER = (
    "fit", "rows", "k", "state", "iteration", "objective", "", "speed", "skipped", "time", "left",
)  # fmt: skip

STYLE = """
body { font: 14px/1.4 system-ui, sans-serif; margin: 1.5rem; color: #1f2328; }
body.stale main { opacity: .45; }
table { border-collapse: collapse; }
th, td { padding: .3rem .7rem; border-bottom: 1px solid #d0d7de; text-align: right; white-space: nowrap; }
th:first-child, td:first-child, .state { text-align: left; }
.running { font-weight: 600; color: #1a7f37; }
polyline { fill: none; stroke: #1f6feb; stroke-width: 1.5; }
text { font-size: 10px; fill: #57606a; }
"""
SCRIPT = """
"use strict";
const main = document.querySelector("main");
async function refresh() {
  let answer = null;
  try {
    answer = await fetch(location.pathname + "?part=1", {cache: "no-store"});
    if (answer.ok) main.innerHTML = await answer.text();
  } catch (error) { answer = null; }
  document.body.classList.toggle("stale", !(answer && answer.ok));
}
setInterval(refresh, 1000);
"""


def whole_page(title: str, part: str, *, root: str) -> str:
    """Return a page around `part`, which its script renews every second.

    Parameters
    ----------
    title, part : str
        The text of the title, and the HTML of what changes.
    root : str
        The way from the page to the folder of the dashboard's pages, such as ``"../"``.
    """
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{STYLE}</style></head><body><h1>{escape(title)}</h1><main>{part}</main>"
        f'<p><a href="{root}fits">all fits</a> · <a href="{root}status">Dask</a></p>'
        f'<script src="{root}fits.js"></script></body></html>'
    )


def list_of_fits(fits: Sequence[FitHistory], now: float) -> str:
    """Return a table with one line for each fit."""
    if not fits:
        return "<p>No fit has run on this cluster yet.</p>"
    header = "".join(f'<th class="{name}">{name}</th>' for name in _HEADER)
    return f"<table><tr>{header}</tr>{''.join(_line(fit, now) for fit in fits)}</table>"


def page_of_fit(fit: FitHistory, now: float) -> str:
    """Return the figures of one fit, its curve and its last iterations."""
    facts = fit.facts
    told = [
        ("algorithm", facts["algorithm"]),
        ("rows", f"{facts['n_rows']:,} of {facts['n_features']:,} features"),
        ("clusters", f"{facts['n_clusters']:,}"),
        ("began", time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(fit.began))),
        ("state", _state(fit, now)),
        ("seeding", facts.get("seeding", "")),
        ("inertia", _number(facts.get("inertia"))),
        ("passes", _number(facts.get("passes"))),
        ("read", format_bytes(facts.get("bytes_read") or 0)),
        ("time", format_seconds(_seconds(fit, now))),
        ("left", _left(fit)),
    ]
    lines = "".join(
        f"<tr><th>{name}</th><td>{escape(str(value))}</td></tr>" for name, value in told if value
    )
    header = "".join(
        f"<th>{escape(name)}</th>"
        for name in ("iteration", facts.get("objective", "inertia"), "took", "speed", "skipped")
    )
    steps = "".join(_step(step) for step in reversed(fit.steps[-_MOST_LISTED:]))
    table = f"<table><tr>{header}</tr>{steps}</table>" if steps else ""
    return f"<table>{lines}</table>{curve(fit.steps, 720, 240)}{table}"


def curve(steps: Sequence[Step], width: int, height: int) -> str:
    """Return the objective against seconds as a small picture; nothing before the second iteration."""
    points = [(step.elapsed, step.value) for step in steps if step.value is not None]
    if len(points) < 2:
        return ""
    first, last = points[0][0], points[-1][0]
    low, high = min(y for _, y in points), max(y for _, y in points)
    across, up = (width - 4) / ((last - first) or 1.0), (height - 4) / ((high - low) or 1.0)
    line = " ".join(f"{2 + (x - first) * across:.1f},{2 + (high - y) * up:.1f}" for x, y in points)
    named = height >= 100
    texts = (
        f'<text x="{width - 4}" y="12" text-anchor="end">from {high:.6g} to {points[-1][1]:.6g}, '
        f"{format_seconds(last)} of iterations</text>"
        if named
        else ""
    )
    return (
        f'<svg width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img">'
        f"<title>the objective against seconds</title>"
        f'<polyline points="{line}"/>{texts}</svg>'
    )


def _line(fit: FitHistory, now: float) -> str:
    facts = fit.facts
    last = fit.steps[-1] if fit.steps else None
    name = facts.get("name") or facts["algorithm"]
    value = facts.get("inertia") if last is None else last.value
    cells = [
        f'<a href="fits/{escape(facts["fit"])}">{escape(str(name))}</a>',
        f"{facts['n_rows']:,} x {facts['n_features']:,}",
        f"{facts['n_clusters']:,}",
        escape(_state(fit, now)),
        f"{0 if last is None else last.number} / {facts['max_iter']}",
        _number(value),
        curve(fit.steps, 120, 28),
        "" if last is None or last.rows_per_second is None else format_rate(last.rows_per_second),
        "" if last is None or last.skipped is None else f"{last.skipped:.1%}",
        format_seconds(_seconds(fit, now)),
        _left(fit),
    ]
    kinds = {3: "state running" if fit.is_running else "state"}
    return (
        "<tr>"
        + "".join(
            f'<td class="{kinds[i]}">{cell}</td>' if i in kinds else f"<td>{cell}</td>"
            for i, cell in enumerate(cells)
        )
        + "</tr>"
    )


def _step(step: Step) -> str:
    cells = (
        str(step.number),
        _number(step.value),
        format_seconds(step.seconds),
        "" if step.rows_per_second is None else format_rate(step.rows_per_second),
        "" if step.skipped is None else f"{step.skipped:.1%}",
    )
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _state(fit: FitHistory, now: float) -> str:
    if not fit.is_running:
        return str(fit.facts.get("stop_reason", "ended"))
    silent = now - fit.updated
    if silent > SILENT_SECONDS:
        return f"no news for {format_seconds(silent)}"
    phase, share = fit.facts.get("phase"), fit.facts.get("share")
    if not phase:
        return "running"
    return f"running: {phase}" if share is None else f"running: {phase} {share:.0%}"


def _seconds(fit: FitHistory, now: float) -> float:
    if fit.facts.get("seconds") is not None:
        return float(fit.facts["seconds"])
    return max(0.0, (now if fit.is_running else fit.updated) - fit.began)


def _left(fit: FitHistory) -> str:
    return "" if fit.at_most is None else f"≤ {format_seconds(fit.at_most)}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:.8g}"
