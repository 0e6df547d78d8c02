"""Hirschberger, Forster and Lücke, arXiv:1810.00803: vc-GMM."""

from __future__ import annotations

from itertools import pairwise

from tests.benchmarks.verdicts.claims import Claim, Finding, listed, share
from tests.published import first_number, published

SETS = {
    "kdd-like (KDD)": 361.0,
    "song-like (SONG)": 513.9,
    "susy-like (SUSY)": 9964.3,
    "cod_rna (RNA)": 329.4,
    "mnist (CIFAR-10)": 207.8,
}
"""How many times fewer distances than k-means++ the paper computes on the set in brackets."""


def _cell(name: str, program: str, column: str) -> str:
    table = published("vc-gmm", "Table 1")
    (line,) = [line for line in table.lines if line[:2] == [name, program]]
    return line[table.header.index(column)]


def _seeds() -> str:
    runs = sorted({_cell(name, "vc-GMM", "runs") for name in SETS})
    return " or ".join(runs)


def _short(name: str) -> str:
    return name.split(" (")[0]


def fewer_distances() -> Finding:
    found = {name: first_number(_cell(name, "vc-GMM", "speed-up, distances")) for name in SETS}
    said = {_short(name): f"{one:,.0f} (paper: {SETS[name]:,})" for name, one in found.items()}
    return Finding(
        f"times fewer: {listed(said)}", tuple(one >= 100 for one in found.values()), _seeds()
    )


def faster() -> Finding:
    found = {name: first_number(_cell(name, "vc-GMM", "speed-up, time")) for name in SETS}
    said = {_short(name): f"{one:.3g}" for name, one in found.items()}
    return Finding(
        f"times as fast: {listed(said)}", tuple(one >= 33 for one in found.values()), _seeds()
    )


def as_good_as_on_a_coreset() -> Finding:
    found = {
        name: [share(_cell(name, one, "relative error")) for one in ("vc-GMM", "LWCS")]
        for name in SETS
    }
    said = {
        _short(name): f"{100 * ours:.2f} % ({100 * plain:.2f} %)"
        for name, (ours, plain) in found.items()
    }
    return Finding(
        f"above k-means++ (k-means on the coreset): {listed(said)}",
        tuple(ours <= plain + 0.005 for ours, plain in found.values()),
        _seeds(),
    )


def grows_slowly() -> Finding:
    table = published("vc-gmm", "Table 2")
    clusters, seconds = (table.numbers(one) for one in ("C", "EM, s"))
    first, last = (f"{seconds[at]:.1f} s for {clusters[at]:,.0f}" for at in (0, -1))
    return Finding(
        f"EM: {first} clusters, {last}",
        (seconds[-1] / seconds[0] < clusters[-1] / clusters[0],),
        "1",
    )


def more_clusters() -> Finding:
    table = published("vc-gmm", "Table 2")
    errors = table.numbers("error per held-out row")
    falls = [b < a for a, b in pairwise(errors)]
    return Finding(", ".join(f"{one:.2f}" for one in errors), tuple(falls), "1")


def near_k_means() -> Finding:
    names = (*SETS, "kdd-unlike (KDD)", "kddcup99_10pct (KDD)")
    found = {name: share(_cell(name, "var-GMM-S", "relative error")) for name in names}
    said = {_short(name): f"{100 * one:.2f} %" for name, one in found.items()}
    return Finding(listed(said), tuple(one <= 0.016 for one in found.values()), _seeds())


CLAIMS = (
    Claim(
        "it computes hundreds to thousands of times fewer distances than k-means++ (Table 1)",
        fewer_distances,
    ),
    Claim(
        "it is 33 to 1,300 times faster (Table 1)",
        faster,
        "our k-means computes its distances in dense tiles, which a truncated search cannot",
    ),
    Claim(
        "it is as good as k-means on the same coreset, or better (Table 1)",
        as_good_as_on_a_coreset,
        "cod_rna needs the search by rows and two searches before the first M-step",
    ),
    Claim(
        "without a coreset, var-GMM-S ends within 1.6 % of k-means++ (Table 1)",
        near_k_means,
        "two thirds of the rows of kddcup99_10pct are copies",
    ),
    Claim("its time grows more slowly than the number of clusters (Table 2)", grows_slowly),
    Claim("the error falls with more clusters on the same coreset (Table 2)", more_clusters),
    Claim(
        "the same on KDD, SONG, SUSY, CIFAR-10 and 80 million tiny images",
        "these sets are not available; sets of their shape stand for them",
    ),
)
