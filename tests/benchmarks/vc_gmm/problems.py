"""The data sets of the paper, or stand-ins for them, with their settings.

C, N' and m are not in the text of the paper; they follow from its speed-ups.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.benchmarks.harness.rows import mixture
from tests.benchmarks.harness.settings import Settings

QUICK_ROWS, QUICK_CLUSTERS, QUICK_CORESET = 25, 20, 16
"""`--quick` divides the sizes by these."""


@dataclass(frozen=True)
class Problem:
    """One set and the paper's settings for it.

    Attributes
    ----------
    name, stands_for : str
        Its name here, and the set of the paper with which it is compared.
    rows : int
    d, k : int
    coreset : int
        N' of the paper.
    chain : int
        m, the length of AFK-MC2's chains.
    truncation, n_random : int
        C' = G, and the "+1".
    make : callable
        Takes the data folder; returns training rows and evaluation rows.
    file : str or None
        Data file; `make` generates rows if it is missing.
    kind : str
        Kind of generated rows.
    sweeps : tuple of str
        In addition to Table 1: "chain", "coreset", "truncation", "tolerance", "warm-up", "greedy", "rows",
        "clusters".
    """

    name: str
    stands_for: str
    rows: int
    d: int
    k: int
    coreset: int
    chain: int
    truncation: int
    make: Callable[[Path | None, Problem], tuple[np.ndarray, np.ndarray]]
    n_random: int = 0
    file: str | None = None
    kind: str = "generated"
    sweeps: tuple[str, ...] = ()

    def scaled(self, options: Settings) -> Problem:
        """Return the problem, smaller with `--quick`."""
        if not options.quick:
            return self
        shrunk = {
            "rows": self.rows // QUICK_ROWS,
            "k": max(20, self.k // QUICK_CLUSTERS),
            "coreset": max(512, self.coreset // QUICK_CORESET),
        }
        return Problem(**{**vars(self), **shrunk})

    def source(self, data: Path | None) -> str:
        if self.file is None:
            return self.kind
        return self.file if _path(data, self.file) is not None else f"generated, no {self.file}"

    def load(self, data: Path | None) -> tuple[np.ndarray, np.ndarray]:
        """Return float32 training rows and evaluation rows (often the same array)."""
        return self.make(data, self)

    @property
    def shape(self) -> str:
        return f"{self.rows:,} x {self.d}"


def _path(data: Path | None, file: str) -> Path | None:
    path = None if data is None else data / file
    return path if path is not None and path.exists() else None


def _read(data: Path | None, problem: Problem) -> np.ndarray | None:
    path = _path(data, problem.file or "")
    if path is None or problem.file is None:
        return None
    with np.load(path) as file:
        return np.asarray(file["X"])


def _file_rows(data: Path | None, problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    raw = _read(data, problem)
    if raw is None:
        return _mixture(data, problem)
    rows = np.ascontiguousarray(_some(raw, problem.rows), dtype=np.float32)
    return rows, rows


def _connections(data: Path | None, problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Return log(1 + x) of the columns; otherwise the numbers of bytes sent would dominate."""
    raw = _read(data, problem)
    if raw is None:
        return _mixture(data, problem)
    rows = np.log1p(_some(raw, problem.rows).astype(np.float64)).astype(np.float32)
    return rows, rows


def _noisy_digits(data: Path | None, problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Return MNIST with uniform noise from [0, 1] added to its 256 levels; test digits for evaluation."""
    raw, generator = _read(data, problem), np.random.default_rng(0)
    n_evaluated = problem.rows // 6
    if raw is None:
        rows = mixture(problem.rows + n_evaluated, problem.d, problem.k)
    else:
        levels = np.concatenate([raw[:60_000][: problem.rows], raw[60_000:][:n_evaluated]])
        rows = levels.reshape(len(levels), -1).astype(np.float32)
        rows += generator.random(rows.shape, dtype=np.float32)
    return rows[: problem.rows], rows[problem.rows :]


def _mixture(data: Path | None, problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of 2 C unit Gaussians about standard normal centres."""
    rows = mixture(problem.rows, problem.d, problem.k)
    return rows, rows


def _falling_mixture(data: Path | None, problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of 2 C Gaussians with feature j divided by j, like the spectra of real data.

    Without that, centres in many dimensions are all as far from each other, and there is no
    neighbourhood that a search could follow.
    """
    rows = mixture(problem.rows, problem.d, problem.k)
    rows /= np.arange(1, problem.d + 1, dtype=np.float32)
    return rows, rows


def _many_more(data: Path | None, problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of 2 C unit Gaussians, and a fifth as many for evaluation."""
    rows = mixture(problem.rows + problem.rows // 5, problem.d, problem.k)
    return rows[: problem.rows], rows[problem.rows :]


def _some(rows: np.ndarray, n_rows: int) -> np.ndarray:
    """Return `n_rows` of the rows, drawn at random if there are more."""
    if len(rows) <= n_rows:
        return rows
    return rows[np.sort(np.random.default_rng(0).permutation(len(rows))[:n_rows])]


FALLING = "generated, feature j divided by j"
_SMALL = ("chain", "coreset", "truncation", "tolerance", "greedy", "rows")
_LARGE = ("chain", "coreset")

PROBLEMS = {
    problem.name: problem
    for problem in (
        Problem("cod_rna", "RNA", 331_152, 8, 500, 2**15, 20, 3, _file_rows, 1, "cod_rna.npz",
                sweeps=(*_SMALL, "warm-up")),
        Problem("kddcup99_10pct", "KDD", 494_021, 38, 500, 2**13, 2, 5, _connections, 0,
                "kddcup99_10pct.npz", sweeps=_SMALL),
        Problem("kdd-like", "KDD", 145_751, 74, 500, 2**13, 2, 5, _falling_mixture, kind=FALLING,
                sweeps=_SMALL),
        Problem("kdd-unlike", "KDD", 145_751, 74, 500, 2**13, 2, 5, _mixture),
        Problem("mnist", "CIFAR-10", 60_000, 784, 500, 2**12, 2, 5, _noisy_digits, 0, "mnist.npz",
                sweeps=_SMALL),
        Problem("song-like", "SONG", 515_345, 90, 4000, 2**16, 2, 5, _falling_mixture, kind=FALLING,
                sweeps=_LARGE),
        Problem("song-like-2000", "", 515_345, 90, 2000, 2**16, 2, 5, _falling_mixture, kind=FALLING,
                sweeps=_LARGE),
        Problem("susy-like", "SUSY", 5_000_000, 18, 2000, 2**15, 2, 5, _mixture, sweeps=_LARGE),
        Problem("tiny-like", "80 Mio. Tiny Images", 5_000_000, 18, 8000, 2**20, 2, 5, _many_more,
                sweeps=("clusters",)),
    )
}  # fmt: skip
