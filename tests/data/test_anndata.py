"""AnnData in and out. Without the library an object of the same shape stands in for it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import daskcluster as dc

pd = pytest.importorskip("pandas", reason="the pandas extra is not installed")


class AnnData:
    """What of an AnnData is touched."""

    def __init__(self, X, obsm=None, layers=None, *, backed=False):
        self.X, self.obsm, self.layers = X, obsm or {}, layers or {}
        self.obs, self.uns = pd.DataFrame(index=range(50)), {}
        self.n_obs, self.isbacked = 50, backed


AnnData.__module__ = "anndata"


def rows(d=6):
    return np.random.default_rng(0).poisson(1.0, (50, d)).astype(np.float32)


def standing_in(*arguments, **options):
    return AnnData(*arguments, **options)


def real(X, obsm=None, layers=None):
    anndata = pytest.importorskip("anndata", reason="the anndata extra is not installed")
    return anndata.AnnData(X, obsm=obsm or {}, layers=layers or {})


@pytest.mark.parametrize("make", [standing_in, real], ids=["stand-in", "anndata"])
def test_rows_in_and_labels_out(make):
    X = rows()
    adata = make(sparse.csr_matrix(X), {"X_pca": X[:, :2]}, {"counts": X})
    assert np.array_equal(dc.open_dataset(adata).take(np.arange(50)), X)
    assert np.array_equal(dc.open_dataset(adata, array="X").take(np.arange(50)), X)
    assert np.array_equal(dc.open_dataset(adata, array="X_pca").to_numpy(), X[:, :2])
    assert np.array_equal(dc.open_dataset(adata, array="counts").to_numpy(), X)
    labels = dc.KMeans(3, random_state=0).fit(dc.open_dataset(adata, array="X_pca")).labels_
    dc.annotate(adata, labels, "clusters", n_clusters=3)
    assert adata.obs["clusters"].astype(int).tolist() == np.asarray(labels).tolist()
    assert list(adata.obs["clusters"].cat.categories) == ["0", "1", "2"]
    assert adata.uns["clusters"] == {"n_clusters": 3}


def test_what_is_not_there():
    adata = AnnData(None, {"X_pca": rows()})
    with pytest.raises(FileNotFoundError, match="has no X"):
        dc.open_dataset(adata)
    with pytest.raises(FileNotFoundError, match="array='X_umap' should be 'X' or an array of obsm"):
        dc.open_dataset(adata, array="X_umap")
    with pytest.raises(ValueError, match="backed by a file"):
        dc.open_dataset(AnnData(rows(), backed=True))
    with pytest.raises(ValueError, match=r"labels of shape \(3,\) should be of shape \(50,\)"):
        dc.annotate(adata, [0, 1, 2])
