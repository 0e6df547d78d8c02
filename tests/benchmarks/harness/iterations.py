"""Time of a Lloyd iteration over a store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from tests.benchmarks.harness.peers import fit_ours
from tests.benchmarks.harness.race import race

ITERATIONS = 10


def fit_store(url: str, centres: np.ndarray, iterations: int, engine: Any) -> Any:
    """Fit plain Lloyd on a store, which is opened again for each fit."""
    from daskcluster import open_dataset

    return fit_ours(open_dataset(url), centres, iterations, engine)


def per_iteration(
    url: str,
    centres: np.ndarray,
    engines: Mapping[str, Any],
    repeats: int,
    iterations: int = ITERATIONS,
) -> dict[str, float]:
    """Return the seconds per iteration for each engine, from a long fit minus a short one.

    The difference excludes the work done once per fit: opening, validation, reading into memory.
    """
    short, long = 2, 2 + iterations
    programs: dict[str, Callable[[], Any]] = {}
    for name, engine in engines.items():
        programs[f"{name} short"] = partial(fit_store, url, centres, short, engine)
        programs[f"{name} long"] = partial(fit_store, url, centres, long, engine)
    found = race(programs, repeats)
    return {
        name: (found[f"{name} long"].median - found[f"{name} short"].median) / iterations
        for name in engines
    }
