"""The data sets for mini-batches: training rows and validation rows.

Stand-ins for the four of the paper on nested mini-batches (Newling and Fleuret, NIPS 2016), which are not
shipped, each of its shape or near: deformed digits (INFMNIST), patches of photographs (STL10P), network
connections (KDDC98), bags of words (RCV1).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks import digits
from tests.benchmarks.comparisons.nested import BATCH, CLUSTERS, QUICK, QUICK_CLUSTERS, mnist_rows
from tests.benchmarks.harness.energy import Rows
from tests.benchmarks.harness.settings import Settings

PATCH = 6
PATCHES_OF_A_PICTURE = 100
COLUMNS, TOPICS, WORDS = 47_000, 100, 76
"""Constants of the synthetic bags of words."""


def folder_of(settings: Settings) -> Path:
    """Return the folder of data sets and saved runs."""
    return settings.folder(f"daskcluster-minibatch{'-quick' if settings.quick else ''}")


def finished(settings: Settings) -> None:
    """Remove data sets and runs, unless ``--keep``."""
    if not settings.keep:
        shutil.rmtree(folder_of(settings), ignore_errors=True)


def chosen(names: Sequence[str], settings: Settings) -> Iterator[Rows]:
    """Yield the data sets of a benchmark, or those of ``--sets``, with one in memory at a time.

    Raises
    ------
    ValueError
        A name is not one of `names`.
    """
    for name in settings.sets:
        if name not in names:
            raise ValueError(f"--sets {name} should be some of {','.join(names)}.")
    for name in settings.sets or names:
        yield SETS[name](settings)


def deformed_digits(settings: Settings) -> Rows:
    """Return 400,000 + 40,000 deformed digits; the first run writes them to disk."""
    import zarr

    shrink = QUICK if settings.quick else 1
    path = digits.prepare(
        folder_of(settings), settings.data, 400_000 // shrink, 40_000 // shrink, settings.threads
    )
    group = zarr.open_group(str(path), mode="r")
    source = f"{'MNIST' if 'digits-mnist' in path.name else 'generated'}, deformed"
    rows, held_out = (_grey(np.asarray(group[name])) for name in ("rows", "validation"))
    return _rows("digits", source, rows, held_out, settings)


def patches(settings: Settings) -> Rows:
    """Return 6 x 6 x 3 patches, 100 per picture; validation patches come from other pictures."""
    path = _file(settings, "cifar10_test10k")
    shrink = QUICK if settings.quick else 1
    if path is None:
        source, pictures = "generated", _pictures(10_000 // shrink)
    else:
        source = "CIFAR-10, test pictures"
        with np.load(path) as file:
            pictures = np.asarray(file["X"])[::shrink].reshape(-1, 32, 32, 3)
    split = len(pictures) * 24 // 25
    rows, held_out = (
        _grey(_patches(part, np.random.default_rng(i)))
        for i, part in enumerate((pictures[:split], pictures[split:]))
    )
    return _rows("patches", source, rows, held_out, settings)


def connections(settings: Settings) -> Rows:
    """Return 75,000 + 20,000 network connections, features of mean 0 and variance 1."""
    path = _file(settings, "kddcup99_10pct")
    n, n_validation = (75_000, 20_000) if not settings.quick else (75_000 // QUICK, 20_000 // QUICK)
    generator = np.random.default_rng(0)
    if path is None:
        source, raw = "generated", _heavy_tailed(generator, n + n_validation)
    else:
        source = "KDD Cup 1999"
        with np.load(path) as file:
            raw = file["X"][generator.permutation(len(file["X"]))[: n + n_validation]]
    rows = raw.astype(np.float64)
    mean, deviation = rows[:n].mean(axis=0), rows[:n].std(axis=0)
    rows = ((rows - mean) / np.where(deviation > 0, deviation, 1))[:, deviation > 0]
    rows = rows.astype(np.float32)
    return _rows("connections", source, rows[:n].copy(), rows[n:].copy(), settings)


def words(settings: Settings) -> Rows:
    """Return 780,000 + 23,000 sparse rows of about 76 values in 47,000 columns, of length one."""
    from scipy.sparse import csr_array

    shrink = QUICK if settings.quick else 1
    n, n_validation, n_columns = 780_000 // shrink, 23_000 // shrink, COLUMNS // shrink
    shape, generator = (n + n_validation, WORDS), np.random.default_rng(0)
    # The r-th most frequent column is drawn in proportion to 1 / r; half the words are those of a topic.
    rank = (n_columns ** generator.random(shape, np.float32)).astype(np.int32)
    topic = generator.integers(0, n_columns, TOPICS, np.int32)[
        generator.integers(0, TOPICS, len(rank))
    ]
    columns = (rank + (generator.random(shape, np.float32) < 0.5) * topic[:, None]) % n_columns
    values = generator.lognormal(sigma=0.5, size=shape).astype(np.float32)
    starts = np.arange(0, rank.size + 1, WORDS, dtype=np.int32)
    rows = csr_array((values.ravel(), columns.ravel(), starts), shape=(len(rank), n_columns))
    rows.sum_duplicates()
    lengths = np.sqrt(rows.multiply(rows).sum(axis=1))
    rows.data /= np.repeat(lengths, np.diff(rows.indptr)).astype(np.float32)
    return _rows("words", "generated", rows[:n], rows[n:], settings)


def newspaper(settings: Settings) -> Rows:
    """Return articles of the Los Angeles Times as tf-idf rows of length one; a small set."""
    from scipy.sparse import csr_array, load_npz

    path = _file(settings, "text_la1")
    if path is None:
        generator = np.random.default_rng(0)
        counts = csr_array(generator.poisson(0.03, (3204, 2000)).astype(np.float32))
    else:
        counts = csr_array(load_npz(path))
    order = np.random.default_rng(0).permutation(counts.shape[0])
    split = counts.shape[0] * 5 // 6
    rows = _tf_idf(counts, counts[order[:split]])
    source = "LA Times" if path is not None else "generated"
    held_out = rows[order[split:]]
    # A batch that is as small next to the rows as on the other sets.
    return Rows("newspaper", source, rows[order[:split]], held_out, 300, _clusters(settings))


SETS: dict[str, Callable[[Settings], Rows]] = {
    "mnist": mnist_rows,
    "digits": deformed_digits,
    "patches": patches,
    "connections": connections,
    "words": words,
    "newspaper": newspaper,
}
DENSE, SPARSE = ("digits", "patches", "connections"), ("words", "newspaper")


def _rows(name: str, source: str, rows: Any, validation: Any, settings: Settings) -> Rows:
    batch = BATCH // QUICK if settings.quick else BATCH
    return Rows(name, source, rows, validation, batch, _clusters(settings))


def _clusters(settings: Settings) -> int:
    return QUICK_CLUSTERS if settings.quick else CLUSTERS


def _file(settings: Settings, name: str) -> Path | None:
    path = None if settings.data is None else settings.data / f"{name}.npz"
    return path if path is not None and path.exists() else None


def _grey(levels: np.ndarray) -> np.ndarray:
    """Return levels from 0 to 255 as float32 from 0 to 1."""
    found = levels.astype(np.float32, order="C")
    found /= 255
    return found


def _patches(pictures: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Return patches cut at random places, in random order, uint8, shape (100 m, 108)."""
    side = pictures.shape[1] - PATCH + 1
    windows = np.lib.stride_tricks.sliding_window_view(pictures, (PATCH, PATCH), axis=(1, 2))
    windows = np.moveaxis(windows, 3, 5)  # the colours last, as in the pictures
    count = (len(pictures), PATCHES_OF_A_PICTURE)
    picture = np.repeat(np.arange(len(pictures)), PATCHES_OF_A_PICTURE)
    top, left = generator.integers(0, side, (2, *count))
    order = generator.permutation(picture.size)
    cut = windows[picture[order], top.ravel()[order], left.ravel()[order]]
    return cut.reshape(len(cut), -1)


