"""Embeddings with planted near-duplicates: anisotropic clusters of power-law sizes, rows of length one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

BLOCK_ROWS = 20_000
RANK, NOISE = 24, 0.2
"""Directions in which a cluster varies most, and the variance of all others together."""
SPREAD = 0.8
"""Variance along these directions, all together; a centre has length one."""


@dataclass(frozen=True)
class Planted:
    """How rows are generated.

    Attributes
    ----------
    n, d : int
    n_clusters : int
        The size of cluster i is in proportion to 1 / (i + 1).
    share : float
        Share of rows that are a near-duplicate of an earlier row of the same block. A third of them lies on
        the other side of the middle between two centres.
    similarity : float
        Least cosine similarity of planted pairs.
    seed : int
    """

    n: int
    d: int
    n_clusters: int = 1000
    share: float = 0.05
    similarity: float = 0.955
    seed: int = 0

    def block(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Return rows `start` to `stop`, float16 (m, d), and the planted pairs among them (p, 2)."""
        shared = np.random.default_rng(self.seed)
        centres = _unit(shared.standard_normal((self.n_clusters, self.d), np.float32))
        axes = shared.standard_normal((256, self.d), np.float32) / np.sqrt(self.d)
        chances = 1.0 / np.arange(1.0, self.n_clusters + 1.0)
        rng = np.random.default_rng([self.seed, start])
        m = stop - start
        labels = rng.choice(self.n_clusters, m, p=chances / chances.sum())
        scales = 0.85 ** np.arange(RANK, dtype=np.float32)
        scales *= np.sqrt(SPREAD / (scales**2).sum())
        rows = centres[labels]
        for t in range(RANK):  # each cluster has axes of its own, from a common set
            factor = scales[t] * rng.standard_normal(m, np.float32)
            rows += factor[:, None] * axes[(labels * 7 + t * 11) % len(axes)]
        rows += rng.standard_normal(rows.shape, np.float32) * np.float32(np.sqrt(NOISE / self.d))
        n_pairs = int(m * self.share)
        chosen = rng.permutation(m)[: 2 * n_pairs].reshape(2, n_pairs)
        firsts, seconds = chosen
        n_border = n_pairs // 3
        border = firsts[:n_border]
        other = rng.choice(self.n_clusters, n_border, p=chances / chances.sum())
        # To the middle between two centres, and a step on either side of it.
        toward = centres[other] - centres[labels[border]]
        rows[border] += 0.5 * toward
        rows = _unit(rows)
        step = np.sqrt(2.0 - 2.0 * self.similarity) * rng.uniform(0.1, 0.95, n_pairs)
        away = _unit(rng.standard_normal((n_pairs, self.d), np.float32))
        away[:n_border] = _unit(toward + 1e-6)
        moved = rows[firsts] + away * step[:, None].astype(np.float32)
        rows[seconds] = _unit(moved)
        pairs = np.sort(np.stack([firsts, seconds], axis=1) + start, axis=1)
        return rows.astype(np.float16), pairs

    def write(self, path: Path) -> np.ndarray:
        """Write all rows to a .npy file; return the planted pairs."""
        out = np.lib.format.open_memmap(path, "w+", np.float16, (self.n, self.d))
        planted = []
        for start in range(0, self.n, BLOCK_ROWS):
            stop = min(self.n, start + BLOCK_ROWS)
            out[start:stop], pairs = self.block(start, stop)
            planted.append(pairs)
        out.flush()
        return np.concatenate(planted)


def _unit(rows: np.ndarray) -> np.ndarray:
    return (rows / np.sqrt(np.square(rows).sum(axis=1, keepdims=True))).astype(np.float32)
