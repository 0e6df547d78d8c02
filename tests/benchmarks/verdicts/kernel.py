"""Jourdan and Schwartzman, "Mini-batch kernel k-means"."""

from __future__ import annotations

from statistics import fmean

from tests.benchmarks.verdicts.claims import ABOVE, Claim, Finding, listed, span
from tests.published import Table, first_number, published, said

TRUNCATED = "tau=200, b=1024, sqrt"
SETS = ("pendigits", "mnist10k", "mnist")
GRAPHS = ("pendigits-knn", "pendigits-heat", "mnist10k-knn", "mnist10k-heat")
ALL = ("rings", *SETS, *GRAPHS)
RATES = ("sqrt", "count")


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
    both = (*SETS, *GRAPHS)
    found = {name: _kernel(name).number(TRUNCATED, "full batch / this") for name in both}
    words = {name: f"{one:,.0f}" if one > 100 else f"{one:.3g}" for name, one in found.items()}
    return Finding(
        f"times as fast: {listed(words)}",
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
        for name in (*SETS, *GRAPHS)
    }
    words = {name: f"{ours:.3f} ({full:.3f})" for name, (ours, full, _) in found.items()}
    return Finding(
        f"ARI (of the full batch): {listed(words)}",
        tuple(ours >= full - max(2 * spread, ABOVE) for ours, full, spread in found.values()),
        _kernel_seeds(*found),
    )


def _spread(name: str) -> float:
    text = _kernel(name).cell("full batch", "+-")
    return 0.0 if text == "-" else float(text)


def _gains(name: str, rate: str, tau: str = "tau=") -> list[float]:
    """Return the ARI of truncated mini-batches minus that of untruncated ones with the same batches."""
    table = _kernel(name)
    found = {line[0]: first_number(line[table.header.index("ARI")]) for line in table.lines}
    pairs = [(one, f"untruncated, {one.partition(', ')[2]}") for one in found if tau in one]
    kept = [pair for pair in pairs if rate in pair[0] and pair[1] in found]
    return [found[one] - found[whole] for one, whole in kept]


def as_good_as_untruncated() -> Finding:
    found = {
        name: [fmean(gains) for rate in RATES if (gains := _gains(name, rate))]
        for name in (*SETS, *GRAPHS)
    }
    words = {name: " and ".join(f"{one:+.3f}" for one in means) for name, means in found.items()}
    return Finding(
        f"ARI above untruncated, means over b and tau, beta and count: {listed(words)}",
        tuple(one >= -ABOVE for means in found.values() for one in means),
        _kernel_seeds(*found),
    )


def small_windows() -> Finding:
    found = {
        name: fmean(_gains(name, "sqrt", "tau=50"))
        for name in (*SETS, *GRAPHS)
        if _gains(name, "sqrt", "tau=50")
    }
    words = {name: f"{one:+.3f}" for name, one in found.items()}
    return Finding(
        f"ARI above untruncated, means over b, beta: {listed(words)}",
        tuple(one >= -ABOVE for one in found.values()),
        _kernel_seeds(*found),
    )


def faster_than_untruncated() -> Finding:
    """Compare lines of one machine without other load; the page has the ratio of the whole of MNIST."""
    whole, ours = (
        _kernel("pendigits").number(f"{kind}, b=1024, sqrt", "ms per step")
        for kind in ("untruncated", "tau=200")
    )
    (times,) = said(
        "reproduction.md", r"their step takes (\d+) times as long as one with tau = 200"
    )
    found = {"pendigits": whole / ours, "mnist": float(times)}
    words = {name: f"{one:.2g}" for name, one in found.items()}
    return Finding(
        f"times as fast, tau = 200, b = 1024, beta: {listed(words)}",
        tuple(one >= 10 for one in found.values()),
        _kernel_seeds(*found),
    )


def better_than_plain() -> Finding:
    found = {}
    for name in ALL:
        table = _kernel(name)
        plain = table.numbers("ARI", having="plain k-means")
        ours = table.numbers("ARI", having="tau=200")
        if plain and ours:
            found[name] = max(ours), max(plain)
    words = {name: f"{ours:.3f} ({plain:.3f})" for name, (ours, plain) in found.items()}
    return Finding(
        f"best ARI with tau = 200 (of plain k-means): {listed(words)}",
        tuple(ours > plain for ours, plain in found.values()),
        _kernel_seeds("rings", "pendigits", "mnist"),
    )


CLAIMS = (
    Claim("a truncated step is faster than an iteration of the full batch", faster_step),
    Claim(
        "its clusters agree with the classes as well as those of the full batch",
        as_good_as_full_batch,
    ),
    Claim(
        "truncated mini-batches agree with them as well as untruncated ones",
        as_good_as_untruncated,
    ),
    Claim("the same with tau = 50", small_windows),
    Claim("their steps often take a tenth of the time", faster_than_untruncated),
    Claim("they agree better than those of plain k-means", better_than_plain, "with as many steps"),
    Claim("the same on Letter and HAR", "these sets are not available"),
)
