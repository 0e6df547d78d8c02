"""HierarchicalKMeans: quotas, cells, refinement, the same bits anywhere, the scikit-learn contract."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import zarr
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

import daskcluster as dc
from daskcluster import events
from daskcluster.methods.catalogue import ALGORITHMS
from daskcluster.methods.hierarchical.cells import apportion, cell_groups, quota_shares
from daskcluster.methods.hierarchical.estimator import plan_fit
from daskcluster.models.balance import Balance
from tests.data.test_sparse_zarr import put
from tests.laws.data import case

pytestmark = pytest.mark.usefixtures("divided")


def blobs(n=6000, k=40, d=4, seed=0):
    rng = np.random.default_rng(seed)
    centres = 12 * rng.normal(size=(k, d))
    return (centres[rng.integers(0, k, n)] + rng.normal(size=(n, d))).astype(np.float32)


X = blobs()


def stored(folder, rows, chunk=500):
    zarr.create_array(folder / "rows.zarr", data=rows, chunks=(chunk, rows.shape[1]))
    return str(folder / "rows.zarr")


def same_bits(one, other):
    for name in ("cluster_centers_", "coarse_centers_", "quotas_", "coarse_sizes_"):
        assert getattr(one, name).tobytes() == getattr(other, name).tobytes(), name
    assert np.array_equal(one.labels_, np.asarray(other.labels_))
    assert (one.inertia_, one.n_iter_) == (other.inertia_, other.n_iter_)


def test_every_cell_gets_its_share():
    model = dc.HierarchicalKMeans(90, random_state=0, refine=False).fit(X)
    assert (len(model.coarse_centers_), model.quotas_.sum(), model.n_iter_) == (9, 90, 0)
    coarse = dc.KMeans(9, init=model.coarse_centers_, max_iter=0).fit(X)
    assert np.array_equal(coarse.cluster_sizes_, model.coarse_sizes_)
    shares = quota_shares(coarse.cluster_weights_, coarse.cluster_costs_)
    assert np.array_equal(model.quotas_, apportion(shares, 90, model.coarse_sizes_))
    # The centres of a cell are means of rows of that cell.
    first, last = model.quotas_[:2].sum(), model.quotas_[:3].sum()
    own = X[coarse.labels_ == 2].astype(np.float64)
    few = dc.KMeans(int(last - first), init=model.cluster_centers_[first:last], tol=0).fit(own)
    assert few.inertia_ == pytest.approx(
        dc.quantization_error(own, model.cluster_centers_[first:last]), rel=0.01
    )


def test_labels_are_exact_and_refining_helps():
    rough = dc.HierarchicalKMeans(200, random_state=0, refine=False).fit(X)
    fine = dc.HierarchicalKMeans(200, random_state=0, refine_iter=5).fit(X)
    assert fine.inertia_ < rough.inertia_
    assert fine.inertia_ < 1.1 * dc.KMeans(200, random_state=0, max_iter=20).fit(X).inertia_
    for model in (rough, fine):
        assert np.array_equal(model.labels_, model.predict(X))
        assert model.inertia_ == pytest.approx(-model.score(X), rel=1e-12)
        assert model.cluster_sizes_.sum() == len(X)
    same = dc.HierarchicalKMeans(200, random_state=0, refine_iter=0).fit(X)
    assert same.cluster_centers_.tobytes() == rough.cluster_centers_.tobytes()


@pytest.mark.parametrize(
    ("name", "metric"), [("float32", "euclidean"), ("weighted float64", "cosine")]
)
def test_same_bits_anywhere(tmp_path, client, name, metric):
    rows, w = case(name)
    options = {"n_clusters": 60, "random_state": 3, "metric": metric, "init": "afk-mc2"}

    def fit(source, engine):
        return dc.HierarchicalKMeans(**options, engine=engine).fit(source, sample_weight=w)

    one = fit(rows, dc.LocalEngine(1))
    same_bits(one, fit(rows, dc.LocalEngine(3)))
    for chunk, engine in ((97, "local"), (1400, client)):
        folder = tmp_path / str(chunk)
        folder.mkdir()
        same_bits(one, fit(stored(folder, rows, chunk), engine))
    same_bits(one, fit(rows, client))


def test_groups_do_not_matter(tmp_path, monkeypatch):
    monkeypatch.setattr("daskcluster.methods.hierarchical.cells._LEAST_BYTES", 1)
    model = dc.HierarchicalKMeans(50, random_state=0).fit(stored(tmp_path, X))
    groups = cell_groups(model.coarse_sizes_, 16)
    assert len(groups) > 4
    assert model.passes_ == 1 + 2 + len(groups) + 2 + 1  # so few rows are their own coreset
    same_bits(dc.HierarchicalKMeans(50, random_state=0).fit(X), model)


def test_sparse_equals_dense(tmp_path, client):
    rng = np.random.default_rng(0)
    rows = rng.integers(1, 5, (1500, 12)) * (rng.random((1500, 12)) < 0.3)
    csr = sparse.csr_array(rows.astype(np.float32))
    options = {"n_clusters": 30, "random_state": 0}
    one = dc.HierarchicalKMeans(**options).fit(csr)
    put(zarr.open_group(tmp_path / "rows.zarr", mode="w"), csr, chunks=900)
    for engine in ("local", client):
        found = dc.HierarchicalKMeans(**options, engine=engine).fit(str(tmp_path / "rows.zarr"))
        same_bits(one, found)
    dense = dc.HierarchicalKMeans(**options).fit(rows.astype(np.float32))
    assert one.inertia_ == pytest.approx(dense.inertia_, rel=0.05)


def test_duplicates_leave_their_quota_to_others():
    rng = np.random.default_rng(0)
    rows = np.concatenate(
        [np.tile(rng.normal(size=(3, 2)) + 50, (900, 1)), rng.normal(size=(300, 2))]
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        model = dc.HierarchicalKMeans(100, n_coarse=4, random_state=0).fit(rows)
    assert model.quotas_.sum() == 100
    far = model.coarse_centers_[:, 0] > 25
    assert model.quotas_[far].sum() <= 3
    assert len(np.unique(model.cluster_centers_, axis=0)) == 100


def test_fewer_different_rows_than_clusters():
    rows = np.repeat(np.arange(12.0)[:, None], 50, axis=0)
    with pytest.warns(ConvergenceWarning, match=r"distinct clusters \(12\)"):
        model = dc.HierarchicalKMeans(20, random_state=0).fit(rows)
    assert model.cluster_centers_.shape == (20, 1)
    assert (model.inertia_, model.balance().empty) == (0.0, 8)


@pytest.mark.parametrize("k", [1, 2, 50])
def test_few_rows(k):
    rows = X[:50]
    model = dc.HierarchicalKMeans(k, random_state=0).fit(rows)
    assert model.cluster_centers_.shape == (k, 4)
    if k == 50:
        assert model.inertia_ == pytest.approx(0.0, abs=1e-6)
    if k == 1:
        assert model.cluster_centers_[0] == pytest.approx(rows.mean(axis=0), rel=1e-5)


def test_weights_are_copies_in_expectation():
    """Rows of weight zero change nothing but where draws fall; a heavy corner gets the clusters."""
    w = np.where(X[:, 0] > 0, 30.0, 0.0)
    model = dc.HierarchicalKMeans(60, random_state=0).fit(X, sample_weight=w)
    assert (model.cluster_centers_[:, 0] > 0).all()
    assert model.cluster_weights_.sum() == pytest.approx(w.sum())
    heavy = np.where(X[:, 0] > 0, 9.0, 1.0)
    model = dc.HierarchicalKMeans(200, random_state=0, refine=False).fit(X, sample_weight=heavy)
    cells = dc.KMeans(14, init=model.coarse_centers_, max_iter=0).fit(X, sample_weight=heavy)
    shares = quota_shares(cells.cluster_weights_, cells.cluster_costs_)
    assert np.array_equal(model.quotas_, apportion(shares, 200, model.coarse_sizes_))
    plain = dc.HierarchicalKMeans(200, random_state=0, refine=False).fit(X)
    right, before = ((m.cluster_centers_[:, 0] > 0).mean() for m in (model, plain))
    assert right > before + 0.08


def test_few_rows_are_one_cell_and_costly_cells_get_more_clusters(monkeypatch):
    """As in "unbalance": three large clusters that cost little, and five small ones far apart."""
    monkeypatch.undo()
    rng = np.random.default_rng(0)
    near = rng.normal(size=(6000, 2)) + 8.0 * rng.integers(0, 3, (6000, 1))
    far = 3.0 * rng.normal(size=(500, 2)) + [500.0, 0.0] + 60.0 * rng.integers(0, 5, (500, 1))
    rows = np.concatenate([near, far])
    best = min(dc.KMeans(20, random_state=seed).fit(rows).inertia_ for seed in range(5))
    one = dc.HierarchicalKMeans(20, random_state=0).fit(rows)
    assert len(one.quotas_) == 1
    assert one.seeding_ == "k-means++"
    assert one.inertia_ < 1.15 * best
    for seed in range(3):
        cells = dc.HierarchicalKMeans(20, n_coarse=4, random_state=seed).fit(rows)
        assert cells.inertia_ < 1.3 * best


def test_passes_are_those_of_the_plan(tmp_path):
    heard = []

    def hear(event):
        if isinstance(event, events.PassEnded):
            heard.append((event.name, event.bytes_read))

    engine = dc.LocalEngine(n_threads=1, memory_limit=420 * 2**20)
    model = dc.HierarchicalKMeans(30, random_state=0, engine=engine, callbacks=[hear])
    rows = blobs(n=11_000)
    url = stored(tmp_path, rows)
    model.fit(url)
    assert len(heard) == model.passes_ == 2 + 2 + 1 + 2 + 1
    assert sum(read for _, read in heard) == model.bytes_read_
    entry = ALGORITHMS.find("hierarchical")
    parameters = {name: p.default for name, p in entry.parameters.items()} | {"n_clusters": 30}
    for source in (url, rows):
        plan = plan_fit(dc.open_dataset(source), parameters)
        assert (plan.passes_at_most, plan.passes_seeding) == (8, 5)
        assert dc.HierarchicalKMeans(30, random_state=0).fit(source).passes_ <= 8


def test_events_are_those_of_one_fit():
    seen = []
    model = dc.HierarchicalKMeans(30, random_state=0, callbacks=[seen.append]).fit(X)
    kinds = [type(event).__name__ for event in seen if "Pass" not in type(event).__name__]
    assert kinds[:3] == ["FitStarted", "Notice", "SeedingEnded"]
    assert kinds[3:] == ["IterationEnded"] * model.n_iter_ + ["FitEnded"]
    assert seen[-1].passes == model.passes_
    notice = next(event for event in seen if isinstance(event, events.Notice))
    assert notice.text.startswith("5 cells of ")


def test_a_time_limit_leaves_the_refinement_out():
    model = dc.HierarchicalKMeans(30, random_state=0, max_time=1e-9).fit(X)
    assert model.n_iter_ == 0
    assert np.array_equal(model.labels_, model.predict(X))


def test_bad_parameters():
    for options, text in (
        ({"n_coarse": 9}, "n_coarse=9 should be <= n_clusters=8"),
        ({"n_coarse": 0}, "'n_coarse' parameter of HierarchicalKMeans"),
        ({"init": X[:8]}, "'init' parameter of HierarchicalKMeans"),
        ({"refine_iter": -1}, "'refine_iter' parameter"),
        ({"metric": "l1"}, "'metric' parameter"),
    ):
        with pytest.raises(ValueError, match=text):
            dc.HierarchicalKMeans(8, **options).fit(X)
    with pytest.raises(ValueError, match="n_samples=4 should be >= n_clusters=8"):
        dc.HierarchicalKMeans(8).fit(X[:4])
    bad = X.copy()
    bad[77, 1] = np.nan
    with pytest.raises(ValueError, match="NaN: first in row 77"):
        dc.HierarchicalKMeans(8).fit(bad)


def test_balance_of_known_sizes():
    found = Balance.of(np.array([1, 2, 3, 0]))
    assert (found.smallest, found.median, found.mean, found.largest, found.empty) == (
        0,
        1.5,
        1.5,
        3,
        1,
    )
    assert found.variation == pytest.approx(np.std([1, 2, 3, 0]) / 1.5)
    pairs = np.abs(np.subtract.outer([1, 2, 3, 0], [1, 2, 3, 0])).mean()
    assert found.gini == pytest.approx(pairs / (2 * 1.5))
    assert str(found).startswith("4 clusters of 0 to 3 rows")
    assert Balance.of(np.zeros(3)).gini == 0.0
