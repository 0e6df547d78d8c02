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
        self.obs, self.uns = pd.DataFrame(index=[f"c{at}" for at in range(50)]), {}
        self.n_obs, self.isbacked, self.is_view = 50, backed, backed
        self.obs_names = [f"c{at}" for at in range(50)]
        self.var_names = [f"g{at}" for at in range(0 if X is None else X.shape[1])]


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


def test_missing_arrays_are_refused():
    adata = AnnData(None, {"X_pca": rows()})
    with pytest.raises(FileNotFoundError, match="has no X"):
        dc.open_dataset(adata)
    with pytest.raises(FileNotFoundError, match="array='X_umap' should be 'X' or an array of obsm"):
        dc.open_dataset(adata, array="X_umap")
    with pytest.raises(ValueError, match="view of a file"):
        dc.open_dataset(AnnData(rows(), backed=True))
    with pytest.raises(ValueError, match=r"labels of shape \(3,\) should be of shape \(50,\)"):
        dc.annotate(adata, [0, 1, 2])


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix, sparse.csr_array])
def test_estimators_take_them_as_they_are(kind, tmp_path):
    ad = pytest.importorskip("anndata", reason="the anndata extra is not installed")
    X = rows()
    X[25:, :3] += 5
    adata = ad.AnnData(kind(X), obsm={"X_pca": X[:, :2]}, layers={"counts": kind(X)})
    adata.var_names = list("abcdef")
    model = dc.KMeans(2, random_state=0).fit(adata)
    labels = model.labels_
    assert type(labels) is np.ndarray
    assert np.array_equal(labels, np.repeat([labels[0], labels[-1]], 25))
    assert model.feature_names_in_.tolist() == list("abcdef")
    part, turned = adata[10:40], adata[:, list("fedcba")]
    assert np.array_equal(model.predict(part), labels[10:40])
    assert np.array_equal(model.predict(turned), labels)
    assert np.isclose(model.score(turned), -model.inertia_)
    assert np.array_equal(dc.MiniBatchKMeans(2, random_state=0).fit_predict(part).shape, (30,))
    with pytest.raises(ValueError, match="now missing:\n- d"):
        model.predict(adata[:, :3])
    # The same names for objects and files, and the same features by their names.
    adata.write_h5ad(tmp_path / "cells.h5ad")
    adata.write_zarr(tmp_path / "cells.zarr")
    turned.copy().write_h5ad(tmp_path / "turned.h5ad")
    turned.copy().write_zarr(tmp_path / "turned.zarr")
    for name in ("cells.h5ad", "cells.zarr", "turned.h5ad", "turned.zarr"):
        stored = dc.open_dataset(str(tmp_path / name), array="X")
        assert sorted(stored.feature_names) == list("abcdef")
        assert np.array_equal(model.predict(stored), labels), name
    for given in (adata, str(tmp_path / "cells.h5ad"), str(tmp_path / "cells.zarr")):
        for array in ("X_pca", "obsm/X_pca"):
            assert np.array_equal(dc.open_dataset(given, array=array).to_numpy(), X[:, :2])
        for array in ("counts", "layers/counts"):
            assert np.array_equal(dc.open_dataset(given, array=array).to_numpy(), X)
    both = [str(tmp_path / "cells.h5ad"), str(tmp_path / "turned.h5ad")]
    with pytest.raises(ValueError, match="has other features"):
        dc.open_dataset(both)


def test_a_backed_one_is_read_from_its_file(tmp_path):
    ad = pytest.importorskip("anndata", reason="the anndata extra is not installed")
    X = rows()
    ad.AnnData(X, obsm={"X_pca": X[:, :2]}).write_h5ad(tmp_path / "cells.h5ad")
    backed = ad.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    assert np.array_equal(dc.open_dataset(backed).to_numpy(), X)
    assert np.array_equal(dc.open_dataset(backed, array="X_pca").to_numpy(), X[:, :2])
    model = dc.KMeans(2, random_state=0).fit(backed)
    assert np.array_equal(model.labels_, model.predict(X))
    with pytest.raises(ValueError, match="view of a file"):
        model.predict(backed[:10])
    backed.file.close()


