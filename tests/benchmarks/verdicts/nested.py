"""Newling and Fleuret, "Nested mini-batch k-means"."""

from __future__ import annotations

from tests.benchmarks.verdicts.claims import ABOVE, Claim, Finding, listed, reproduced, share
from tests.published import Table, first_number

SETS = ("digits", "patches", "connections", "words", "newspaper")


def _figure2() -> Table:
    return reproduced("figure2", "Seconds until")


def _figure2_seeds() -> str:
    return " or ".join(dict.fromkeys(f"{one:.0f}" for one in _figure2().numbers("seeds")))


def earlier_than_mini_batches() -> Finding:
    table = _figure2()
    found = {name: table.cell(name, "mbatch / nmbatch, seconds") for name in SETS}
    return Finding(
        f"times earlier: {listed(found)}",
        tuple(first_number(text) >= 10 for text in found.values()),
        _figure2_seeds(),
    )


def earlier_at_all() -> Finding:
    table = _figure2()
    found = {name: table.number(name, "mbatch / nmbatch, seconds") for name in SETS}
    first = [name for name, ratio in found.items() if ratio > 1]
    return Finding(
        f"earlier on {', '.join(first)}",
        tuple(ratio > 1 for ratio in found.values()),
        _figure2_seeds(),
    )


def as_low_as_lloyd() -> Finding:
    table = _figure2()
    ends = {name: [table.cell(name, "end", nth=at) for at in (3, 0)] for name in SETS}
    said = {
        name: " against ".join(f"{100 * share(one):.2f} %" for one in two)
        for name, two in ends.items()
    }
    return Finding(
        f"above the best, against Lloyd's algorithm: {listed(said)}",
        tuple(share(ours) <= share(lloyd) + ABOVE / 2 for ours, lloyd in ends.values()),
        _figure2_seeds(),
    )


def large_rho() -> Finding:
    table = reproduced("figure3", "Mean excess")
    begins = {
        name: next(line for line in table.lines if line[0] == name and line[2] == "with")
        for name in SETS[:3]
    }
    ends = {
        name: [share(line[table.header.index(f"rho = {rho}")]) for rho in ("0.1", "100")]
        for name, line in begins.items()
    }
    said = {
        name: f"{100 * large:.2f} % ({100 * small:.2f} %)" for name, (small, large) in ends.items()
    }
    return Finding(
        f"above the best with rho = 100 (0.1) at half the time: {listed(said)}",
        tuple(large <= small for small, large in ends.values()),
        "1",
    )


def faster_pass() -> Finding:
    table = reproduced("table1", "Seconds for one pass")
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
