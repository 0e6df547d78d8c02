"""Any number of handwritten digits: each a digit of MNIST, shifted and elastically deformed.

In the manner of infinite MNIST (Loosli, Canu and Bottou, "Training invariant support vector machines
using selective sampling", 2007), which is not shipped: smooth random fields move the pixels (Simard,
Steinkraus and Platt, ICDAR 2003). A digit is a function of the seed and its index alone.
"""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from daskcluster.randomness import Key
from tests.benchmarks.harness.race import say

SIDE = 28
PIXELS = SIDE * SIDE
TRAINING_DIGITS = 60_000
"""Training digits of MNIST: sources of the rows. Validation rows come from the test digits."""

BLOCK = 1024
"""Digits per random stream; fixed, so that digits do not depend on threads or chunks."""
CHUNK_ROWS = 8 * BLOCK
KNOTS = 6
"""Random displacements per side; the field is smooth between them."""
DEFORMATION = 1.2
"""Standard deviation of a knot's displacement, in pixels."""
SHIFT = 1.0
"""Standard deviation of the displacement of the whole digit."""


@dataclass(frozen=True)
class Strokes:
    """Source digits if MNIST is missing: ten curves with random variations."""

    n_digits: int
    seed: int = 0

    def images(self) -> np.ndarray:
        """Return the digits, uint8, shape (n_digits, 784)."""
        generator = Key(self.seed, "strokes").generator()
        corners = generator.uniform(5, SIDE - 6, (10, 5, 2))
        drawn = np.empty((self.n_digits, PIXELS), np.uint8)
        for first in range(0, self.n_digits, BLOCK):
            block = drawn[first : first + BLOCK]
            chosen = corners[generator.integers(0, 10, len(block))]
            block[:] = _drawn(chosen + generator.normal(0, 1.3, chosen.shape))
        return drawn


def _drawn(corners: np.ndarray) -> np.ndarray:
    """Return images of the lines through corners (m, c, 2), drawn with a pen of a pixel or two."""
    share = np.linspace(0, 1, 8, endpoint=False)[:, None]
    points = [
        corners[:, i, None] * (1 - share) + corners[:, i + 1, None] * share
        for i in range(corners.shape[1] - 1)
    ]
    path = np.concatenate(points, axis=1).astype(np.float32)
    grid = np.arange(SIDE, dtype=np.float32)
    near_y = np.exp(-((path[..., 0, None] - grid) ** 2) / 1.6)
    near_x = np.exp(-((path[..., 1, None] - grid) ** 2) / 1.6)
    ink = np.einsum("mpy,mpx->myx", near_y, near_x, optimize=True)
    return np.rint(255 * np.minimum(ink, 1)).astype(np.uint8).reshape(len(corners), PIXELS)


