"""The pages about fits, as HTML: a list of all, and one of each with its iterations."""

from __future__ import annotations

import time
from collections.abc import Sequence
from html import escape

from daskcluster.dashboard.histories import FitHistory, Step
from daskcluster.host import format_bytes
from daskcluster.reports.html import STYLE as FACTS_STYLE
from daskcluster.reports.html import as_facts
from daskcluster.reports.tables import format_field, format_rate, format_seconds

SILENT_SECONDS = 30.0
"""After so long without news, a page says since when there were none."""
_MOST_LISTED = 200
_HEADER = (
    "fit", "rows", "k", "state", "iteration", "objective", "", "speed", "skipped", "time", "left",
)  # fmt: skip
_SMALL = (150, 36)
"""Pixels of a curve in the list."""

STYLE = f"""
body {{ font: 14px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 78rem; padding: 0 1.5rem;
  color: #1f2328; background: #fff; font-variant-numeric: tabular-nums; }}
body.stale main {{ opacity: .45; }}
h1 {{ font-size: 1.7rem; margin: 0 0 1rem; overflow-wrap: anywhere; }}
a {{ color: #0b57d0; text-decoration: none; }} a:hover {{ text-decoration: underline; }}
.wide {{ overflow-x: auto; }}
table {{ border-collapse: collapse; }} .wide > table {{ width: 100%; }}
th {{ font-weight: 500; color: #57606a; }}
th, td {{ padding: .45rem .5rem; border-bottom: 1px solid #e3e7ec; text-align: right;
  white-space: nowrap; }}
th:first-child, td:first-child, th.state, td.state {{ text-align: left; }}
tr:hover > td {{ background: #f8f9fb; }}
td b {{ font-weight: 600; }} small {{ display: block; color: #57606a; }}
.badge {{ padding: .1rem .6rem; border-radius: 1rem; background: #eceff3; color: #424a53; }}
.badge.running {{ background: #dafbe1; color: #1a7f37; font-weight: 600; }}
.badge.silent {{ background: #fff1e5; color: #bc4c00; font-weight: 600; }}
progress {{ display: block; width: 100%; height: .3rem; margin-top: .2rem; accent-color: #1f6feb; }}
svg {{ display: block; }} svg.large {{ width: 100%; height: auto; margin: 1.2rem 0; }}
polyline {{ fill: none; stroke: #1f6feb; stroke-width: 1.5; }} polygon {{ fill: #1f6feb; opacity: .12; }}
text {{ font-size: 12px; fill: #57606a; }}
{FACTS_STYLE}"""
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
    lines = "".join(_line(fit, now) for fit in fits)
    return f'<div class="wide"><table><tr>{header}</tr>{lines}</table></div>'


def page_of_fit(fit: FitHistory, now: float) -> str:
    """Return the figures of one fit, its curve and its last iterations."""
    facts = fit.facts
    told = [
        ("algorithm", facts["algorithm"]),
        ("rows", f"{facts['n_rows']:,}"),
        ("features", f"{facts['n_features']:,}"),
        ("clusters", f"{facts['n_clusters']:,}"),
        ("began", time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(fit.began))),
        ("state", _state(fit, now) if fit.is_running else _ended(fit)),
        ("seeding", facts.get("seeding", "")),
        ("inertia", _number(facts.get("inertia"))),
        ("passes", _number(facts.get("passes"))),
        ("read", format_bytes(facts.get("bytes_read") or 0)),
        ("time", format_seconds(_seconds(fit, now))),
        ("left", _left(fit)),
    ]
    header = "".join(
        f"<th>{escape(name)}</th>"
        for name in ("iteration", facts.get("objective", "inertia"), "took", "speed", "skipped")
    )
    steps = "".join(_step(step) for step in reversed(fit.steps[-_MOST_LISTED:]))
    table = f'<div class="wide"><table><tr>{header}</tr>{steps}</table></div>' if steps else ""
    known = [(name, str(value)) for name, value in told if value]
    return f"{as_facts(known)}{large_curve(fit.steps)}{table}"


def small_curve(steps: Sequence[Step]) -> str:
    """Return the objective by iteration as a small picture; nothing before the second one."""
    points = _points(steps)
    return _picture(points, *_SMALL, "", "small") if len(points) > 1 else ""


def large_curve(steps: Sequence[Step]) -> str:
    """Return the same as a large picture that says where the objective began and is."""
    points = _points(steps)
    if len(points) < 2:
        return ""
    told = f"from {points[0][1]:,.8g} to {points[-1][1]:,.8g}"
    text = (
        f'<text x="952" y="16" text-anchor="end">{told}, '
        f"{format_seconds(steps[-1].elapsed)} of iterations</text>"
    )
    return _picture(points, 960, 240, text, "large")


def _points(steps: Sequence[Step]) -> list[tuple[int, float]]:
    # By iteration: the first one of a process may take as long as all others, to compile kernels.
    return [(step.number, step.value) for step in steps if step.value is not None]


def _picture(
    points: Sequence[tuple[int, float]], width: int, height: int, text: str, kind: str
) -> str:
    first, last = points[0][0], points[-1][0]
    low, high = min(y for _, y in points), max(y for _, y in points)
    across, up = (width - 4) / ((last - first) or 1.0), (height - 4) / ((high - low) or 1.0)
    line = " ".join(f"{2 + (x - first) * across:.1f},{2 + (high - y) * up:.1f}" for x, y in points)
    return (
        f'<svg class="{kind}" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img">'
        f"<title>the objective by iteration</title>"
        f'<polygon points="2,{height} {line} {width - 2},{height}"/><polyline points="{line}"/>{text}</svg>'
    )


def _line(fit: FitHistory, now: float) -> str:
    facts = fit.facts
    last = fit.steps[-1] if fit.steps else None
    done, most = 0 if last is None else last.number, facts["max_iter"]
    cells = [
        _name(fit),
        f"{facts['n_rows']:,} x {facts['n_features']:,}",
        f"{facts['n_clusters']:,}",
        _badge(fit, now),
        f'{done:,} / {most:,}<progress max="{most}" value="{done}"></progress>',
        _number(facts.get("inertia") if last is None else last.value),
        small_curve(fit.steps),
        "" if last is None or last.rows_per_second is None else format_rate(last.rows_per_second),
        "" if last is None or last.skipped is None else f"{last.skipped:.1%}",
        format_seconds(_seconds(fit, now)),
        _left(fit),
    ]
    return (
        f"<tr>{''.join(_cell(name, cell) for name, cell in zip(_HEADER, cells, strict=True))}</tr>"
    )


def _cell(name: str, cell: str) -> str:
    return f'<td class="state">{cell}</td>' if name == "state" else f"<td>{cell}</td>"


def _name(fit: FitHistory) -> str:
    """Return the link to a fit's page: the name of its job, and below it the algorithm."""
    name, algorithm, key = (
        escape(str(fit.facts.get(what, ""))) for what in ("name", "algorithm", "fit")
    )
    below = f"<small>{algorithm}</small>" if name else ""
    return f'<a href="fits/{key}"><b>{name or algorithm}</b></a>{below}'


def _badge(fit: FitHistory, now: float) -> str:
    state, _, phase = _state(fit, now).partition(": ")
    kind = "ended" if not fit.is_running else "running" if state == "running" else "silent"
    below = f"<small>{escape(phase)}</small>" if phase else ""
    return f'<span class="badge {kind}">{escape(state)}</span>{below}'


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
