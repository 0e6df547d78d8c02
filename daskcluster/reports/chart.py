"""Small charts as SVG, drawn without a plotting library, so that a page stands on its own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 640, 240, 84, 36, 12


def line_chart(values: Sequence[float], *, x_label: str, y_label: str, log: bool = False) -> str:
    """Return an SVG of `values` against 1, 2, 3, ...; empty if there are none.

    Parameters
    ----------
    values : sequence of float
        Those that cannot be drawn (not finite, or <= 0 with `log`) are left out.
    log : bool
        Logarithmic y axis.
    """
    points = [
        (number, math.log10(value) if log else value)
        for number, value in enumerate(values, start=1)
        if math.isfinite(value) and (value > 0 or not log)
    ]
    if not points:
        return ""
    low, high = _span([y for _, y in points])
    scaled = [(_across(x, 1, max(len(values), 2)), _up(y, low, high)) for x, y in points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in scaled)
    marks = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5"/>' for x, y in scaled[:200])
    ticks = [(_up(y, low, high), _tick(10**y if log else y)) for y in (low, (low + high) / 2, high)]
    body = f'<polyline points="{path}" class="line"/><g class="dot">{marks}</g>'
    ends = [(_across(1, 1, max(len(values), 2)), "1")]
    if len(values) > 1:
        ends.append((_across(len(values), 1, len(values)), str(len(values))))
    return _svg(body + _axes(ticks, ends), x_label, y_label)


def bar_chart(values: Sequence[float], *, x_label: str, y_label: str) -> str:
    """Return an SVG with a bar for each value, from zero; empty if there are none.

    Parameters
    ----------
    values : sequence of float
        Finite and >= 0.
    """
    if not values:
        return ""
    high = max(*values, 1e-300)
    step = (_WIDTH - _LEFT - 8) / len(values)
    width = max(0.5, step * 0.85)
    bars = "".join(
        f'<rect x="{_LEFT + index * step:.2f}" y="{_up(value, 0, high):.1f}" width="{width:.2f}" '
        f'height="{_HEIGHT - _BOTTOM - _up(value, 0, high):.1f}"/>'
        for index, value in enumerate(values)
    )
    ticks = [(_up(y, 0, high), _tick(y)) for y in (0.0, high / 2, high)]
    ends = [(_LEFT + step / 2, "1")]
    if len(values) > 1:
        ends.append((_LEFT + (len(values) - 0.5) * step, str(len(values))))
    return _svg(f'<g class="bar">{bars}</g>' + _axes(ticks, ends), x_label, y_label)


def _span(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    pad = (high - low) * 0.05 or abs(high) * 0.05 or 1.0
    return low - pad, high + pad


def _across(value: float, low: float, high: float) -> float:
    return _LEFT + (value - low) / (high - low) * (_WIDTH - _LEFT - 12)


def _up(value: float, low: float, high: float) -> float:
    return _HEIGHT - _BOTTOM - (value - low) / (high - low) * (_HEIGHT - _BOTTOM - _TOP)


def _tick(value: float) -> str:
    return f"{value:.4g}"


def _axes(ticks: Sequence[tuple[float, str]], ends: Sequence[tuple[float, str]]) -> str:
    bottom = _HEIGHT - _BOTTOM
    lines = [
        f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{_WIDTH - 4}" y2="{y:.1f}" class="grid"/>'
        f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{escape(text)}</text>'
        for y, text in ticks
    ]
    lines += [
        f'<text x="{x:.1f}" y="{bottom + 15}" text-anchor="middle">{escape(text)}</text>'
        for x, text in ends
    ]
    return "".join(lines)


def _svg(body: str, x_label: str, y_label: str) -> str:
    middle = (_WIDTH + _LEFT) / 2
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(y_label)}">{body}'
        f'<text x="{middle}" y="{_HEIGHT - 4}" text-anchor="middle">{escape(x_label)}</text>'
        f'<text x="12" y="{_HEIGHT / 2}" text-anchor="middle" '
        f'transform="rotate(-90 12 {_HEIGHT / 2})">{escape(y_label)}</text></svg>'
    )
