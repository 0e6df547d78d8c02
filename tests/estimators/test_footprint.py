"""What is projected before a fit covers the rows that its seeding holds."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from daskcluster.data.open import open_dataset
from daskcluster.engine.local import LocalEngine
from daskcluster.engine.memory import Footprint, project
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.estimators.footprint import fit_footprint, seeding_bytes
from daskcluster.seeding import afkmc2, kmeans_parallel
from daskcluster.sparse_rows import join_rows

K, M = 30, 10


def rows(kind):
    X = np.random.default_rng(0).normal(size=(5000, 12)).astype(np.float32)
    return sparse.csr_array(np.where(np.abs(X) > 1, X, 0)) if kind == "sparse" else X


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("method", ["k-means||", "afk-mc2"])
def test_drawn_rows_are_counted(method, kind, monkeypatch):
    dataset, held = open_dataset(rows(kind)), []
    module = kmeans_parallel if method == "k-means||" else afkmc2

    def watched(parts):
        joined = join_rows(parts)
        held.append(joined.nbytes)
        return joined

    monkeypatch.setattr(module, "join_rows", watched)
    with LocalEngine(2).place(dataset) as placement:
        placed = ScaledPlacement(placement)
        if method == "k-means||":
            module.kmeans_parallel(placed, K, 0, reduce_candidates=lambda c, w, k: c[:k])
        else:
            module.afk_mc2(placed, K, 0, chain_length=M)
    projected = seeding_bytes(dataset, K, method, M)
    assert max(held) <= projected <= 8 * max(held)
    assert fit_footprint(dataset, K, method, M).process_bytes == projected


def test_other_methods_hold_no_rows():
    dataset = open_dataset(rows("dense"))
    assert [seeding_bytes(dataset, K, m) for m in ("k-means++", "random", "sample")] == [0, 0, 0]
    assert seeding_bytes(dataset, 10**6, "afk-mc2") == seeding_bytes(dataset, 10**7, "afk-mc2")


def test_every_process_holds_them():
    dataset, needed = open_dataset(rows("dense")), Footprint(100, 0, 1000)
    plans = [
        project(dataset, needed, limit=10**12, n_threads=4, n_processes=n).working for n in (1, 3)
    ]
    assert plans == [1400, 3400]
