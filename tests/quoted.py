"""Figures that the page on choosing an algorithm quotes, each made from what benchmarks have published.

``python -m tests.quoted`` puts them into the page after figures have been published anew.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.published import DOCS, Table, first_number, published, said

PAGE = DOCS / "how-to" / "choose-an-algorithm.md"
FIGURES = r"(?:all|\d[\d.,]*(?: to [\d.,]+| of \d+|, [\d.]+| %)?)"


@dataclass(frozen=True)
class Quote:
    """Words of the page with ``{}`` in the places of figures, and what computes these."""

    words: str
    figures: Callable[[], tuple[str, ...]]

    def __str__(self) -> str:
        return self.words.format(*self.figures())

    @property
    def pattern(self) -> re.Pattern[str]:
        """Return what finds the words with any figures."""
        return re.compile(FIGURES.join(re.escape(part) for part in self.words.split("{}")))


def rewrite() -> str:
    """Return the page with today's figures."""
    text = PAGE.read_text(encoding="utf-8")
    for quote in QUOTES:
        text, found = quote.pattern.subn(lambda _, new=str(quote): new, text)
        assert found == 1, f"the page has {found} places like {quote.words!r}"
    return text


def span(numbers: list[float], form: str = "{:,.0f}") -> str:
    """Return the least and the largest number, once if they look the same."""
    ends = form.format(min(numbers)), form.format(max(numbers))
    return " to ".join(dict.fromkeys(ends))


# -- which estimator ------------------------------------------------------------------------------------


def nested() -> tuple[str, ...]:
    near = published("nested", "Seconds to 1% above")
    whole = published("nested", "Seconds of whole fits")
    there = near.cell("mnist", "seeds to 1%", nth=1)
    return (
        whole.cell("mnist", "KMeans (auto)"),
        near.cell("mnist", "nested"),
        there,
        f"{near.number('mnist', 'scikit-learn mini-batches'):.0f}",
    )


def minibatch() -> tuple[str, ...]:
    table = published("figure2", "Seconds until")
    found: list[str] = []
    for name, programs in FIGURE_2.items():
        found += [f"{table.number(name, f'{program}, s'):.2f}" for program in programs]
        kept = json.loads((DOCS / "results" / "figure2.json").read_text())[name]
        for program in ("mbatch", "nmbatch"):
            ends = kept["ends"][program]
            found.append(f"{100 * (sum(ends) / len(ends) / kept['best'] - 1):.2f}")
    return tuple(found)


FIGURE_2 = {"digits": ("mbatch", "nmbatch", "lloyd"), "patches": ("mbatch", "nmbatch")}
"""Programs of which the page says when they are near the best energy."""


def coreset_time() -> tuple[str, ...]:
    ratios = published("coreset", "Seconds for a coreset of").numbers("ratio")
    return (span(ratios, "{:.1f}"),)


def coreset_quality() -> tuple[str, ...]:
    table = published("vc-gmm", "Table 1")
    sizes = published("vc-gmm", "Sets and settings")
    fits = [cells for cells in table.lines if cells[1] == "LWCS"]
    assert [cells[0] for cells in fits if "kddcup99" in cells[0]], "no connections"
    at = table.header.index("relative error"), table.header.index("speed-up, distances")
    usual = [cells for cells in fits if "kddcup99" not in cells[0]]
    (odd,) = [cells for cells in fits if "kddcup99" in cells[0]]
    names = {cells[0].split(" (")[0] for cells in usual}
    settings = Table(sizes.header, [cells for cells in sizes.lines if cells[0] in names])
    return (
        span(settings.numbers("C")),
        span(settings.numbers("N'")),
        span([first_number(cells[at[0]]) for cells in usual]),
        span([first_number(cells[at[1]]) for cells in usual]),
        f"{first_number(odd[at[0]]):.0f}",
    )


def mixture() -> tuple[str, ...]:
    stages = published("pipeline", "Stages")
    took = published("pipeline", "Resources and results")
    step = published("mixture", "Time of an EM iteration")
    (power,) = said(
        "results/tables/mixture/notes.csv", r"the time grows as C to the power of (\d\.\d+)"
    )
    return (
        f"{stages.number('all', 'seconds'):.0f}",
        f"{took.number('peak memory', 'figure'):.1f}",
        f"{stages.number('model and labels', 'seconds'):.0f}",
        f"{step.number('200,000, 32, 500', 'ours / Faiss'):.2f}",
        power,
    )


def kernel() -> tuple[str, ...]:
    digits = published("kernel", "pendigits: rbf")
    mnist = published("kernel", "mnist: rbf")
    rows = published("kernel-rows", "A step of truncated")
    step, full = said(
        "reproduction.md",
        r"tau = 200 took (\d+) ms .*? iteration of the full batch more than (\d+) s",
    )
    return (
        digits.cell("full batch", "ms per step"),
        span(digits.numbers("ms per step", having="tau=200, b=1024")),
        digits.cell("full batch", "ARI"),
        digits.cell("tau=200, b=1024, sqrt", "ARI"),
        full,
        step,
        mnist.cell("full batch", "ARI"),
        mnist.cell("tau=200, b=1024, sqrt", "ARI"),
        span(rows.numbers("ms per step")),
    )


