"""Rows with near-duplicates, and all pairs of them by brute force."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from daskcluster.engine.local import LocalEngine
from daskcluster.estimators.opening import open_dataset
from daskcluster.estimators.work import Work
from daskcluster.methods.duplicates.chunkwise import Rule
from daskcluster.methods.duplicates.search import DuplicateSearch, DuplicatesPlan


def planted(n: int, d: int, seed: int, *, dtype: str = "f4", copies: int = 0) -> np.ndarray:
    """Return rows in a few clusters, a fifth of them near another row, and some equal to one."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(4, d))
    X = centres[rng.integers(0, 4, n)] + 0.5 * rng.normal(size=(n, d))
    near = rng.permutation(n)[: n // 5]
    others = rng.integers(0, n, len(near))
    X[near] = X[others] + rng.uniform(0.0, 0.4, (len(near), 1)) * rng.normal(size=(len(near), d))
    X = X.astype(dtype)
    X[rng.permutation(n)[:copies]] = X[0]
    return X


def measures(X: np.ndarray, metric: str) -> np.ndarray:
    """Return the similarity or distance of all pairs of rows, float64 (n, n)."""
    wide = X.astype(np.float64)
    if metric == "euclidean":
        return np.stack([np.sqrt(((wide - row) ** 2).sum(axis=1)) for row in wide])
    lengths = np.sqrt((wide * wide).sum(axis=1))
    found = wide @ wide.T / np.maximum(np.outer(lengths, lengths), 1e-300)
    found[(wide[:, None] == wide).all(axis=2)] = 1.0
    return found


def pairs_of(values: np.ndarray, metric: str, threshold: float) -> set[tuple[int, int]]:
    """Return all pairs of rows beyond the threshold, the larger number first."""
    close = values >= threshold if metric == "cosine" else values <= threshold
    return set(zip(*(each.tolist() for each in np.nonzero(np.tril(close, -1))), strict=True))


def found_pairs(
    X: Any, metric: str, threshold: float, tmp: Any, **plan: Any
) -> set[tuple[int, int]]:
    """Return all pairs that the search finds, those of equal rows included."""
    dataset = open_dataset(X)
    rule = Rule(metric == "cosine", threshold)
    rows = dataset.normalized() if rule.cosine else dataset
    settings = replace(DuplicatesPlan.of(dataset), **plan)
    search = DuplicateSearch(Work(dataset, rows, settings, LocalEngine(2), (), 0), rule, False)
    with search.on_scratch(str(tmp)):
        pairs = search.pairs()
    leaders = search.sorted.leaders
    followers: dict[int, list[int]] = {}
    for row, leader in enumerate(leaders.tolist()):
        followers.setdefault(leader, []).append(row)
    listed = [(one, other) for one, other in pairs.tolist()]
    assert len(set(listed)) == len(listed), "a pair is listed once"
    found = {(a, b) for one, other in listed for a in followers[one] for b in followers[other]}
    found |= {(a, b) for same in followers.values() for a in same for b in same if a != b}
    return {(max(pair), min(pair)) for pair in found}
