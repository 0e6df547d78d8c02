"""What became of the claims of each paper: ``python -m tests.benchmarks reproduction --verdicts``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.benchmarks.harness.page import write_section
from tests.benchmarks.harness.parts import Table
from tests.benchmarks.verdicts import backward_euler, kernel, mixtures, nested, variance_reduced
from tests.benchmarks.verdicts.claims import Claim

PAPERS: dict[str, tuple[str, str, tuple[Claim, ...]]] = {
    "nested": ("Newling and Fleuret 2016", "Nested mini-batch k-means", nested.CLAIMS),
    "kernel": ("Jourdan and Schwartzman 2024", "Kernel k-means", kernel.CLAIMS),
    "vrkm": ("Zhao and others 2018", "Variance reduced k-means", variance_reduced.CLAIMS),
    "vc-gmm": (
        "Hirschberger and others 2018",
        "Gaussian mixtures by sublinear variational EM",
        mixtures.CLAIMS,
    ),
    "backward-euler": ("Yin and others 2018", "Stochastic backward Euler", backward_euler.CLAIMS),
}
"""Authors, the heading on the page, and the claims of each paper."""
VERDICTS = ("agrees", "agrees in", "differs", "untested")
"""How verdicts begin; the second one is of some cases."""


def tables() -> Iterator[tuple[str, Table]]:
    """Yield sections of the page and their tables: numbers of verdicts first, then those of each paper."""
    papers = {
        f"claims-{name}": Table(
            heading,
            ["claim", "our finding", "verdict", "seeds"],
            [claim.row() for claim in claims],
        )
        for name, (_, heading, claims) in PAPERS.items()
    }
    header = ["paper", "by", "claims", "agree", "agree in some cases", "differ", "untested"]
    counts = [
        [f"[{heading}](#{_anchor(heading)})", authors, *_numbers(table)]
        for (authors, heading, _), table in zip(PAPERS.values(), papers.values(), strict=True)
    ]
    yield "claims", Table("All claims", header, counts)
    yield from papers.items()


def _numbers(table: Table) -> list[int]:
    """Return the number of claims, and how many have each verdict."""
    kinds = [
        max((one for one in VERDICTS if row[2].startswith(one)), key=len) for row in table.rows
    ]
    return [len(kinds), *(kinds.count(one) for one in VERDICTS)]


def _anchor(heading: str) -> str:
    return heading.lower().replace(" ", "-")


def write(page: Path) -> None:
    """Put the tables into the page."""
    for section, table in tables():
        write_section(page, section, "\n".join(table.markdown().splitlines()[2:]))
