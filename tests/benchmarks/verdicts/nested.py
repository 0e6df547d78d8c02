"""Newling and Fleuret, "Nested mini-batch k-means"."""

from __future__ import annotations

import math

from tests.benchmarks.verdicts.claims import (
    ABOVE,
    Claim,
    Finding,
    listed,
    mean_and_error,
    share,
    span,
)
from tests.published import Table, first_number, published

SETS = ("digits", "patches", "connections", "words", "newspaper")


def _figure2() -> Table:
    return published("figure2", "Seconds until")


def _figure2_seeds() -> str:
    return span(_figure2().numbers("seeds"))


def _times_earlier() -> dict[str, tuple[str, float]]:
    """Return by set what the table says, and the ratio; 0 if it is of no more than half of the seeds."""
    found = {}
    for name in SETS:
        text = _figure2().cell(name, "mbatch / nmbatch, seconds")
        there, _, many = text.partition("(")[2].partition(" of ")
        usual = text != "-" and (not many or 2 * float(there) > first_number(many))
        found[name] = text, first_number(text) if usual else 0.0
    return found


def earlier_than_mini_batches() -> Finding:
    found = _times_earlier()
    return Finding(
        f"times earlier: {listed({name: text for name, (text, _) in found.items()})}",
        tuple(ratio >= 10 for _, ratio in found.values()),
        _figure2_seeds(),
    )


def earlier_at_all() -> Finding:
    found = _times_earlier()
    first = [name for name, (_, ratio) in found.items() if ratio > 1]
    return Finding(
        f"earlier on {', '.join(first)}",
        tuple(ratio > 1 for _, ratio in found.values()),
        _figure2_seeds(),
    )


def as_low_as_lloyd() -> Finding:
    table = _figure2()
    ends = {name: [table.cell(name, "end", nth=at) for at in (3, 0)] for name in SETS}
    said = {name: f"{ours} ({lloyd})" for name, (ours, lloyd) in ends.items()}
    return Finding(
        f"above the best (Lloyd's algorithm): {listed(said)}",
        tuple(share(ours) <= share(lloyd) + ABOVE / 2 for ours, lloyd in ends.values()),
        _figure2_seeds(),
    )


def large_rho() -> Finding:
    table = published("figure3", "Mean excess")
    bounds, seeds = (table.header.index(one) for one in ("bounds", "seeds"))
    said, holds, sure = {}, [], []
    for name in SETS[:3]:
        line = next(line for line in table.lines if line[0] == name and line[bounds] == "with")
        small, large = (line[table.header.index(f"rho = {rho}")] for rho in ("0.1", "100"))
        said[name] = f"{large} ({small})"
        holds.append(share(large) <= share(small))
        if _beyond(small, large, int(line[seeds])):
            sure.append(name)
    return Finding(
        f"above the best with rho = 100 (0.1) at half the time: {listed(said)}; lower beyond two standard "
        f"errors on {', '.join(sure) or 'none'}",
        tuple(holds),
        span(table.numbers("seeds")),
    )


def _beyond(more: str, less: str, seeds: int) -> bool:
    """Return whether two cells "mean ± deviation %" differ by more than two standard errors."""
    (high, first), (low, second) = (
        mean_and_error(cell.removesuffix(" %"), seeds) for cell in (more, less)
    )
    return seeds > 1 and high - low > 2 * math.hypot(first, second)


def faster_pass() -> Finding:
    table = published("table1", "Seconds for one pass")
    found = {
        line[0]: line[table.header.index("scikit-learn / ours")]
        for line in table.lines
        if line[2] == "1"
    }
    return Finding(
        f"times as fast as scikit-learn, one thread: {listed(found)}",
        tuple(float(text) > 1 for text in found.values()),
        "1",
    )


CLAIMS = (
    Claim(
        "within 2 % of the best energy 10 to 100 times earlier than mini-batches (Figure 2)",
        earlier_than_mini_batches,
    ),
    Claim("within 2 % of it earlier than mini-batches (Figure 2)", earlier_at_all),
    Claim("they end as low as Lloyd's algorithm (Figure 2)", as_low_as_lloyd),
    Claim("a large threshold rho is better with bounds (Figure 3)", large_rho),
    Claim("a pass of mini-batches is faster than scikit-learn's (Table 1)", faster_pass),
    Claim(
        "the same on INFMNIST, STL10P and RCV1",
        "these sets are not available; the sets here stand for them",
    ),
)
