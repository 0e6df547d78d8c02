"""Jourdan and Schwartzman, "Mini-batch kernel k-means"."""

from __future__ import annotations

from tests.benchmarks.verdicts.claims import ABOVE, Claim, Finding, listed, span
from tests.published import Table, published

TRUNCATED = "tau=200, b=1024, sqrt"
SETS = ("pendigits", "mnist10k", "mnist")
ALL = ("rings", *SETS, "pendigits-heat", "mnist10k-heat", "mnist10k-knn")


def _kernel(name: str) -> Table:
    return published("kernel", f"{name}: ")


def _kernel_seeds(*names: str) -> str:
    found = [
        table.number(line, "seeds")
        for table in map(_kernel, names)
        for line in (TRUNCATED, "full batch")
    ]
    return span(found)


def faster_step() -> Finding:
    found = {name: _kernel(name).number(TRUNCATED, "full batch / this") for name in SETS}
    said = {name: f"{one:,.0f}" if one > 100 else f"{one:.3g}" for name, one in found.items()}
    return Finding(
        f"times as fast: {listed(said)}",
        tuple(one > 1 for one in found.values()),
        _kernel_seeds(*found),
    )


def as_good_as_full_batch() -> Finding:
    found = {
        name: (
            _kernel(name).number(TRUNCATED, "ARI"),
            _kernel(name).number("full batch", "ARI"),
            _spread(name),
        )
        for name in SETS
    }
    said = {name: f"{ours:.3f} ({full:.3f})" for name, (ours, full, _) in found.items()}
    return Finding(
        f"ARI (of the full batch): {listed(said)}",
        tuple(ours >= full - max(2 * spread, ABOVE) for ours, full, spread in found.values()),
        _kernel_seeds(*found),
    )


def _spread(name: str) -> float:
    text = _kernel(name).cell("full batch", "+-")
    return 0.0 if text == "-" else float(text)


def better_than_plain() -> Finding:
    found = {}
    for name in ALL:
        table = _kernel(name)
        plain = table.numbers("ARI", having="plain k-means")
        ours = table.numbers("ARI", having="tau=200")
        if plain and ours:
            found[name] = max(ours), max(plain)
    said = {name: f"{ours:.3f} ({plain:.3f})" for name, (ours, plain) in found.items()}
    return Finding(
        f"best ARI with tau = 200 (of plain k-means): {listed(said)}",
        tuple(ours > plain for ours, plain in found.values()),
        _kernel_seeds("rings", "pendigits", "mnist"),
    )


CLAIMS = (
    Claim("a truncated step is faster than an iteration of the full batch", faster_step),
    Claim(
        "its clusters agree with the classes as well as those of the full batch",
        as_good_as_full_batch,
    ),
    Claim("they agree better than those of plain k-means", better_than_plain, "with as many steps"),
    Claim("the same on Letter and HAR", "these sets are not available"),
)
