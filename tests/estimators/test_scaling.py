"""Features on a common scale: learnt in one pass, applied as rows are read, undone in centres."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import zarr
from click.testing import Result
from scipy import sparse
from sklearn.preprocessing import MinMaxScaler, StandardScaler

import daskcluster as dc
from daskcluster import jobs
from daskcluster.engine.local import LocalEngine
from daskcluster.errors import InvalidDataError, InvalidParameterError, ModelFormatError
from daskcluster.estimators.opening import scaled
from daskcluster.events import PassEnded
from daskcluster.models.fitted import load_document
from tests.cli.conftest import record, run  # noqa: F401  (fixtures)
from tests.security.damage import head_of, sign

N, D = 4000, 6
PEERS = {"standard": StandardScaler, "minmax": MinMaxScaler}
KINDS = pytest.mark.parametrize("scale", PEERS)


def make_rows(dtype: Any = np.float64) -> np.ndarray:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 5, N)
    rows = 5 * rng.standard_normal((5, D))[labels] + rng.standard_normal((N, D))
    rows = rows * 10.0 ** np.arange(-2, D - 2) + 100.0
    rows[:, 3] = 7.0  # a constant feature
    return rows.astype(dtype)


@pytest.fixture
def stored(tmp_path: Path) -> str:
    array = zarr.create_array(str(tmp_path / "rows"), shape=(N, D), chunks=(700, D), dtype="f4")
    array[:] = make_rows(np.float32)
    return str(tmp_path / "rows")


# -- the scaling ------------------------------------------------------------------------------------


@KINDS
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int32, np.int16])
def test_values_are_those_of_scikit_learn(scale: str, dtype: Any) -> None:
    rows = make_rows(dtype)
    expected = PEERS[scale]().fit_transform(rows.astype(np.float64))
    dataset: Any = dc.open_dataset(rows, scale=scale)
    assert dataset.dtype == (np.float32 if dtype in (np.float32, np.int16) else np.float64)
    tight = {"rtol": 1e-9, "atol": 1e-10} if dataset.dtype == np.float64 else {"atol": 1e-6}
    np.testing.assert_allclose(dataset.to_numpy(), expected, **tight)
    np.testing.assert_allclose(dataset.scaling.undo(expected), rows, rtol=1e-9, atol=1e-9)
    assert dataset.scaling.kind in repr(dataset) or dataset.in_memory


def test_weights_count_as_copies() -> None:
    rows, weights = make_rows(), np.random.default_rng(1).integers(0, 4, N)
    weighted: Any = dc.open_dataset(rows, weights=weights, scale="standard")
    copies: Any = dc.open_dataset(np.repeat(rows, weights, axis=0), scale="standard")
    np.testing.assert_allclose(weighted.scaling.shift, copies.scaling.shift, rtol=1e-12)
    np.testing.assert_allclose(weighted.scaling.width, copies.scaling.width, rtol=1e-9)
    assert np.array_equal(np.asarray(weighted.weights), weights)


@KINDS
def test_the_same_bits_wherever_rows_live(
    scale: str, stored: str, tmp_path: Path, client: Any
) -> None:
    rows = make_rows(np.float32)
    np.save(tmp_path / "rows.npy", rows)
    expected = dc.open_dataset(rows, scale=scale, engine=LocalEngine(1)).to_numpy()
    for source, engine in (
        (stored, LocalEngine(2)),
        (stored, client),
        (str(tmp_path / "rows.npy"), None),
        (da.from_array(rows, chunks=(900, D)), None),
        (np.asfortranarray(rows), None),
    ):
        dataset = dc.open_dataset(source, scale=scale, engine=engine)
        assert dataset.to_numpy().tobytes() == expected.tobytes()
        wanted = np.array([3999, 0, 17, 2500])
        assert np.array_equal(dataset.take(wanted), expected[wanted])
        again = pickle.loads(pickle.dumps(dataset)) if isinstance(source, str) else dataset
        assert np.array_equal(again.load((600, 800)).rows, expected[600:800])
        assert dataset.recipe().open().load((5, 9)).rows.tobytes() == expected[5:9].tobytes()


@KINDS
def test_sparse_rows_are_divided_and_not_shifted(scale: str) -> None:
    rng = np.random.default_rng(2)
    dense = rng.random((500, 8)) * (rng.random((500, 8)) < 0.4) * 10.0 ** np.arange(8)
    dataset: Any = dc.open_dataset(sparse.csr_array(dense), scale=scale)
    peer = PEERS[scale]().fit(dense)
    width = peer.scale_ if scale == "standard" else 1 / peer.scale_
    assert (dataset.scaling.shift == 0).all()
    np.testing.assert_allclose(dataset.to_numpy(), dense / width, rtol=1e-9)
    model = dc.KMeans(3, random_state=0, init="random", n_init=1).fit(dataset)
    shifted = dc.KMeans(3, random_state=0, init="random", n_init=1).fit(
        dc.open_dataset(dense, scale=scale)
    )
    assert np.array_equal(model.predict(sparse.csr_array(dense)), shifted.predict(dense))
    np.testing.assert_allclose(model.cluster_centers_, shifted.cluster_centers_, atol=1e-6)


# -- fits on it ------------------------------------------------------------------------------------

ESTIMATORS: dict[str, Callable[[], Any]] = {
    "lloyd": lambda: dc.KMeans(5, random_state=0, algorithm="lloyd"),
    "hamerly": lambda: dc.KMeans(5, random_state=0, algorithm="hamerly"),
    "mini-batch": lambda: dc.MiniBatchKMeans(5, random_state=0, batch_size=500, max_iter=5),
    "nested": lambda: dc.NestedMiniBatchKMeans(5, random_state=0, batch_size=500),
    "vrkm": lambda: dc.VarianceReducedKMeans(5, random_state=0, max_iter=5),
    "backward-euler": lambda: dc.BackwardEulerKMeans(5, random_state=0, max_iter=5),
    "hierarchical": lambda: dc.HierarchicalKMeans(9, n_coarse=3, random_state=0),
    "coreset": lambda: dc.CoresetKMeans(5, coreset_size=600, random_state=0),
}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_centres_are_in_the_datas_units_and_labels_are_predicted(name: str, stored: str) -> None:
    rows = make_rows(np.float32)
    model = ESTIMATORS[name]().fit(dc.open_dataset(stored, scale="standard"))
    labels = np.asarray(model.labels_)
    assert np.array_equal(model.predict(rows), labels)
    assert np.array_equal(model.predict(dc.open_dataset(stored)), labels)
    assert np.array_equal(model.predict(dc.open_dataset(stored, scale="standard")), labels)
    assert np.array_equal(model.predict(da.from_array(rows, chunks=(1000, D))).compute(), labels)
    if name != "coreset":  # whose inertia is an estimate
        assert model.score(rows) == pytest.approx(-model.inertia_, rel=1e-12)
    scaler = StandardScaler().fit(rows.astype(np.float64))
    centres = scaler.transform(model.cluster_centers_.astype(np.float64))
    distances = np.linalg.norm(scaler.transform(rows.astype(np.float64))[:, None] - centres, axis=2)
    np.testing.assert_allclose(model.transform(rows), distances, atol=2e-4)
    assert (distances.argmin(axis=1) == labels).mean() > 0.999
    assert model.cluster_centers_[0, 3] == pytest.approx(7.0, rel=1e-5)


@pytest.mark.parametrize("coreset_size", [None, 700])
@pytest.mark.parametrize("kind", ["isotropic", "diag", "full"])
def test_mixtures_report_means_in_the_datas_units(
    coreset_size: int | None, kind: str, stored: str, tmp_path: Path
) -> None:
    rows = make_rows(np.float32)
    given = {"covariance_type": kind, "coreset_size": coreset_size, "random_state": 0}
    dataset: Any = dc.open_dataset(stored, scale="standard")
    model = dc.VariationalGaussianMixture(4, **given).fit(dataset)
    plain = dc.VariationalGaussianMixture(4, **given).fit(dataset.to_numpy())
    assert model.lower_bound_ == plain.lower_bound_
    np.testing.assert_array_equal(model.covariances_, plain.covariances_)
    assert model.means_.tobytes() == dataset.scaling.undo(plain.means_).tobytes()
    labels = np.asarray(model.labels_)
    assert np.array_equal(model.predict(rows), labels)
    assert np.array_equal(model.predict(da.from_array(rows, chunks=(900, D))).compute(), labels)
    assert model.score(rows) == model.score(dataset) == plain.score(dataset.to_numpy())
    model.save(str(tmp_path / "m"))
    loaded = dc.load_model(str(tmp_path / "m"))
    assert loaded.means_.tobytes() == model.means_.tobytes()
    assert np.array_equal(loaded.predict(rows), labels)
    assert jobs.score(str(tmp_path / "m"), stored).score == pytest.approx(model.score(rows))
    twin = model.to_sklearn()
    assert (twin.predict(rows) == labels).mean() > 0.999
    drawn, _ = model.sample(4000)
    away = np.abs(drawn.mean(axis=0) - rows.mean(axis=0)) / dataset.scaling.width
    assert away.max() < 0.3


@pytest.mark.parametrize(
    "estimator",
    [
        dc.KernelKMeans(3, kernel="rbf", random_state=0, max_iter=5),
        dc.KernelKMeans(3, kernel="knn", random_state=0, max_iter=5),
        dc.MiniBatchKernelKMeans(3, kernel="knn", random_state=0, max_iter=5),
        dc.KernelKMeans(3, kernel="laplacian", init=[0, 7, 250], max_iter=5),
        dc.MiniBatchKernelKMeans(3, random_state=0, batch_size=100, max_iter=10),
    ],
)
def test_kernels_see_scaled_rows(estimator: Any, tmp_path: Path) -> None:
    rows = make_rows(np.float32)[:400]
    dataset: Any = dc.open_dataset(rows, scale="minmax")
    model = estimator.fit(dataset)
    labels = np.asarray(model.labels_)
    assert np.array_equal(model.predict(rows), labels)
    assert np.array_equal(model.predict(da.from_array(rows, chunks=(90, D))).compute(), labels)
    model.save(str(tmp_path / "m"))
    assert np.array_equal(dc.load_model(str(tmp_path / "m")).predict(rows), labels)
    again = estimator.fit(dataset.to_numpy())
    assert np.array_equal(np.asarray(again.labels_), labels)
    assert again.scaling_ is None


@pytest.mark.parametrize("name", ["hierarchical", "coreset"])
def test_fits_of_parts_are_the_same_on_a_cluster(name: str, stored: str, client: Any) -> None:
    here, there = (
        ESTIMATORS[name]().set_params(engine=engine).fit(dc.open_dataset(stored, scale="minmax"))
        for engine in (LocalEngine(2), client)
    )
    assert here.cluster_centers_.tobytes() == there.cluster_centers_.tobytes()
    assert np.array_equal(np.asarray(here.labels_), np.asarray(there.labels_))


def test_a_coreset_of_scaled_rows_knows_its_scale(stored: str) -> None:
    dataset: Any = dc.open_dataset(stored, scale="standard")
    model = dc.CoresetKMeans(4, coreset_size=900, random_state=0).fit(dataset)
    assert model.coreset_.scaling.same_as(dataset.scaling)
    again = dc.KMeans(4, random_state=1).fit(model.coreset_)
    assert again.scaling_.same_as(dataset.scaling)
    assert again.cluster_centers_[0, 3] == pytest.approx(7.0, rel=1e-5)
    quality = model.quality(make_rows(np.float32))
    assert quality.largest_error < 0.3
    cells = dc.HierarchicalKMeans(9, n_coarse=3, random_state=0).fit(dataset)
    assert cells.coarse_centers_[:, 3] == pytest.approx(7.0, rel=1e-5)


@KINDS
def test_a_fit_is_that_of_rows_that_were_scaled_before(scale: str, stored: str) -> None:
    dataset = dc.open_dataset(stored, scale=scale)
    one = dc.KMeans(4, random_state=1).fit(dataset)
    other = dc.KMeans(4, random_state=1, init="k-means||").fit(dataset.to_numpy())
    assert one.inertia_ == other.inertia_
    assert np.array_equal(np.asarray(one.labels_), other.labels_)
    assert other.scaling_ is None


def test_the_model_keeps_the_scale(stored: str, tmp_path: Path) -> None:
    model = dc.KMeans(4, random_state=0).fit(dc.open_dataset(stored, scale="minmax"))
    model.save(str(tmp_path / "m"))
    loaded = dc.load_model(str(tmp_path / "m"))
    assert loaded.scaling_.same_as(model.scaling_)
    assert loaded.cluster_centers_.tobytes() == model.cluster_centers_.tobytes()
    rows = make_rows(np.float32)
    assert np.array_equal(loaded.predict(rows), np.asarray(model.labels_))
    assert np.array_equal(pickle.loads(pickle.dumps(model)).predict(rows), loaded.predict(rows))
    document = load_document(str(tmp_path / "m"))
    assert document.centres_of_data.tobytes() == model.cluster_centers_.tobytes()
    warm = dc.KMeans(4, init=str(tmp_path / "m"), max_iter=0).fit(rows)
    assert warm.cluster_centers_.tobytes() == model.cluster_centers_.tobytes()


def test_jobs_scale_rows_as_the_fit_did(stored: str, tmp_path: Path, client: Any) -> None:
    given = {"n_clusters": 4, "random_state": 0, "scale": "standard"}
    model, labels = str(tmp_path / "m"), str(tmp_path / "labels")
    found = jobs.fit(stored, model=model, labels=labels, **given)
    plain = jobs.fit(stored, model=str(tmp_path / "p"), n_clusters=4, random_state=0)
    assert found.inertia != plain.inertia
    there = jobs.fit(stored, model=str(tmp_path / "there"), engine=client, **given)
    assert there.inertia == found.inertia
    assert jobs.score(model, stored).inertia == found.inertia
    jobs.predict(model, make_rows(np.float32), output=str(tmp_path / "again"))
    written = [zarr.open_array(url, mode="r")[:] for url in (labels, str(tmp_path / "again"))]
    assert np.array_equal(*written)
    seen = jobs.examine(load_document(model), dc.open_dataset(stored))
    assert dict(seen.facts)["inertia"] == f"{found.inertia:,.10g}"


def test_it_takes_one_pass(stored: str) -> None:
    heard: list[Any] = []
    scaled(dc.open_dataset(stored), "standard", callbacks=(heard.append,))
    assert sum(isinstance(event, PassEnded) for event in heard) == 1


def test_on_the_command_line(
    stored: str,
    tmp_path: Path,
    record: Callable[..., Any],  # noqa: F811
    run: Callable[..., Result],  # noqa: F811
) -> None:
    fit = ("fit", stored, "--n-clusters", "4", "--random-state", "0", "--scale", "standard")
    model = str(tmp_path / "m")
    found = record(*fit, "--model", model)
    assert found["inertia"] == record("score", model, stored)["inertia"]
    assert record(*fit, "--dry-run")["scale"] == "standard"
    assert "one more pass" in run(*fit, "--dry-run").stdout
    assert record("info", model)["scaling"]["kind"] == "standard"


# -- what is refused --------------------------------------------------------------------------------


def test_scales_and_estimators_that_are_refused() -> None:
    rows = make_rows()
    dataset = dc.open_dataset(rows, scale="standard")
    with pytest.raises(
        InvalidParameterError, match="scale='log' should be one of standard, minmax"
    ):
        dc.open_dataset(rows, scale="log")
    with pytest.raises(InvalidParameterError, match="already scaled"):
        dc.open_dataset(dataset, scale="minmax")
    with pytest.raises(InvalidDataError, match="NaN: first in row 1"):
        dc.open_dataset(np.array([[0.0], [np.nan]]), scale="minmax")
    square = dc.open_dataset(rows[:D], scale="standard")
    for estimator, given in (
        (dc.KernelKMeans(3, kernel="precomputed"), square),
        (dc.StreamingKMeans(3), dataset),
        (dc.LightweightCoreset(100), dataset),
    ):
        with pytest.raises(InvalidParameterError, match="cannot fit scaled rows"):
            estimator.fit(given)
    for estimator in (
        dc.KMeans(3, init=rows[:3]),
        dc.MiniBatchKernelKMeans(3, init=rows[:3]),
        dc.VariationalGaussianMixture(3, init=rows[:3]),
    ):
        with pytest.raises(InvalidParameterError, match="cannot start from given centres"):
            estimator.fit(dataset)
    coreset = dc.CoresetKMeans(3, coreset_size=50, random_state=0).fit(dataset).coreset_
    with pytest.raises(InvalidParameterError, match="scaled rows cannot be merged"):
        dc.merge_coresets(coreset)


def test_rows_on_another_scale_are_not_mixed_up() -> None:
    rows = make_rows()
    one, other = (dc.open_dataset(rows, scale=scale) for scale in PEERS)
    model = dc.KMeans(3, random_state=0).fit(one)
    with pytest.raises(InvalidParameterError, match="opened with a scale that is not"):
        model.predict(other)
    plain = dc.KMeans(3, random_state=0).fit(rows)
    with pytest.raises(InvalidParameterError, match="opened with a scale that is not"):
        plain.predict(one)
    refitted = model.fit(rows)
    assert refitted.scaling_ is None
    assert refitted.cluster_centers_.tobytes() == plain.cluster_centers_.tobytes()


@pytest.mark.parametrize(
    "scaling",
    [
        None,
        {},
        {"kind": "log", "shift": [0.0] * D, "width": [1.0] * D},
        {"kind": "standard", "shift": [0.0], "width": [1.0]},
        {"kind": "standard", "shift": [0.0] * D, "width": [0.0] * D},
        {"kind": "standard", "shift": [0.0] * D, "width": ["1"] * D},
        {"kind": "standard", "shift": "x", "width": [1.0] * D},
    ],
)
def test_a_damaged_scale_is_refused(scaling: Any, tmp_path: Path) -> None:
    model = dc.KMeans(3, random_state=0).fit(dc.open_dataset(make_rows(), scale="standard"))
    model.save(str(tmp_path / "m"))
    files = {"zarr.json": (tmp_path / "m" / "zarr.json").read_bytes()}
    head = head_of(files)
    head["attributes"]["body"]["scaling"] = scaling
    sign(files, head)
    (tmp_path / "m" / "zarr.json").write_bytes(files["zarr.json"])
    with pytest.raises(ModelFormatError, match="scaling"):
        dc.load_model(str(tmp_path / "m"))


def test_other_libraries_get_the_scale(stored: str) -> None:
    model = dc.KMeans(4, random_state=0).fit(dc.open_dataset(stored, scale="minmax"))
    rows = make_rows(np.float32)
    agreed = model.to_sklearn().predict(rows) == model.predict(rows)
    assert agreed.mean() > 0.999
    with pytest.raises(InvalidParameterError, match="a Faiss index cannot scale"):
        model.to_faiss()