@pytest.mark.parametrize("kind", ["h5ad", "zarr"])
def test_labels_go_into_a_file(kind, tmp_path):
    anndata = pytest.importorskip("anndata", reason="the anndata extra is not installed")
    path, X = tmp_path / f"cells.{kind}", rows()
    obs = pd.DataFrame({"donor": ["a", "b"] * 25}, index=[f"cell {i}" for i in range(50)])
    before = anndata.AnnData(sparse.csr_matrix(X), obs=obs, obsm={"X_pca": X[:, :2]})
    getattr(before, f"write_{kind}")(path)
    labels = dc.KMeans(3, random_state=0).fit(dc.open_dataset(path, array="X_pca")).labels_
    for _ in range(2):  # again, in place of the first ones
        dc.annotate(path, labels, "clusters", n_clusters=3)
    after = getattr(anndata, f"read_{kind}")(path)
    assert after.obs["clusters"].astype(int).tolist() == np.asarray(labels).tolist()
    assert after.obs["donor"].tolist() == obs["donor"].tolist()
    assert after.obs_names.tolist() == obs.index.tolist()
    assert int(after.uns["clusters"]["n_clusters"]) == 3
    assert (after.X != before.X).nnz == 0
    with pytest.raises(dc.errors.InvalidDataError, match=r"should be of shape \(50,\)"):
        dc.annotate(path, labels[:9], "few")
    with pytest.raises(dc.errors.DatasetNotFoundError, match="no file"):
        dc.annotate(tmp_path / "none.h5ad", labels)
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def stored(adata, ending, tmp_path):
    path = str(tmp_path / f"cells{ending}")
    adata.write_h5ad(path) if ending == ".h5ad" else adata.write_zarr(path)
    return path


@pytest.mark.parametrize("ending", [".h5ad", ".zarr"])
def test_labels_are_matched_with_cells_by_name(ending, tmp_path):
    X, order = rows(), np.random.default_rng(1).permutation(50)
    X[7] = np.nan
    adata = real(X)
    adata.obs_names = [f"c{at}" for at in range(50)]
    cells = dc.open_dataset(stored(adata, ending, tmp_path), array="X", missing="drop")
    assert (cells.id_column, np.asarray(cells.ids(0, 8))[7]) == ("obs_names", "c8")
    labels = dc.KMeans(3, random_state=0).fit(cells).labels_
    shuffled = adata[order].copy()
    dc.annotate(shuffled, labels, "clusters")
    known = dict(zip(adata.obs_names, np.asarray(labels), strict=True))
    found = shuffled.obs["clusters"]
    assert found.isna().tolist() == [name == "c7" for name in shuffled.obs_names]
    assert list(found.cat.categories) == ["0", "1", "2"]
    assert all(int(found[name]) == label for name, label in known.items() if name != "c7")
    dc.annotate(shuffled[:9].copy(), labels)  # a part of the cells
    dc.annotate(shuffled, np.asarray(labels))  # by position, as arrays have no names
    series = pd.Series(np.asarray(labels), index=adata.obs_names)
    dc.annotate(shuffled, series, "series")
    assert shuffled.obs["series"].equals(found)

    shuffled.obs_names = [f"d{name}" for name in shuffled.obs_names]
    with pytest.raises(ValueError, match=f"50 of 50 rows are not among.*, e.g. 'dc{order[0]}'"):
        dc.annotate(shuffled, labels)
    shuffled.obs_names = ["c1"] * 50
    with pytest.raises(ValueError, match="two of the rows are called 'c1'"):
        dc.annotate(shuffled, labels)


def test_names_of_cells_are_the_ids_of_labels(tmp_path):
    adata = standing_in(rows())
    dc.KMeans(3, random_state=0).fit(adata).predict(adata, output=str(tmp_path / "labels.csv"))
    assert pd.read_csv(tmp_path / "labels.csv")["obs_names"].tolist() == list(adata.obs_names)
