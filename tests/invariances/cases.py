"""What is computed under each circumstance: small work of every estimator, function and job."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import dask
import numpy as np
import zarr

import daskcluster as dc
from tests.digests.fits import learnt
from tests.laws.data import lognormal

N, D = 4000, 8
SMALL_LIMIT, OF_DUPLICATES = 450 * 2**20, 600 * 2**20
"""Memory limits that hold the work, and little more."""


@dataclass(frozen=True)
class OneWorker:
    """A client whose work goes to one of its workers."""

    client: Any
    worker: str


@dataclass(frozen=True)
class Situation:
    """Where rows are, in which order and chunks, and what runs the work.

    Attributes
    ----------
    chunk_rows : int or None
        Rows of a chunk on disk; None for rows in memory.
    """

    engine: Any = None
    chunk_rows: int | None = 500
    is_reversed: bool = False

    def rows(self) -> Any:
        X = all_rows()[::-1] if self.is_reversed else all_rows()
        return self.stored(np.ascontiguousarray(X), "rows")

    def labels(self) -> np.ndarray:
        labels = np.argmax(all_rows(), axis=1).astype(np.int32)
        return np.ascontiguousarray(labels[::-1]) if self.is_reversed else labels

    def stored(self, X: np.ndarray, name: str) -> Any:
        if self.chunk_rows is None:
            return X
        url = str(Path(tempfile.mkdtemp(prefix="daskcluster-invariances-")) / f"{name}.zarr")
        zarr.create_array(url, data=X, chunks=(self.chunk_rows, X.shape[1]))
        cuts = range(0, len(X), self.chunk_rows)
        partitions = [(start, min(len(X), start + self.chunk_rows)) for start in cuts]
        # Chunks as small as these would share a partition.
        return dc.open_dataset(url).with_facts(partitions=partitions)


def all_rows() -> np.ndarray:
    return lognormal(N, D, dtype=np.float32)


def situations(client: Any, name: str) -> dict[str, tuple[Situation, Situation]]:
    """Return, for each circumstance but the kind of CPU, two situations that differ in it alone."""
    one, three = dc.LocalEngine(1), dc.LocalEngine(3)
    limit = OF_DUPLICATES if name in ("near_duplicates", "jobs.dedup") else SMALL_LIMIT
    first = next(iter(client.scheduler_info()["workers"]))

    base = Situation(one)
    return {
        "engine": (base, Situation(client)),
        "threads": (base, Situation(three)),
        "workers": (Situation(client), Situation(OneWorker(client, first))),
        "chunks": (base, Situation(one, chunk_rows=330)),
        "storage": (base, Situation(one, chunk_rows=None)),
        "memory_limit": (base, Situation(dc.LocalEngine(1, memory_limit=limit))),
        "order": (base, Situation(one, is_reversed=True)),
    }


def run(case: Callable[[Situation], Any], situation: Situation) -> Any:
    """Return the results of a case, as bytes by name."""
    engine = situation.engine
    if isinstance(engine, OneWorker):
        with dask.annotate(workers=[engine.worker]):
            return run(case, replace(situation, engine=engine.client))
    found = case(situation)
    names = found if isinstance(found, Mapping) else {"result": found}
    return {name: plain(value, situation) for name, value in names.items()}


def plain(value: Any, situation: Situation) -> bytes:
    """Return the bytes of a result; what has an entry for each row comes in the order of `all_rows`."""
    array = np.asarray(value)
    if situation.is_reversed and array.ndim and len(array) == N:
        array = array[::-1]
    return repr((array.dtype.str, array.shape)).encode() + array.tobytes()


CASES: dict[str, Callable[[Situation], Any]] = {}


def fit(make: Callable[..., Any], situation: Situation) -> Any:
    return learnt(make(random_state=3, engine=situation.engine).fit(situation.rows()))


def estimator(cls: Any, *arguments: Any, **parameters: Any) -> None:
    CASES[cls.__name__] = partial(fit, partial(cls, *arguments, **parameters))


def case(function: Callable[[Situation], Any]) -> Callable[[Situation], Any]:
    CASES[function.__name__] = function
    return function


estimator(dc.KMeans, 9, max_iter=6)
estimator(dc.MiniBatchKMeans, 9, batch_size=200, max_iter=2)
estimator(dc.NestedMiniBatchKMeans, 9, batch_size=200, max_iter=6)
estimator(dc.VarianceReducedKMeans, 9, max_iter=2)
estimator(dc.BackwardEulerKMeans, 9, batch_size=300, max_iter=5)
estimator(dc.CoresetKMeans, 9, coreset_size=400)
estimator(dc.HierarchicalKMeans, 30, n_coarse=4)
estimator(dc.KernelKMeans, 5, max_iter=3)
estimator(dc.MiniBatchKernelKMeans, 5, batch_size=100, max_iter=5)
estimator(dc.VariationalGaussianMixture, 12, max_iter=4)
estimator(dc.LightweightCoreset, 200)


@case
def StreamingKMeans(situation: Situation) -> Any:
    model = dc.StreamingKMeans(9, coreset_size=300, random_state=3, engine=situation.engine)
    return learnt(model.fit(situation.rows()))


def _seeds(function: Any, situation: Situation) -> Any:
    found = function(situation.rows(), 9, random_state=3, engine=situation.engine)
    return found[0] if isinstance(found, tuple) else found


for _function in (dc.kmeans_plusplus, dc.kmeans_parallel, dc.afk_mc2):
    CASES[_function.__name__] = partial(_seeds, _function)


@case
def lightweight_coreset(situation: Situation) -> Any:
    found = dc.lightweight_coreset(situation.rows(), 200, 3, engine=situation.engine)
    return {"rows": found.to_numpy(), "weights": found.weights}


@case
def coreset_quality(situation: Situation) -> Any:
    coreset = dc.lightweight_coreset(all_rows(), 200, 3)
    found = dc.coreset_quality(coreset, situation.rows(), n_clusters=5, engine=situation.engine)
    return {name: value for name, value in vars(found).items() if np.asarray(value).dtype != object}


def _centres() -> np.ndarray:
    return all_rows()[:9]


@case
def quantization_error(situation: Situation) -> Any:
    return dc.quantization_error(situation.rows(), _centres(), engine=situation.engine)


@case
def relative_error(situation: Situation) -> Any:
    rows = situation.rows()
    return dc.relative_error(rows, _centres(), all_rows()[20:29], engine=situation.engine)


@case
def near_duplicates(situation: Situation) -> Any:
    found = dc.near_duplicates(
        situation.rows(), 0.999, random_state=3, keep="nearest", engine=situation.engine
    )
    return found.columns()


@case
def partition(situation: Situation) -> Any:
    found = dc.partition(situation.rows(), 300, random_state=3, engine=situation.engine)
    return {"centres": found.centres, **found.columns()}


@case
def balanced_sample(situation: Situation) -> Any:
    model = dc.HierarchicalKMeans(12, n_coarse=3, random_state=0).fit(all_rows())
    found = dc.balanced_sample(
        model, situation.rows(), size=100, random_state=3, engine=situation.engine
    )
    return {name: value for name, value in vars(found).items() if isinstance(value, np.ndarray)}


@case
def select_k(situation: Situation) -> Any:
    found = dc.select_k(
        situation.rows(), ks=[2, 4, 6], n_seeds=1, max_iter=5, random_state=3,
        engine=situation.engine,
    )  # fmt: skip
    return {"best": found.best_k, **{str(k): centres for k, centres in found.centres.items()}}


@case
def shuffle(situation: Situation) -> Any:
    url = f"{tempfile.mkdtemp()}/shuffled.zarr"
    dc.shuffle(situation.rows(), url, random_state=3, with_index=f"{url}-index")
    return {"rows": dc.open_dataset(url).to_numpy()}


@case
def convert(situation: Situation) -> Any:
    from daskcluster.data.convert import convert

    url = f"{tempfile.mkdtemp()}/converted.zarr"
    convert(situation.rows(), url)
    return {"rows": dc.open_dataset(url).to_numpy()}


def _metric(name: str, situation: Situation) -> Any:
    measure = getattr(dc.metrics, name)
    return measure(situation.rows(), situation.labels(), engine=situation.engine)


for _name in (
    "calinski_harabasz", "davies_bouldin", "simplified_silhouette", "silhouette",
    "silhouette_samples",
):  # fmt: skip
    CASES[_name] = partial(_metric, _name)


# Measures of labels take no rows.
_LABEL_MEASURES = (
    "accuracy adjusted_mutual_info adjusted_rand_index completeness contingency fowlkes_mallows "
    "homogeneity mutual_info normalized_mutual_info purity rand_index v_measure"
).split()


def _measure_of_labels(name: str, situation: Situation) -> Any:
    labels = situation.labels()
    found = getattr(dc.metrics, name)(labels, labels % 3)
    return found.counts if name == "contingency" else found


for _name in _LABEL_MEASURES:
    CASES[_name] = partial(_measure_of_labels, _name)


@case
def merge_coresets(situation: Situation) -> Any:
    rows = all_rows()[::-1] if situation.is_reversed else all_rows()
    parts = [dc.lightweight_coreset(each, 100, 3) for each in (rows[:1500], rows[1500:])]
    found = dc.merge_coresets(*parts, size=90, random_state=3, engine=situation.engine)
    return {"rows": found.to_numpy(), "weights": found.weights}


# Jobs, as the command line runs them.
def job(
    name: str, *outputs: str, named: Callable[[], Mapping[str, Any]] = dict, **given: Any
) -> None:
    """Add a job, whose results are the arrays that it writes."""

    def results(situation: Situation) -> Any:
        folder = tempfile.mkdtemp(prefix="daskcluster-invariances-")
        places = {output: f"{folder}/{output}.zarr" for output in outputs}
        function = getattr(dc.jobs, {"coreset": "build_coreset"}.get(name, name))
        record = function(
            source=situation.rows(), engine=situation.engine, **places, **given, **named()
        )
        found = {place: array for place in places.values() for place, array in _arrays(place)}
        return {Path(place).name: array for place, array in found.items()} or _plain_record(record)

    CASES[f"jobs.{name}"] = results


def _arrays(place: str) -> list[tuple[str, np.ndarray]]:
    opened: Any = zarr.open(place, mode="r")
    if isinstance(opened, zarr.Array):
        return [(place, opened[:])]
    members = opened.members(max_depth=None)
    return [(f"{place}/{name}", array[...]) for name, array in members if hasattr(array, "shape")]


def _plain_record(record: Any) -> dict[str, Any]:
    work = {"model", "seconds", "passes", "bytes_read", "traffic"}
    return {name: repr(value) for name, value in vars(record).items() if name not in work}


def _saved_model() -> Mapping[str, Any]:
    url = f"{tempfile.mkdtemp()}/model"
    dc.KMeans(9, init=_centres(), max_iter=0).fit(all_rows()).save(url)
    return {"model": url}


job("fit", "model", "labels", n_clusters=9, algorithm="mini-batch", max_iter=2, random_state=3)
job("coreset", "output", size=200, random_state=3)
job("dedup", "output", threshold=0.999, keep="nearest")
job("partition", "output", target_size=300, random_state=3)
job("predict", "output", named=_saved_model)
job("sample", "output", size=100, random_state=3, named=_saved_model)
job("score", named=_saved_model)
job("sweep", ks=[2, 4], n_seeds=1, max_iter=5, random_state=3)


def _stream(situation: Situation) -> Any:
    folder = Path(tempfile.mkdtemp(prefix="daskcluster-invariances-"))
    X = all_rows()[::-1] if situation.is_reversed else all_rows()
    for number, part in enumerate(np.split(X, 4)):
        place = str(folder / "objects" / f"{number}.zarr")
        zarr.create_array(place, data=part, chunks=(situation.chunk_rows or 1000, D))
    cycle = dc.jobs.stream(
        f"{folder}/objects",
        state=f"{folder}/state",
        n_clusters=9,
        engine=situation.engine,
        coreset_size=300,
        random_state=3,
    )
    return dc.load_model(cycle.model).cluster_centers_


CASES["jobs.stream"] = _stream
