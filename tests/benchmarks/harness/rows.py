"""Data for comparisons: generated mixtures, and MNIST if its file exists."""

from __future__ import annotations

from pathlib import Path

import numpy as np

MNIST = "MNIST"


def mixture(n: int, d: int, k: int, seed: int = 0, *, spread: float = 1.0) -> np.ndarray:
    """Return rows of a mixture of 2 k unit Gaussians, float32, shape (n, d).

    `spread` is the standard deviation of their centres.

    Examples
    --------
    >>> mixture(100, 3, 2).shape
    (100, 3)
    """
    rng = np.random.default_rng(seed)
    centres = np.float32(spread) * rng.standard_normal((2 * k, d), dtype=np.float32)
    rows = rng.standard_normal((n, d), dtype=np.float32)
    step = max(1, (1 << 22) // d)
    for first in range(0, n, step):
        block = rows[first : first + step]
        block += centres[rng.integers(0, 2 * k, len(block))]
    return rows


def mnist(folder: Path | None, n_rows: int = 60_000) -> tuple[np.ndarray, str]:
    """Return the first `n_rows` x 784 rows of MNIST in random order, and their source; see `pixels`."""
    rows, source = pixels(folder)
    rows = rows[:n_rows]
    return np.ascontiguousarray(rows[np.random.default_rng(0).permutation(len(rows))]), source


def pixels(
    folder: Path | None, file: str = "mnist.npz", shape: tuple[int, int] = (70_000, 784)
) -> tuple[np.ndarray, str]:
    """Return float32 rows in [0, 1], of MNIST with the 10,000 test digits at the end, and their source.

    A `file` in `folder` has them as X. Without it rows of that `shape` are generated.
    """
    path = None if folder is None else folder / file
    if path is None or not path.exists():
        return mixture(*shape, 50), f"generated (no {file}: give --data)"
    with np.load(path) as file:
        name = "X" if "X" in file.files else max(file.files, key=lambda key: file[key].size)
        rows = np.asarray(file[name])
    rows = rows.reshape(len(rows), -1).astype(np.float32)
    return (rows / np.float32(255) if rows.max() > 1 else rows), MNIST
