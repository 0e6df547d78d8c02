"""The data sets for variance reduced k-means, and the agreement of clusters with classes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tests.benchmarks.harness.rows import mixture
from tests.benchmarks.harness.settings import Settings

QUICK_ROWS, QUICK_CLUSTERS = 2000, 20
DESCRIPTORS, WORDS = 128, 3000
"""Features of a synthetic descriptor, and number of prototypes; descriptors are noisy copies of them."""
_BLOCK = 1 << 16
LARGE = 1_000_000
"""Sets with so many rows take seconds for a pass, so less is measured, and programs have less time."""
SAMPLED = 10
"""On large sets, the loss on the way is that of every tenth row, in proportion."""


@dataclass(frozen=True)
class Problem:
    """One set.

    Attributes
    ----------
    name, source : str
    rows : ndarray of shape (n, d), float32
    classes : ndarray of shape (n,), or None
    k, most_iterations, most_seeds : int
        Clusters; iterations of batch k-means, and seeds, at most.
    """

    name: str
    source: str
    rows: np.ndarray
    classes: np.ndarray | None
    k: int
    most_iterations: int = 300
    most_seeds: int = 10

    @property
    def shape(self) -> str:
        n, d = self.rows.shape
        return f"{n:,} x {d:,}, {self.k}"

    @property
    def is_large(self) -> bool:
        return len(self.rows) >= LARGE

    @property
    def budget(self) -> float:
        """Time limit of other programs than batch k-means, relative to its time."""
        return 1.0 if self.is_large else 1.5

    @property
    def validation(self) -> np.ndarray:
        """Rows on which programs that do not pass over all rows measure their loss on the way."""
        return self.rows[::SAMPLED].copy() if self.is_large else self.rows

    def first_centres(self, seed: int) -> np.ndarray:
        """Return k rows drawn at random, the same for all programs."""
        chosen = np.random.default_rng(seed).choice(len(self.rows), self.k, replace=False)
        return np.ascontiguousarray(self.rows[chosen])


def problems(settings: Settings) -> Iterator[Problem]:
    """Yield the chosen sets, with one in memory at a time.

    Raises
    ------
    ValueError
        A name is not one of ours.
    """
    for name in settings.sets:
        if name not in SETS:
            raise ValueError(f"--sets {name} should be some of {','.join(SETS)}.")
    for name in settings.sets or SETS:
        yield SETS[name](settings)


def mnist(settings: Settings) -> Problem:
    """Return the 70,000 digits, pixels from 0 to 1."""
    return _pictures("mnist", settings, n=70_000, d=784)


def cifar10(settings: Settings) -> Problem:
    """Return the 10,000 test pictures of CIFAR-10, pixels from 0 to 1; the paper has CIFAR-100."""
    return _pictures("cifar10_test10k", settings, n=10_000, d=3072)


def mnist_pairs(settings: Settings) -> Problem:
    """Return 35,000 pairs of digits side by side, of 100 classes; each digit is in one pair."""
    return _pictures("mnist_pairs", settings, n=35_000, d=1568, file="mnist", paired=True)


def _pictures(
    name: str, settings: Settings, *, n: int, d: int, file: str | None = None, paired: bool = False
) -> Problem:
    n = min(n, QUICK_ROWS) if settings.quick else n
    k = QUICK_CLUSTERS if settings.quick else 100
    path = None if settings.data is None else settings.data / f"{file or name}.npz"
    if path is None or not path.exists():
        rows = mixture(n, d, k)
        return Problem(name, "generated (not in --data)", rows, None, k)
    with np.load(path) as kept:
        pictures, classes = np.asarray(kept["X"]), np.asarray(kept["y"])
    if paired:
        pictures, classes = pairs(pictures, classes)
    rows = np.ascontiguousarray(pictures[:n].reshape(n, -1), np.float32) / np.float32(255)
    return Problem(name, "real", rows, classes[:n], k)


def pairs(pictures: np.ndarray, digits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return pictures in random pairs, always the same ones, and their classes: 10 * first + second."""
    order = np.random.default_rng(0).permutation(len(pictures))[: len(pictures) // 2 * 2]
    return pictures[order].reshape(len(order) // 2, -1), digits[order].reshape(-1, 2) @ [10, 1]


def sift_like(settings: Settings) -> Problem:
    """Return integers from 0 to 255 like SIFT descriptors: sparse, skewed, of length 512."""
    n, k = (10 * QUICK_ROWS, QUICK_CLUSTERS) if settings.quick else (2_000_000, 1000)
    rng = np.random.default_rng(0)
    words = rng.gamma(0.6, size=(WORDS, DESCRIPTORS)).astype(np.float32)
    rows = np.empty((n, DESCRIPTORS), np.float32)
    for first in range(0, n, _BLOCK):
        block = rows[first : first + _BLOCK]
        block[:] = words[rng.integers(0, WORDS, len(block))]
        block += rng.gamma(0.5, 0.6, size=block.shape).astype(np.float32)
        block *= 512 / np.linalg.norm(block, axis=1, keepdims=True)
        np.minimum(np.rint(block), 255, out=block)
    return Problem("sift_like", "generated", rows, None, k, most_iterations=100, most_seeds=3)


SETS = {
    "mnist": mnist,
    "mnist_pairs": mnist_pairs,
    "cifar10_test10k": cifar10,
    "sift_like": sift_like,
}


def agreement(classes: np.ndarray, labels: np.ndarray) -> tuple[float, float, float]:
    """Return accuracy under the best matching of clusters to classes, NMI, and purity.

    Examples
    --------
    >>> import numpy as np
    >>> accuracy, information, purity = agreement(np.array([0, 0, 1, 1]), np.array([5, 5, 5, 3]))
    >>> accuracy, purity
    (0.75, 0.75)
    """
    from scipy.optimize import linear_sum_assignment
    from sklearn.metrics import normalized_mutual_info_score
    from sklearn.metrics.cluster import contingency_matrix

    table = contingency_matrix(classes, labels)
    matched = table[linear_sum_assignment(-table)].sum()
    information = normalized_mutual_info_score(classes, labels)
    return (
        float(matched / len(labels)),
        float(information),
        float(table.max(axis=0).sum() / len(labels)),
    )
