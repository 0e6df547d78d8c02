"""scikit-learn's own k-means tests, run against `daskcluster.KMeans` and `daskcluster.MiniBatchKMeans`.

The test module ships in scikit-learn's wheel. Its parameter lists bind the classes at import, so they
are set before the module is loaded, once for every way to cut the rows into chunks.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import sklearn.cluster
from scipy import sparse

import daskcluster as dc
from daskcluster.data.writer import write_rows

NOT_APPLICABLE = {
    "test_kmeans_copyx": "there is no copy_x: rows are never changed",
    "test_kmeans_verbose": "asserts the text that scikit-learn prints",
    "test_k_means_function": "tests sklearn.cluster.k_means, not the estimator",
    "test_kmeans_plusplus": "tests sklearn.cluster.kmeans_plusplus, see tests/seeding",
    "test_relocate_empty_clusters": "tests a private function of scikit-learn",
    "test_euclidean_distance": "tests a private function of scikit-learn",
    "test_inertia": "tests a private function of scikit-learn",
    "test_is_same_clustering": "tests a private function of scikit-learn",
    "test_result_equal_in_diff_n_threads": "limits scikit-learn's thread pools; see tests/laws",
    "BisectingKMeans": "another estimator",
}


EXPECTED_FAILURES = {
    "test_minibatch_kmeans_init_size": "reads a private attribute; see tests/methods/minibatch",
    "test_minibatch_declared_convergence": "asserts the text that scikit-learn prints",
    "test_sample_weight_init": "calls a private method of scikit-learn; see tests/laws and tests/seeding",
    "test_sample_weight_zero": "calls a private method of scikit-learn; see tests/laws",
    "centroids__uneven[KMeans-random-default]": "n_init='auto' is 1 for rows that are not in memory",
    "[KMeans-<lambda>-default]": "n_init='auto' is 1 for a callable, whose centres need not be random",
    "test_n_init_auto__uneven": "n_init='auto' is 1 for rows that are not in memory",
}


def expected_failure(name: str) -> str | None:
    """Return why the test of this name fails on purpose, or None."""
    return next((why for part, why in EXPECTED_FAILURES.items() if part in name), None)


def not_applicable(name: str) -> str | None:
    """Return why the test of this name says nothing about us, or None."""
    if "minibatch" in name.lower() and "__numpy" not in name:
        return "batches do not follow chunks; see tests/methods/minibatch/test_estimator.py"
    return next((why for part, why in NOT_APPLICABLE.items() if part in name), None)


def load(chunks):
    """Return the test functions with ours in place of theirs, on rows cut into `chunks`."""
    path = Path(sklearn.cluster.__file__).parent / "tests" / "test_k_means.py"
    spec = importlib.util.spec_from_file_location("sklearn_test_k_means", path)
    module = importlib.util.module_from_spec(spec)
    theirs = sklearn.cluster.KMeans, sklearn.cluster.MiniBatchKMeans
    sklearn.cluster.KMeans = chunked(chunks)
    sklearn.cluster.MiniBatchKMeans = dc.MiniBatchKMeans
    try:
        spec.loader.exec_module(module)
    finally:
        sklearn.cluster.KMeans, sklearn.cluster.MiniBatchKMeans = theirs
    return {name: fn for name, fn in vars(module).items() if name.startswith("test_")}


def chunked(chunks):
    """Return KMeans that is given its rows as a dask array of `chunks`; None leaves them as they are."""
    if chunks is None:
        return dc.KMeans

    class KMeans(dc.KMeans):
        def fit(self, X, y=None, sample_weight=None):
            if sparse.issparse(X) and X.dtype.kind in "fiu":
                super().fit(stored(X), y, sample_weight)
                self.labels_ = np.asarray(self.labels_)
                return self
            if not (isinstance(X, np.ndarray) and X.ndim == 2 and len(X) and X.dtype.kind in "fiu"):
                return super().fit(X, y, sample_weight)
            import dask.array as da

            rows = da.from_array(X, chunks=(chunks(len(X)), -1))
            super().fit(rows, y, sample_weight)
            self.labels_ = np.asarray(self.labels_)
            return self

    KMeans.__init__.__qualname__ = "KMeans.__init__"
    return KMeans


def stored(X):
    """Return a sparse matrix as CSR rows in Zarr, which are not in memory either."""
    rows = dc.open_dataset(X)
    url = f"memory://sparse-{hash((X.shape, X.tocsr().data.tobytes()))}"
    write_rows(url, [rows.held], rows, overwrite=True)
    return dc.open_dataset(url)


def uneven(n):
    """Seven chunks, or as many as there are rows."""
    cuts = np.unique((np.array([0, 0.02, 0.1, 0.45, 0.5, 0.51, 0.9, 1]) * n).astype(int))
    return tuple(np.diff(cuts).tolist())


CHUNKINGS = {"numpy": None, "uneven": uneven}
"""Other numbers of chunks give the same bits: see tests/laws."""
