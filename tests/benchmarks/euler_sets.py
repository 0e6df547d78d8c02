"""The data sets of the paper on stochastic backward Euler, or stand-ins for them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.benchmarks.harness.rows import mixture
from tests.benchmarks.harness.settings import Settings

PER_DIGIT, NOISE = 7_500, 0.2
FEATURES = 64
QUICK = 25
"""`--quick` divides the numbers of rows by this."""
EPOCHS = 12


@dataclass(frozen=True)
class EulerSet:
    """Rows and their source."""

    name: str
    source: str
    rows: np.ndarray

    @property
    def n(self) -> int:
        return len(self.rows)


def load(name: str, settings: Settings) -> EulerSet:
    """Return a data set by name."""
    makers = {"mnist": raw, "digits": noisy_digits, "features": features, "iris": iris}
    return makers[name](settings)


def raw(settings: Settings) -> EulerSet:
    """Return the training digits of MNIST, with values in [0, 1]."""
    rows, _, source = _pictures(settings)
    return EulerSet("mnist", source, rows)


def noisy_digits(settings: Settings) -> EulerSet:
    """Return eight digits, each repeated many times with Gaussian noise."""
    rows, labels, source = _pictures(settings)
    kinds = np.unique(labels)[:8]
    chosen = rows[[int(np.flatnonzero(labels == kind)[0]) for kind in kinds]]
    repeated = np.repeat(chosen, PER_DIGIT // (QUICK if settings.quick else 1), axis=0)
    random = np.random.default_rng(0)
    noise = random.standard_normal(repeated.shape, dtype=np.float32)
    return EulerSet("digits", f"8 of {source}, noise {NOISE}", repeated + np.float32(NOISE) * noise)


def features(settings: Settings) -> EulerSet:
    """Return the activations of 64 hidden units of a network that classifies the digits."""
    from sklearn.neural_network import MLPClassifier

    path = folder_of(settings) / "features.npy"
    rows, labels, source = _pictures(settings)
    if not path.exists():
        network = MLPClassifier(
            (128, FEATURES), max_iter=EPOCHS, random_state=0, n_iter_no_change=EPOCHS
        )
        network.fit(rows, labels)
        values = rows
        for weights, bias in zip(network.coefs_[:-1], network.intercepts_[:-1], strict=True):
            values = np.maximum(values @ weights + bias, 0.0)
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, np.ascontiguousarray(values, np.float32))
    return EulerSet("features", f"{FEATURES} hidden units of an MLP on {source}", np.load(path))


def iris(settings: Settings) -> EulerSet:
    """Return the Iris data set."""
    from sklearn.datasets import load_iris

    return EulerSet("iris", "Iris", np.ascontiguousarray(load_iris().data))


def folder_of(settings: Settings) -> Path:
    """Return the folder of saved starts."""
    return settings.folder(f"daskcluster-euler{'-quick' if settings.quick else ''}")


def _pictures(settings: Settings) -> tuple[np.ndarray, np.ndarray, str]:
    """Return 60,000 pictures in random order, their digits, and their source."""
    n = 60_000 // (QUICK if settings.quick else 1)
    path = None if settings.data is None else settings.data / "mnist.npz"
    if path is None or not path.exists():
        return _generated(n)
    with np.load(path) as file:
        rows, labels = np.asarray(file["X"])[:60_000], np.asarray(file["y"])[:60_000]
    order = np.random.default_rng(0).permutation(len(rows))[:n]
    rows = rows.reshape(len(rows), -1)[order].astype(np.float32)
    return (rows / 255 if rows.max() > 1 else rows), labels[order], "MNIST"


def _generated(n: int) -> tuple[np.ndarray, np.ndarray, str]:
    rows = np.clip(0.3 + 0.2 * mixture(n, 784, 5), 0.0, 1.0)
    labels = ((rows - rows[:10, None]) ** 2).sum(axis=2).argmin(axis=0)
    return rows, labels, "generated rows (no mnist.npz: give --data)"