def _pictures(n_pictures: int) -> np.ndarray:
    """Return smooth colour pictures in place of photographs, uint8, shape (m, 32, 32, 3)."""
    generator = np.random.default_rng(0)
    waves = np.cumsum(generator.normal(0, 12, (2, n_pictures, 32, 1, 3)), axis=2)
    pictures = 128 + waves[0] + waves[1].transpose(0, 2, 1, 3)
    return np.clip(pictures, 0, 255).astype(np.uint8)


def _heavy_tailed(generator: np.random.Generator, n_rows: int) -> np.ndarray:
    """Return rows of 30 sources whose features differ in scale by orders of magnitude."""
    levels = generator.lognormal(0, 2, (30, 38))
    return levels[generator.integers(0, 30, n_rows)] * generator.lognormal(0, 0.3, (n_rows, 38))


def _tf_idf(counts: Any, known: Any) -> Any:
    """Return rows of length one: 1 + log(count), times 1 + log((1 + m) / (1 + m rows with the word))."""
    m, n_columns = known.shape
    frequency = np.bincount(known.indices, minlength=n_columns)
    weights = 1 + np.log((1 + m) / (1 + frequency))
    values = (1 + np.log(counts.data)) * weights[counts.indices]
    row = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
    length = np.sqrt(np.bincount(row, values**2, minlength=counts.shape[0]))
    rows = counts.copy()
    rows.data = (values / length[row]).astype(np.float32)
    return rows