@dataclass(frozen=True)
class DeformedDigits:
    """Rows that are deformations of digits drawn at random from `sources`.

    Parameters
    ----------
    sources : ndarray of shape (m, 784), uint8
    stage : str
        Names the random numbers, so that rows and validation rows have different ones.
    seed : int
    """

    sources: np.ndarray
    stage: str
    seed: int = 0

    def rows(self, start: int, stop: int) -> np.ndarray:
        """Return rows `start` to `stop`, uint8."""
        parts = [
            self._block(block)[max(start - block * BLOCK, 0) : stop - block * BLOCK]
            for block in range(start // BLOCK, -(-stop // BLOCK))
        ]
        return np.concatenate(parts)

    def _block(self, block: int) -> np.ndarray:
        generator = Key(self.seed, self.stage, block).generator()
        chosen = self.sources[generator.integers(0, len(self.sources), BLOCK)]
        knots = generator.standard_normal((2, BLOCK, KNOTS, KNOTS), dtype=np.float32)
        shift = generator.standard_normal((2, BLOCK, 1, 1), dtype=np.float32)
        smooth = _smoothing()
        fields = smooth @ (DEFORMATION * knots) @ smooth.T + SHIFT * shift
        return _warped(chosen, fields[0], fields[1])


def _smoothing() -> np.ndarray:
    """Return weights (28, knots) that spread knots over pixels as Gaussian bumps, of unit variance."""
    knots = np.linspace(0, SIDE - 1, KNOTS)
    width = knots[1] - knots[0]
    bumps = np.exp(-(((np.arange(SIDE)[:, None] - knots) / width) ** 2))
    weights = bumps / np.sqrt((bumps**2).sum(axis=1, keepdims=True))
    return weights.astype(np.float32)


def _warped(images: np.ndarray, down: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return bilinear interpolations at displaced pixels; the background continues beyond the border."""
    framed = np.zeros((len(images), SIDE + 2, SIDE + 2), np.float32)
    framed[:, 1:-1, 1:-1] = images.reshape(-1, SIDE, SIDE)
    grid = np.arange(1, SIDE + 1, dtype=np.float32)
    y = np.clip(grid[:, None] + down, 0, SIDE + 0.999)
    x = np.clip(grid + right, 0, SIDE + 0.999)
    top, left = y.astype(np.int32), x.astype(np.int32)
    y -= top
    x -= left
    width = SIDE + 2
    corner = top * width + left + np.arange(len(images), dtype=np.int32)[:, None, None] * width**2
    flat = framed.ravel()
    upper = flat[corner] * (1 - x) + flat[corner + 1] * x
    lower = flat[corner + width] * (1 - x) + flat[corner + width + 1] * x
    return np.rint(upper * (1 - y) + lower * y).astype(np.uint8).reshape(len(images), PIXELS)


def source_digits(folder: Path | None, n_generated: int = 4096) -> tuple[np.ndarray, str]:
    """Return the digits of MNIST or generated ones, uint8, shape (m, 784), and their source."""
    path = None if folder is None else folder / "mnist.npz"
    if path is None or not path.exists():
        return Strokes(n_generated).images(), "generated"
    with np.load(path) as file:
        digits = np.asarray(file["X"]).reshape(-1, PIXELS)
    if digits.dtype != np.uint8:
        raise ValueError(f"{path} has X of {digits.dtype}; it should be uint8, 0 to 255.")
    return digits, "MNIST"


def split_of(sources: np.ndarray) -> int:
    """Return the number of source digits for rows; the others are for validation rows."""
    return min(TRAINING_DIGITS, len(sources) * 6 // 7)


def prepare(scratch: Path, data: Path | None, n_rows: int, n_validation: int, threads: int) -> Path:
    """Write deformed digits unless they exist; return the Zarr group (``rows``, ``validation``, uint8).

    Raises
    ------
    OSError
        The disk is too small.
    """
    sources, name = source_digits(data)
    path = scratch / f"digits-{name.lower()}-{n_rows}-{n_validation}.zarr"
    if path.exists():
        return path
    scratch.mkdir(parents=True, exist_ok=True)
    needed, free = (n_rows + n_validation) * PIXELS, shutil.disk_usage(scratch).free
    if needed > free:
        raise OSError(
            f"{scratch} has {free / 1e9:.1f} GB free, and the digits take {needed / 1e9:.1f} GB; "
            "give another folder with --scratch."
        )
    say(f"  {path.name} is being written")
    split = split_of(sources)
    unfinished = path.with_suffix(".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    _write(unfinished, "rows", DeformedDigits(sources[:split], "digits"), n_rows, threads)
    held_out = DeformedDigits(sources[split:], "validation-digits")
    _write(unfinished, "validation", held_out, n_validation, threads)
    os.replace(unfinished, path)  # a folder of the right name is whole
    return path


def _write(folder: Path, name: str, digits: DeformedDigits, n_rows: int, threads: int) -> None:
    import zarr

    group = zarr.open_group(str(folder), mode="a")
    array = group.create_array(
        name, shape=(n_rows, PIXELS), chunks=(min(CHUNK_ROWS, n_rows), PIXELS), dtype="uint8"
    )

    def fill(start: int) -> None:
        stop = min(start + array.chunks[0], n_rows)
        array[start:stop] = digits.rows(start, stop)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(fill, range(0, n_rows, array.chunks[0])))
