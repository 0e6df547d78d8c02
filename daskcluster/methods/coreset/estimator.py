"""LightweightCoreset: a small weighted sample that represents all rows; merges of several; dry runs."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from daskcluster.data.dataset import refuse_replacing, stored_at
from daskcluster.data.features import FeatureSpec
from daskcluster.data.memory import ArrayDataset
from daskcluster.data.open import open_source
from daskcluster.data.weighted import array_weights, stored_attributes, write_weighted
from daskcluster.engine.memory import Footprint
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.errors import InvalidParameterError
from daskcluster.estimators.base import EngineMixin
from daskcluster.estimators.fit import Fit, all_callbacks
from daskcluster.estimators.inputs import check_enough_rows, fit_dataset
from daskcluster.estimators.plan import DriverWork, PassTraffic, Plan, centres_bytes
from daskcluster.events import (
    Notice,
    publish,
)
from daskcluster.invariance import DRAWN, varies_with
from daskcluster.methods.coreset.algorithm import (
    Coreset,
    CoresetCheckpoint,
    CoresetState,
    RowsCheckpoint,
    coreset_shapes,
    draw_coreset,
    united,
)
from daskcluster.methods.coreset.parameters import LIGHTWEIGHT
from daskcluster.methods.kmeans.fit import pass_flop
from daskcluster.methods.kmeans.initial import method_for
from daskcluster.models.fitted import created_with
from daskcluster.parameters.parameter import Parameter
from daskcluster.sparse_rows import Rows
from daskcluster.storage.location import locate
from daskcluster.typing import Dataset

_STATE = "state_"


class CoresetDraw(Fit):
    """One call of draw: a part of a fit, which publishes neither its beginning nor its end.

    Parameters
    ----------
    estimator : LightweightCoreset
    dataset : Dataset
    resume : bool
        Resume from the last commit of an earlier call.
    """

    estimator: LightweightCoreset
    state = CoresetState()
    n_clusters = 1

    def __init__(self, estimator: LightweightCoreset, dataset: Dataset, *, resume: bool) -> None:
        super().__init__(estimator, None, dataset, resume=resume)
        self.callbacks = all_callbacks(estimator)

    def prepare(self) -> None:
        found, d = self.checkpoints.found, self.dataset.n_features
        if found is not None:
            shapes = {
                name.removeprefix(_STATE): values.shape
                for name, values in found.document.arrays.items()
                if name.startswith(_STATE)
            }
            self.state = self.resumed(CoresetState, coreset_shapes(shapes, d)) or self.state

    def footprint(self) -> Footprint:
        return coreset_footprint(self.dataset, self.estimator.size)

    def draw(self) -> Coreset:
        """Return the coreset."""
        drawn = self.state.coreset(self.dataset.n_features)
        if drawn is not None:
            return drawn
        if not self.resumes:
            self._keep(self.state)
        with ExitStack() as stack:
            self.rows = rows = ScaledPlacement(self.placed(stack))
            self.keep_totals(rows)
            self.recall(rows)
            found = draw_coreset(
                rows,
                self.estimator.size,
                self.seed,
                moments=self.state.moments,
                measured=lambda moments: self._keep(CoresetState(moments)),
            )
            self._add(self.took())
        self.rows = None
        whole = self.estimator.size >= self.dataset.n_rows  # the rows themselves are the coreset
        kept = None if whole else RowsCheckpoint.of(found.rows)
        if kept is not None:
            drawn_rows = CoresetCheckpoint(kept, found.weights, found.indices)
            self._keep(CoresetState(found.moments, drawn=drawn_rows))
        return found

    def _keep(self, state: CoresetState) -> None:
        self.state = state
        self.keep(lambda: state, now=True, counts=False)


def coreset_footprint(dataset: Dataset, size: int) -> Footprint:
    """Return the memory of drawing a coreset: tasks hold the rows that they draw, which are joined once."""
    drawn = 2 * min(size, dataset.n_rows) * (_row_bytes(dataset) + 48)
    return Footprint(thread_bytes=drawn, keeps_rows=False)


def _row_bytes(dataset: Dataset) -> int:
    return dataset.bytes_of((0, dataset.n_rows)) // max(1, dataset.n_rows)


CORESET_PASSES = 2
"""One for the mean of the rows, one for the draws."""


def plan_fit(dataset: Dataset, parameters: Mapping[str, Any]) -> Plan:
    """Return the cost of a fit with `parameters` on `dataset`, without passes over the coreset."""
    k, size = int(parameters["n_clusters"]), min(int(parameters["coreset_size"]), dataset.n_rows)
    check_enough_rows(dataset, k)
    products = 2.0 * size * dataset.n_features * k
    return Plan(
        seeding=method_for(parameters["init"], in_memory=True),
        passes_seeding=0,
        restarts=1,
        passes_at_most=CORESET_PASSES,
        footprint=coreset_footprint(dataset, size),
        flop=pass_flop(dataset, 1),
        commit_bytes=coreset_bytes(dataset, size) + centres_bytes(dataset, k),
        travel=coreset_travel(dataset, size),
        kernel="scan",
        afterwards=DriverWork(
            "nearest", size, dataset.n_features, products, int(parameters.get("max_iter", 1))
        ),
    )


def coreset_travel(dataset: Dataset, size: int) -> PassTraffic:
    """Return the bytes that the passes of a coreset send: a point, sums of features, the drawn rows."""
    d, drawn = dataset.n_features, size * (_row_bytes(dataset) + 48)
    return PassTraffic(sent=8 * d, returned=16 * d, drawn=drawn)


def coreset_bytes(dataset: Dataset, size: int) -> int:
    """Return the bytes of a commit of a coreset: its rows as they are stored, weights and indices."""
    if size >= dataset.n_rows:
        return 0  # the rows themselves
    return size * (_row_bytes(dataset) + 16)


def _save(
    coreset: Dataset, url: str, provenance: Mapping[str, Any], *indices: np.ndarray, **options: Any
) -> None:
    refuse_replacing(coreset, url=locate(url, options["storage_options"]))
    rows, weights = rows_and_weights(coreset)
    write_weighted(url, rows, weights, *indices, facts={"coreset": provenance}, **options)


class MergedCoreset(ArrayDataset):
    """Weighted rows in memory, dense or CSR; see `daskcluster.merge_coresets`."""

    parts: tuple[Mapping[str, Any], ...] = ()
    seed: int | None = None

    def provenance(self) -> dict[str, Any]:
        """Return the provenance of the coreset as plain JSON values: that of its ``parts``."""
        rows, weights = rows_and_weights(self)
        return {
            "kind": "merged",
            "n_rows": sum(int(part.get("n_rows", part["size"])) for part in self.parts),
            "total_weight": math.fsum(float(part["total_weight"]) for part in self.parts),
            "size": len(rows),
            "weight": float(weights.sum()),
            "seed": self.seed,
            "versions": created_with(),
            "parts": [dict(part) for part in self.parts],
        }

    def save(
        self, url: str, *, overwrite: bool = False, storage_options: dict[str, Any] | None = None
    ) -> None:
        """Write the coreset to `url`, as `LightweightCoreset.save` does (without ``indices``).

        Raises
        ------
        OutputExistsError
            There is something at `url` and `overwrite` is False.
        """
        options = {"overwrite": overwrite, "storage_options": storage_options}
        _save(self, url, self.provenance(), **options)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "parts": self.parts, "seed": self.seed}


def part_provenance(dataset: Dataset) -> dict[str, Any]:
    """Return the provenance of one part; without one, its size and its weight."""
    if isinstance(dataset, MergedCoreset):
        return dataset.provenance()
    stored = stored_attributes(dataset).get("coreset")
    if isinstance(stored, Mapping) and {"size", "total_weight"} <= set(stored):
        return dict(stored)
    rows, weights = rows_and_weights(dataset)
    return {"source": source_of(dataset), "size": len(rows), "total_weight": float(weights.sum())}


def rows_and_weights(dataset: Any) -> tuple[Rows, np.ndarray]:
    """Return all rows of a dataset, dense or CSR, and their weights (1 if it has none)."""
    chunk = dataset.load((0, dataset.n_rows))
    return chunk.rows, chunk.masses


def source_of(dataset: Any) -> str:
    """Return the source of rows, for people."""
    return str(getattr(dataset, "source", type(dataset).__name__))


@varies_with(order=DRAWN)
@dataclass(eq=False, repr=False)
class LightweightCoreset(EngineMixin):
    """A lightweight coreset (Bachem, Lucic, Krause, KDD 2018): m weighted rows in place of n.

    Rows are drawn independently and with replacement, half by weight and half by squared distance to
    the mean, and weighted such that any weighted sum over the coreset has the sum over all rows as
    its expectation. So it serves every k, and mixtures as well. The draws are the same on any engine,
    for any chunking and any number of workers.

    Parameters
    ----------
    size : int >= 1, default 10000
        m, rows to draw. With at least as many as there are rows, the rows themselves are the coreset.
    random_state : int >= 0, RandomState or Generator, optional
        Seed; the same seed gives the same result to the bit.
    engine : Engine, dask.distributed.Client, "local" or address, optional
        Where to run. None: the current Dask client if it can read the rows, else threads of this
        process.
    callbacks : sequence of callables, default ()
        Called with the events of `daskcluster.events`.
    checkpoint : str or path, optional
        Folder or URL under which the state of the draw is stored, for ``fit(..., resume=True)`` to
        resume a killed one: at its beginning, between the passes and at the end. A commit takes what was
        found so far, at the most the bytes of the coreset; the last two stay.

    Attributes
    ----------
    coreset_ : Dataset
        The rows, in the dtype of the source, with their weights: any estimator takes it. A row that
        was drawn twice is there twice.
    indices_ : ndarray of shape (m,), int64
        Rows of the source, in the order of the draws: the first m' of them are a coreset of that size,
        once their weights are multiplied by m / m'.
    mean_ : ndarray of shape (d,), float64
        Weighted mean of the source.
    total_weight_, spread_ : float
        Weight of the source (number of rows, where they have no weights), and the weighted sum
        of squared distances to the mean.
    n_rows_, passes_, bytes_read_, seed_ : int
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Notes
    -----
    Cost: two passes, one distance a row in each. Memory: two copies of the coreset, and what any pass
    takes; no state for rows.

    With probability 1 - delta a coreset of O((d k log k + log 1/delta) / eps^2) rows has the cost of any
    k centres up to eps / 2 of that cost plus eps / 2 of the spread about the mean. Whether m is
    enough for data at hand: `daskcluster.coreset_quality`.

    Examples
    --------
    >>> import numpy as np
    >>> import daskcluster as dc
    >>> X = np.random.default_rng(0).normal(size=(5000, 2)).astype(np.float32)
    >>> coreset = dc.LightweightCoreset(size=200, random_state=0).fit(X)
    >>> coreset.coreset_.n_rows, bool((X[coreset.indices_] == coreset.coreset_.to_numpy()).all())
    (200, True)
    >>> bool(0.9 < coreset.coreset_.weights.sum() / 5000 < 1.1)
    True
    """

    _parameters: ClassVar[tuple[Parameter, ...]] = LIGHTWEIGHT

    size: int = 10_000
    _: KW_ONLY
    random_state: Any = None
    engine: Any = None
    callbacks: Any = ()
    checkpoint: Any = None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, resume: bool = False
    ) -> Self:
        """Draw the coreset of `X`.

        Parameters
        ----------
        X : array-like of shape (n, d), dask array or frame, zarr.Array, Dataset, or URL
        y : ignored
        sample_weight : array-like of shape (n,), optional
            Not together with a dataset that has weights of its own.
        resume : bool, default False
            Resume from the last state under `checkpoint`, to the same bits as if the draw had never been
            interrupted. Without one it begins at its beginning.

        Returns
        -------
        self

        Raises
        ------
        CheckpointError
            What is under `checkpoint` is of other data or parameters, or damaged.
        InvalidParameterError, InvalidDataError, MemoryLimitError
        """
        self.check_parameters()
        dataset = fit_dataset(self, X, sample_weight)
        return self.draw(dataset, resume=resume)

    def draw(self, dataset: Dataset, *, resume: bool = False) -> Self:
        """Draw the coreset of a dataset; see `fit`.

        Parameters
        ----------
        dataset : Dataset
            Normalized rows are measured at length one; drawn rows stay as they are.
        resume : bool, default False
            The same as in `fit`.
        """
        began = time.perf_counter()
        draw = CoresetDraw(self, dataset, resume=resume)
        found = draw.draw()
        self.seed_ = draw.seed
        drawn: Any = open_source(found.rows, weights=found.weights)
        same = ("feature_names", "decoded", "missing", "scaling")
        self.coreset_ = drawn.with_facts(
            read_from=stored_at(dataset), **{name: getattr(dataset, name, None) for name in same}
        )
        self.indices_ = found.indices
        self.mean_ = found.moments.mean
        self.total_weight_ = found.moments.weight
        self.spread_ = found.moments.spread
        self.n_rows_ = dataset.n_rows
        self.passes_, self.bytes_read_ = draw.passes, draw.bytes_read
        self._source = source_of(dataset)
        seconds, n_drawn = time.perf_counter() - began, self.coreset_.n_rows
        text = f"coreset of {n_drawn:,} rows for {self.n_rows_:,}: {self.passes_} passes, {seconds:.3g} s"
        facts = {"size": n_drawn, "passes": self.passes_, "seconds": seconds}
        publish(self.callbacks, Notice(text, facts))
        return self

    def save(
        self, url: str, *, overwrite: bool = False, storage_options: dict[str, Any] | None = None
    ) -> None:
        """Write the coreset to `url`: a Zarr group of ``X``, ``weights`` and ``indices``, whole or absent.

        `daskcluster.open_dataset` and every estimator take the URL, and find the weights by themselves.
        The group's attributes say what it was drawn from: source, rows, weight, seed, versions.

        Raises
        ------
        OutputExistsError
            There is something at `url` and `overwrite` is False.
        """
        check_is_fitted(self)
        options = {"overwrite": overwrite, "storage_options": storage_options}
        _save(self.coreset_, url, self.provenance(), self.indices_, **options)

    def provenance(self) -> dict[str, Any]:
        """Return what the coreset was drawn from and how, as plain JSON values."""
        check_is_fitted(self)
        return {
            "kind": "lightweight",
            "source": self._source,
            "n_rows": self.n_rows_,
            "total_weight": self.total_weight_,
            "size": self.coreset_.n_rows,
            "seed": self.seed_,
            "versions": created_with(),
        }


@varies_with(order=DRAWN)
def lightweight_coreset(
    X: Any, size: int, random_state: Any = None, sample_weight: Any = None, engine: Any = None
) -> Dataset:
    """Draw a lightweight coreset of rows; see `daskcluster.LightweightCoreset`.

    Parameters
    ----------
    X : anything `open_dataset` takes, of shape (n, d)
    size : int
    random_state : int, RandomState or Generator, optional
    sample_weight : array-like of shape (n,), optional
    engine : Engine, dask.distributed.Client, "local" or address, optional

    Returns
    -------
    Dataset
        `size` rows with weights, in memory.

    Notes
    -----
    Cost: two passes.

    Examples
    --------
    >>> import numpy as np
    >>> import daskcluster as dc
    >>> X = np.random.default_rng(0).normal(size=(5000, 2))
    >>> few = dc.lightweight_coreset(X, 500, random_state=0)
    >>> dc.KMeans(3, random_state=0).fit(few).cluster_centers_.shape
    (3, 2)
    """
    estimator = LightweightCoreset(size, random_state=random_state, engine=engine)
    return estimator.fit(X, sample_weight=sample_weight).coreset_


@varies_with(order=DRAWN)
def merge_coresets(
    *coresets: Any, size: int | None = None, random_state: Any = None, engine: Any = None
) -> MergedCoreset:
    """Return one coreset in place of several of disjoint parts.

    Parameters
    ----------
    *coresets : Dataset, LightweightCoreset, or URL of a saved one
        Coresets of different rows: of the same rows they would count twice.
    size : int, optional
        Draw so many rows from the union, if it has more. Expectations stay what they are, but each
        level of such reductions adds its own error.
    random_state : int, RandomState or Generator, optional
        For the draws.
    engine : Engine, dask.distributed.Client, "local" or address, optional

    Returns
    -------
    MergedCoreset
        A dataset with weights, in memory. ``save(url)`` writes it as `LightweightCoreset.save` does,
        ``provenance()`` says what it was made of: the provenance of all parts is in it.

    Raises
    ------
    InvalidParameterError
        None given, or different numbers of features.

    Notes
    -----
    Cost: all coresets in memory; with `size` two passes over them.

    Examples
    --------
    >>> import numpy as np
    >>> import daskcluster as dc
    >>> X = np.random.default_rng(0).normal(size=(6000, 2))
    >>> halves = [dc.lightweight_coreset(part, 300, random_state=0) for part in (X[:3000], X[3000:])]
    >>> dc.merge_coresets(*halves).n_rows, dc.merge_coresets(*halves, size=200, random_state=0).n_rows
    (600, 200)
    >>> dc.merge_coresets(*halves).save("memory://merged-coreset", overwrite=True)
    >>> dc.open_dataset("memory://merged-coreset").n_rows
    600
    """
    if not coresets:
        raise InvalidParameterError("no coreset was given; give at least one to merge.")
    parts = [dataset_of(coreset) for coreset in coresets]
    if any(getattr(part, "scaling", None) is not None for part in parts):
        raise InvalidParameterError(
            "a coreset of scaled rows cannot be merged: others may be on other scales; merge coresets of "
            "rows as they are, and fit on the result of dc.open_dataset(merged, scale=...)."
        )
    names = getattr(parts[0], "feature_names", None)
    parts = [
        FeatureSpec(part.n_features, names, owner="the first coreset").align(part) for part in parts
    ]
    accounts = [
        given.provenance() if isinstance(given, LightweightCoreset) else part_provenance(part)
        for given, part in zip(coresets, parts, strict=True)
    ]
    read_from = tuple(place for part in parts for place in stored_at(part))
    rows, weights = united([rows_and_weights(part) for part in parts])
    seed = None
    if size is not None and size < len(rows):
        union = open_source(rows, weights=weights)
        drawn = LightweightCoreset(size, random_state=random_state, engine=engine).draw(union)
        (rows, weights), seed = rows_and_weights(drawn.coreset_), drawn.seed_
    weighted = {"own_weights": array_weights(weights, len(rows)), "read_from": read_from}
    return MergedCoreset(rows).with_facts(parts=tuple(accounts), seed=seed, **weighted)


def dataset_of(coreset: Any) -> Dataset:
    """Return the dataset of a coreset that a caller gave: fitted estimator, dataset or URL."""
    if isinstance(coreset, LightweightCoreset):
        check_is_fitted(coreset)
        return coreset.coreset_
    return open_source(coreset)


def check_coreset_size(size: int, unit: str, n_clusters: int) -> None:
    """Refuse a coreset of fewer rows than clusters; `unit` is the name of a cluster in the error."""
    if size < n_clusters:
        raise InvalidParameterError(
            f"coreset_size={size} should be >= n_{unit}s={n_clusters}; a few hundred rows for each {unit} "
            "are a good start."
        )
