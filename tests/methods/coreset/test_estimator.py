"""LightweightCoreset and its functions: results, files, faults."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import zarr
from scipy import sparse
from sklearn.exceptions import NotFittedError

import daskcluster as dc
from tests.laws.data import lognormal

X = lognormal(1200, 3)


def test_saved_and_opened(tmp_path):
    url = str(tmp_path / "coreset")
    weights = np.random.default_rng(0).lognormal(size=1200)
    estimator = dc.LightweightCoreset(150, random_state=5).fit(X, sample_weight=weights)
    estimator.save(url)
    opened = dc.open_dataset(url)
    assert np.array_equal(opened.to_numpy(), estimator.coreset_.to_numpy())
    assert np.array_equal(np.asarray(opened.weights), estimator.coreset_.weights)
    one = dc.KMeans(4, random_state=0, init="random").fit(url)
    other = dc.KMeans(4, random_state=0, init="random", n_init=1).fit(estimator.coreset_)
    assert one.cluster_centers_.tobytes() == other.cluster_centers_.tobytes()
    sgd_state = zarr.open_group(url, mode="r").attrs["coreset"]
    assert {name: sgd_state[name] for name in ("n_rows", "size", "seed")} == {
        "n_rows": 1200,
        "size": 150,
        "seed": 5,
    }
    assert sgd_state["total_weight"] == pytest.approx(weights.sum())
    assert sgd_state["source"] == "array in memory"
    assert "daskcluster" in sgd_state["versions"]
    with pytest.raises(FileExistsError):
        estimator.save(url)


def test_fresh_seeds_are_remembered():
    first = dc.LightweightCoreset(50).fit(X)
    again = dc.LightweightCoreset(50, random_state=first.seed_).fit(X)
    assert np.array_equal(first.indices_, again.indices_)
    assert not np.array_equal(first.indices_, dc.LightweightCoreset(50).fit(X).indices_)


def test_merge_takes_whatever_holds_a_coreset(tmp_path):
    parts = [dc.LightweightCoreset(40, random_state=0).fit(half) for half in (X[:600], X[600:])]
    parts[1].save(str(tmp_path / "second"))
    union = dc.merge_coresets(parts[0], str(tmp_path / "second"))
    assert np.array_equal(union.to_numpy()[:40], parts[0].coreset_.to_numpy())
    assert union.weights.sum() == sum(part.coreset_.weights.sum() for part in parts)
    mixed = dc.merge_coresets(parts[0], dc.lightweight_coreset(X[600:].astype(float), 40, 0))
    assert mixed.dtype == np.float64


def test_merge_refuses_other_features():
    parts = [dc.lightweight_coreset(rows, 10, 0) for rows in (X, X[:, :2])]
    with pytest.raises(ValueError, match="coresets with 3, 2 features"):
        dc.merge_coresets(*parts)
    with pytest.raises(ValueError, match="no coreset was given"):
        dc.merge_coresets()


def test_unfitted():
    with pytest.raises(NotFittedError):
        dc.LightweightCoreset().save("memory://nowhere")


@pytest.mark.parametrize("size", [None, 60])
@pytest.mark.parametrize("as_sparse", [False, True])
def test_a_merged_coreset_is_saved_with_what_it_was_made_of(tmp_path, size, as_sparse):
    rows = sparse.csr_array(X) if as_sparse else X
    weights = np.linspace(1, 2, 1200)
    parts = [
        dc.LightweightCoreset(40, random_state=seed).fit(rows[part], sample_weight=weights[part])
        for seed, part in enumerate((slice(0, 600), slice(600, 1200)))
    ]
    parts[1].save(str(tmp_path / "second"))
    bare = dc.lightweight_coreset(rows[:100], 30, 0)
    merged = dc.merge_coresets(parts[0], str(tmp_path / "second"), bare, size=size, random_state=5)
    merged.save(str(tmp_path / "merged"))
    opened = dc.open_dataset(str(tmp_path / "merged"))
    assert np.array_equal(opened.to_numpy(), merged.to_numpy())
    assert np.array_equal(np.asarray(opened.weights), merged.weights)
    sgd_state = zarr.open_group(str(tmp_path / "merged"), mode="r").attrs["coreset"]
    assert (sgd_state["kind"], sgd_state["size"], sgd_state["n_rows"]) == (
        "merged",
        size or 110,
        1230,
    )
    assert sgd_state["parts"][:2] == [part.provenance() for part in parts]
    assert sgd_state["parts"][2]["total_weight"] == pytest.approx(bare.weights.sum())
    assert sgd_state["seed"] == (None if size is None else 5)
    assert sgd_state["total_weight"] == pytest.approx(weights.sum() + bare.weights.sum())
    again = pickle.loads(pickle.dumps(merged))
    assert again.provenance() == merged.provenance()
    twice = dc.merge_coresets(again)
    assert twice.provenance()["parts"] == [merged.provenance()]
    with pytest.raises(FileExistsError):
        merged.save(str(tmp_path / "merged"))
