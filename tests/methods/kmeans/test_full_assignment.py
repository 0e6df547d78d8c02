"""Totals that are kept up by the rows that moved have the bits of totals made anew."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

import daskcluster as dc
from daskcluster.data.recipes import for_metric
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.methods.kmeans.assignment import FullAssignment

N, K = 3000, 30


@contextmanager
def placed(
    X: np.ndarray, weights: np.ndarray | None = None, *, metric: str = "euclidean"
) -> Iterator[ScaledPlacement]:
    dataset = for_metric(dc.open_dataset(X, weights=weights), metric)
    with dc.LocalEngine(2).place(dataset) as placement:
        yield ScaledPlacement(placement)


def problem(kind: type = np.float32) -> tuple[np.ndarray, list[np.ndarray]]:
    rng = np.random.default_rng(6)
    X = rng.lognormal(0, 3, (N, 5)).astype(kind)
    return X, [X[at : at + K] for at in (0, 30, 0, 7, 7)]


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize(("weighted", "metric"), [(False, "euclidean"), (True, "cosine")])
def test_totals_by_changes(kind: type, weighted: bool, metric: str) -> None:
    X, starts = problem(kind)
    weights = np.random.default_rng(1).lognormal(0, 3, N) if weighted else None
    kept, expected = np.empty((2, N), np.int32)
    with placed(X, weights, metric=metric) as rows, placed(X, weights, metric=metric) as others:
        assign = FullAssignment(rows, kept, by_changes=True)
        plain = FullAssignment(others, expected)
        for centres in starts:
            centres = centres.astype(rows.dtype)
            found, wanted = assign(centres).statistics, plain(centres).statistics
            assert np.array_equal(kept, expected)
            for mine, true in zip(vars(found).values(), vars(wanted).values(), strict=True):
                assert (mine is None and true is None) or np.array_equal(mine, true)
            found.sums[:] = np.nan  # the caller's to change


def test_labels_of_others_are_noticed_only_when_asked() -> None:
    X, (a, b, *_) = problem()
    kept = np.empty(N, np.int32)
    with placed(X) as rows:
        assign, plain = FullAssignment(rows, kept, by_changes=True), FullAssignment(rows)
        assign(a)
        assign(a)  # the first pass was on guessed grids
        kept[:] = 0
        assert not np.array_equal(assign(b).statistics.counts, plain(b).statistics.counts)
        kept[:] = 0
        assign.close()
        assert np.array_equal(assign(b).statistics.counts, plain(b).statistics.counts)


def test_a_pass_that_failed_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    X, (a, b, *_) = problem()
    kept = np.empty(N, np.int32)
    with placed(X) as rows:
        assign, plain = FullAssignment(rows, kept, by_changes=True), FullAssignment(rows)
        assign(a)
        assign(a)
        with monkeypatch.context() as patch:
            patch.setattr(ScaledPlacement, "reduce", _fail)
            with pytest.raises(KeyboardInterrupt):
                assign(b)
        kept[:] = 0
        assert np.array_equal(assign(b).statistics.sums, plain(b).statistics.sums)


def _fail(*_: object) -> None:
    raise KeyboardInterrupt