def very_many() -> tuple[str, ...]:
    table = published("hierarchical", "Seconds and memory: ")
    ours, plain = "hierarchical, rows in memory", "k-means from random rows, 2 iterations"
    return (
        table.cell(ours, "cells or seeding, s"),
        table.cell(ours, "seconds"),
        *(table.cell(run, "inertia / n") for run in (ours, plain)),
    )


def backward_euler() -> tuple[str, ...]:
    table = published("backward-euler", "phi on mnist: ")
    euler, lloyd = "10 | SBE | 1000", "10 | EM"
    return (
        *(table.cell(line, "starts at the best") for line in (euler, lloyd)),
        *(f"{table.number(line, 'mean'):.2f}" for line in (euler, lloyd)),
    )


def stream() -> tuple[str, ...]:
    share = published("stream", "Throughput").numbers("throughput")[-1]
    near = published("stream", "Quality")
    ratios = [[float(one) for one in line[2].split(",")] for line in near.lines]
    worst = max(max(line) for line in ratios)
    return f"{share:.0f}", f"{100 * (worst - 1):.1f}", str(len(ratios[0]))


# -- which exact algorithm ------------------------------------------------------------------------------


def against_lloyd(*lines: str) -> Callable[[], tuple[str, ...]]:
    def figures() -> tuple[str, ...]:
        table = published("bounds", "Ratios of these times")
        form = "{:.1f}" if len(lines) == 1 else "{:.2f}"
        return (", ".join(form.format(table.number(line, "lloyd / auto")) for line in lines),)

    return figures


def on_disk(order: str) -> Callable[[], tuple[str, ...]]:
    def figures() -> tuple[str, ...]:
        table = published("bounds-ooc", "Out of core")
        lloyd, auto = (table.number(f"{order} | {name}", "seconds") for name in ("lloyd", "auto"))
        share = table.number(f"{order} | auto", "GB / lloyd")
        return f"{lloyd / auto:.1f}", f"{100 * share:.0f} %" if share < 1 else "all"

    return figures


def bounds() -> Iterator[Quote]:
    for words, line in {
        "MNIST, 60,000 x 784, k = 50 | elkan": "MNIST",
        "separated mixture, 500,000 x 16, k = 100 | hamerly": "separated mixture",
        "mixture, 1,000,000 x 16, k = 50 | hamerly": "mixture | 1,000,000, 16, 50",
        "100,000 points of the plane, k = 100 | lloyd": "birch2",
    }.items():
        yield Quote(f"| {words} | {{}} |", against_lloyd(line))
    yield Quote(
        "| noise, 500,000 x 8, k = 50 and 100,000 x 64, k = 100 | lloyd | {} |",
        against_lloyd("uniform noise | 500,000", "uniform noise | 100,000"),
    )
    yield Quote(
        "20,000,000 x 16 on disk, cluster after cluster, k = 50 | hamerly | {}, with {} of the bytes",
        on_disk("cluster after cluster"),
    )
    yield Quote(
        "the same in random order | lloyd | {}, with {} of the bytes", on_disk("random order")
    )


QUOTES = [
    Quote(
        "60,000 x 784, k = 50: `KMeans` converges in {} s. Nested batches are within 1 % of the "
        "best energy after {} s, scikit-learn's mini-batches in {} runs within {} s",
        nested,
    ),
    Quote(
        "400,000 x 784: they are within 2 % of the best after {} s, nested batches after {} s, Lloyd's "
        "algorithm after {} s. But mini-batches end {} % above the best, nested batches {} %. "
        "960,000 x 108: they are within 2 % after {} s, nested batches after {} s, and end {} % above the "
        "best, nested batches {} %",
        minibatch,
    ),
    Quote("{} times as long as reading and decoding the rows twice", coreset_time),
    Quote(
        "{} clusters on {} coreset rows: {} % above k-means++ on all rows, with {} times fewer distances; "
        "{} % above it where a few distant rows dominate the cost",
        coreset_quality,
    ),
    Quote(
        "80,000,000 x 16, 4,000 Gaussians, from Zarr to the label of every row: {} s and {} GiB; labels "
        "take {} s of that. An EM step takes {} times as long as an iteration of Faiss k-means; its time "
        "grows as C (the number of components) to the power of {}",
        mixture,
    ),
    Quote(
        "10,992 rows: {} ms per full-batch iteration, {} ms per truncated step, ARI {} against {}. "
        "70,000 x 784: more than {} s per iteration, {} ms per step, ARI {} against {}. A truncated step "
        "takes {} ms for ten thousand rows and for ten million",
        kernel,
    ),
    Quote(
        "2,000,000 x 32, k = 100,000: all centres found after {} s; two iterations and labels done after "
        "{} s. Inertia / n is {}, against {} for k-means with as many iterations",
        very_many,
    ),
    Quote(
        "MNIST, k = 10, random starts: backward Euler reaches the best minimum from {}, Lloyd's algorithm "
        "from {}; mean objective {} against {}",
        backward_euler,
    ),
    Quote(
        "A stream has {} % of the throughput of reading alone. The cost of the remembered rows is at most "
        "{} % above the best of three full fits of them, for each of {} seeds",
        stream,
    ),
    *bounds(),
]


if __name__ == "__main__":
    PAGE.write_text(rewrite(), encoding="utf-8")
