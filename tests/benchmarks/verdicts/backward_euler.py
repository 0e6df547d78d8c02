"""Yin, Pham, Oberman and Osher, "Stochastic backward Euler"."""

from __future__ import annotations

from tests.benchmarks.verdicts.claims import Claim, Finding, listed
from tests.published import Table, first_number, published


def _phi(name: str) -> Table:
    return published("backward-euler", f"phi on {name}: ")


def _seeds(line: str, name: str = "mnist") -> str:
    return _phi(name).cell(line, "starts at the best").split(" of ")[1]


def _paper(table: Table, line: str) -> float:
    """Return the paper's mean."""
    return float(table.cell(line, "paper: min / max / mean / variance").split(" / ")[2])


CLOSE = 1e-3
"""Means that differ by a smaller share count as equal."""


def _means(what: str, lines: dict[str, tuple[str, str]]) -> Finding:
    """Compare our means with the paper's; `lines` are those of ours and of the paper's figure."""
    table = _phi("mnist")
    found = {
        name: (table.number(ours, "mean"), _paper(table, theirs))
        for name, (ours, theirs) in lines.items()
    }
    said = {name: f"{ours:.4f} ({theirs:.4f})" for name, (ours, theirs) in found.items()}
    return Finding(
        f"{what} (paper): {listed(said)}",
        tuple(abs(ours / theirs - 1) < CLOSE for ours, theirs in found.values()),
        _seeds(next(iter(lines.values()))[0]),
    )


def mean_on_mnist() -> Finding:
    euler, lloyd = "10 | SBE | 1000", "10 | EM"
    return _means(
        "means",
        {"stochastic backward Euler": (euler, euler), "Lloyd's algorithm": (lloyd, lloyd)},
    )


def small_batches() -> Finding:
    lines = {f"k = {k}": (f"{k} | defaults | 500", f"{k} | SBE | 500") for k in (8, 10, 12)}
    return _means("means with our defaults", lines)


def mini_batch_em() -> Finding:
    lines = {f"k = {k}": (f"{k} | mb-EM | 500", f"{k} | mb-EM | 500") for k in (8, 10, 12)}
    return _means("means without memory", lines)


def always(name: str, lines: dict[str, str], lloyd: str) -> Finding:
    """Return how many starts end at the best objective."""
    table = _phi(name)
    found = {said: table.cell(line, "starts at the best") for said, line in lines.items()}
    ends = [[first_number(one) for one in text.split(" of ")] for text in found.values()]
    return Finding(
        f"starts at the best: {listed(found)}; Lloyd's algorithm {table.cell(lloyd, 'starts at the best')}",
        tuple(best == starts for best, starts in ends),
        f"{ends[0][1]:.0f}",
    )


def on_digits() -> Finding:
    lines = {
        "our defaults": "8 | defaults | 1000",
        "gamma = 1.2 k from random rows": "8 | SBE | 1000",
    }
    return always("digits", lines, "8 | EM")


def on_features() -> Finding:
    lines = {
        f"{said}, {rows} rows": f"10 | {program} | {rows}"
        for rows in (1000, 500)
        for said, program in (
            ("our defaults", "defaults"),
            ("gamma = 1.2 k from random rows", "SBE"),
        )
    }
    return always("features", lines, "10 | EM")


def on_iris() -> Finding:
    table = _phi("iris")
    low, high = (table.number("3 | SBE", one) for one in ("min", "max"))
    return Finding(
        f"{low:.4f} to {high:.4f}", (abs(high - 0.264) < 0.002,), _seeds("3 | SBE", "iris")
    )


def on_clouds() -> Finding:
    table = published("backward-euler", "Four clouds")
    text = table.cell("SBE from this minimum", "starts at the best")
    left, starts = (first_number(one) for one in text.split(" of "))
    return Finding(f"{text} starts", (left == starts,), f"{starts:.0f}")


CLAIMS = (
    Claim(
        "on MNIST, the mean objective is 19.6201, that of Lloyd's algorithm 19.6725", mean_on_mnist
    ),
    Claim(
        "on MNIST with batches of 500 rows, it is 20.3090, 19.6354 and 19.0972",
        small_batches,
        "from k-means++, the paper from random rows",
    ),
    Claim(
        "that of mini-batch EM is 20.5958, 20.0146 and 19.5136",
        mini_batch_em,
        "the paper's forgets earlier batches",
    ),
    Claim(
        "on eight noisy digits, every start ends at the best objective",
        on_digits,
        "the defaults start from k-means++; the paper's gamma, alpha, beta and digits are unknown",
    ),
    Claim(
        "on features of a network, every start with ten centres ends at the best objective",
        on_features,
        "another network",
    ),
    Claim("on Iris, every start ends at 0.264", on_iris),
    Claim("it leaves a bad minimum of four clouds (section 3.1)", on_clouds, "clouds of ours"),
    Claim(
        "six and ten centres for the eight digits",
        "the paper does not name its digits, and their distances decide",
    ),
)
