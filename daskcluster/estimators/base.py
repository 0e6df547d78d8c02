"""Base classes of the estimators: predict, transform, score, reports, saving and pickling."""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

import numpy as np
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    ClusterMixin,
    TransformerMixin,
)
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.utils.validation import check_is_fitted

from daskcluster.chunk import for_rows
from daskcluster.chunkwise.assign import (
    RowFunction,
    RowParams,
    ScoreStatistics,
    distance_rows,
    nearest_function,
    prepare_rows,
)
from daskcluster.chunkwise.feature_scaling import FeatureScaling, undone
from daskcluster.chunkwise.pruned import FixedSearch
from daskcluster.data.checks import is_xarray
from daskcluster.data.label_files import mask_of_source, spread
from daskcluster.data.open import open_source
from daskcluster.engine.choose import choose_engine
from daskcluster.engine.engine import Engine
from daskcluster.engine.memory import ONE_PASS
from daskcluster.engine.scaled import EXACT_INTEGERS, ScaledPlacement, score_rows
from daskcluster.errors import InvalidParameterError
from daskcluster.estimators.checkpoints import StoredWork
from daskcluster.estimators.examples import MOST_RANKED, examine_rows
from daskcluster.estimators.inputs import (
    features_of,
    fit_dataset,
    is_dask_frame,
    with_features_of,
)
from daskcluster.estimators.rows import (
    FunctionFor,
    Labels,
    map_cells,
    map_lazily,
    map_rows,
    of_complete_rows,
    save_rows,
)
from daskcluster.events import Callback
from daskcluster.fingerprint import fingerprint
from daskcluster.models.fitted import FittedModel, created_with, save_model
from daskcluster.parameters.checks import check_value
from daskcluster.parameters.parameter import Parameter
from daskcluster.storage.pass_totals import PassTotals
from daskcluster.typing import Dataset

if TYPE_CHECKING:
    from daskcluster.reports.contents import Clusters, Report


class ScaledAttribute:
    """Descriptor of centres on the scale of the fit; another attribute has them in the units of the data.

    The other attribute is a plain one, as in scikit-learn, since wrappers copy ``vars()``. Setting either
    of them changes both.

    Parameters
    ----------
    shown : str
        Name of the attribute in the units of the data. The owner must have ``scaling_`` before either is
        set.
    """

    def __init__(self, shown: str) -> None:
        self._shown = shown

    def __get__(self, owner: Any, kind: type | None = None) -> Any:
        if owner is None:
            return self
        centres = getattr(owner, self._shown)
        if owner.scaling_ is None:
            return centres
        shown, scaled = vars(owner).get("_scaled", (None, None))
        # Unscaling and scaling again would round twice.
        return scaled if shown is centres else np.asarray(owner.scaling_.apply(centres))

    def __set__(self, owner: Any, centres: np.ndarray) -> None:
        shown = undone(owner.scaling_, centres)
        setattr(owner, self._shown, shown)
        if owner.scaling_ is not None:
            vars(owner)["_scaled"] = shown, centres


E = TypeVar("E", bound=BaseEstimator)


def in_declared_order(cls: type[E]) -> type[E]:
    """Give an estimator a signature that has the order of ``_parameters``.

    So the fields that it shares with others may be those of a base.
    """
    given = inspect.signature(cls.__init__).parameters
    order = [given[each.name] for each in vars(cls)["_parameters"]]
    cls.__signature__ = inspect.Signature(order)
    return cls


BY_REFERENCE = ("engine", "callbacks")
"""Parameters that are not plain values."""


class EngineMixin(BaseEstimator):
    """Base of estimators with an ``engine``, and possibly ``callbacks``.

    A class declares its parameters in ``_parameters``, in the order of its constructor.
    """

    _parameters: ClassVar[tuple[Parameter, ...]] = ()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.__signature__ = None  # that of a base, if it has one

    def check_parameters(self) -> None:
        """Raise for parameters that `fit` would refuse for any rows.

        Raises
        ------
        InvalidParameterError, WrongTypeError
        """
        for parameter in self._parameters:
            check_value(type(self).__name__, parameter, getattr(self, parameter.name))

    def __sklearn_clone__(self) -> Self:
        values = self.get_params(deep=False)
        kept = {name: values.pop(name) for name in BY_REFERENCE if name in values}
        return type(self)(**copy.deepcopy(values), **kept)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        twin = self.__class__.__new__(self.__class__)
        memo[id(self)] = twin
        for name, value in vars(self).items():
            setattr(twin, name, value if name in BY_REFERENCE else copy.deepcopy(value, memo))
        return twin

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        state["engine"] = None
        if "callbacks" in state:
            state["callbacks"] = ()
        return state


@dataclass(eq=False, repr=False, kw_only=True)
class LoopParameters:
    """The parameters of estimators that fit in a loop: randomness, what a loop reports, and its limits."""

    random_state: Any = None
    engine: Any = None
    callbacks: Any = ()
    verbose: int = 0
    max_time: float | None = None
    validation: Any = None
    checkpoint: Any = None
    checkpoint_every: int = 10


class RowsEstimator(ClusterMixin, EngineMixin):
    """Base of estimators that have results for rows.

    Subclasses have ``fit``, `label_function`, `row_params` and `to_model`. Each result of rows is a
    `RowFunction`, which `map_rows` maps over rows of any kind; jobs map the same functions.
    """

    engine: Any
    scaling_: FeatureScaling | None = None

    def label_function(self, dtype: Any) -> RowFunction:
        """Return the function that labels rows of `dtype`."""
        raise NotImplementedError

    def row_params(self, dtype: Any) -> RowParams:
        """Return the centres, points in the space of the rows, as rows of `dtype` meet them."""
        raise NotImplementedError

    def cluster_scores(
        self,
        dataset: Dataset,
        callbacks: Sequence[Callback] = (),
        totals: PassTotals | None = None,
    ) -> ScoreStatistics:
        """Return size, weight and cost of every cluster on rows with the features of the fit. One pass."""
        params, engine = self.row_params(dataset.dtype), choose_engine(self.engine, dataset)
        with engine.place(dataset, callbacks=callbacks, footprint=ONE_PASS) as placement:
            placement.totals = totals
            return score_rows(ScaledPlacement(placement), params.centres, search=params.search)

    def scores(
        self,
        dataset: Dataset,
        callbacks: Sequence[Callback] = (),
        totals: PassTotals | None = None,
    ) -> tuple[float, float]:
        """Return inertia and score (minus the inertia, as scikit-learn has it). One pass."""
        inertia = self.cluster_scores(dataset, callbacks, totals).inertia
        return inertia, -inertia

    @contextmanager
    def storing_score(
        self, dataset: Dataset, checkpoint: Any, **given: Any
    ) -> Iterator[StoredWork | None]:
        """Yield where passes of a score keep their totals, which go at the end of the block.

        Parameters
        ----------
        dataset : Dataset
        checkpoint : str, path, Location or None
        **given
            ``resume``, ``callbacks`` and ``seed`` of `StoredWork.begin`, and ``parameters`` of the score.
        """
        # Without a URL, the model need not be looked at.
        facts = dict(given.pop("parameters", {}))
        if checkpoint is not None:
            facts["model"] = fingerprint(self.label_function(dataset.dtype).params)
        with StoredWork.begin(checkpoint, "score", facts, dataset, **given) as stored:
            yield stored
            if stored is not None:
                stored.folder.clear()

    def examine(
        self, dataset: Dataset, shown: int, most: int, callbacks: Sequence[Callback] = ()
    ) -> Clusters:
        """Return figures, and the nearest and farthest rows, of every cluster. One pass."""
        params = self.row_params(dataset.dtype)
        return examine_rows(dataset, params, shown, most, self.engine, callbacks)

    def map_rows(
        self,
        X: Any,
        function_for: FunctionFor,
        *,
        output: str | None = None,
        callbacks: Sequence[Callback] = (),
        **writing: Any,
    ) -> Any:
        """Map a function over rows of any kind.

        Parameters
        ----------
        X : anything `predict` takes
        function_for : callable (dtype) -> RowFunction
        output : str, optional
            URL to which the results are written.
        callbacks : sequence of callables, default ()
            Called with the progress of a pass.
        **writing
            Arguments of `daskcluster.estimators.rows.save_rows`.

        Returns
        -------
        ndarray, or a lazy dask array or frame, or DataArray, as `X`; `output` if given
        """
        check_is_fitted(self)
        if output is None and is_xarray(X):
            # A dataset: scikit-learn would warn that its rows have no names.
            here = lambda rows: self.map_rows(open_source(rows), function_for)  # noqa: E731
            return map_cells(with_features_of(self, X), function_for, self.scaling_, here)
        if features_of(self).leaves_out(X):
            function_for = of_complete_rows(function_for)
        if output is None and hasattr(X, "__dask_graph__"):
            return map_lazily(with_features_of(self, X), function_for, self.scaling_)
        dataset = self.known_rows(X)
        function, engine = function_for(dataset.dtype), choose_engine(self.engine, dataset)
        if output is None:
            return map_rows(dataset, function, engine, callbacks)
        save_rows(dataset, function, engine, output, callbacks=callbacks, **writing)
        return output

    def known_rows(self, X: Any, sample_weight: Any = None, *, complete: bool = False) -> Dataset:
        """Return `X` as a dataset with the features of the fit; see `fit_dataset`."""
        check_is_fitted(self)
        return fit_dataset(self, X, sample_weight, reset=False, complete=complete)

    def predict(
        self,
        X: Any,
        *,
        output: str | None = None,
        overwrite: bool = False,
        storage_options: dict[str, Any] | None = None,
        resume: bool = False,
    ) -> Any:
        """Return the cluster of every row: the nearest centre, or the most probable component of a mixture.

        Kernel k-means compares distances in the space of the kernel.

        Parameters
        ----------
        X : array-like of shape (n, d), dask array or frame, xarray.DataArray, Dataset, or URL
            With ``kernel="precomputed"``, the matrix (n, n_fit) of K(x, y) for rows y of the fit.
        output, overwrite, storage_options, resume
            See `daskcluster.KMeans.predict`.

        Returns
        -------
        ndarray of int32, shape (n,)
            Lazy, in cells or a URL as of `daskcluster.KMeans.predict`.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            The estimator is not fitted.
        OutputExistsError
            `output` exists and `overwrite` is False.

        Notes
        -----
        Cost: one pass; for kernels with one Gram value per row and support.
        """
        return self.map_rows(
            X,
            self.label_function,
            output=output,
            overwrite=overwrite,
            storage_options=storage_options,
            resume=resume,
        )

    def fit_predict(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Fit, and return the label of every row, as `predict` does."""
        labels = self.fit(X, sample_weight=sample_weight).labels_
        if is_xarray(X):
            return self.predict(X)
        return np.asarray(labels) if isinstance(labels, Labels) else labels

    def learn_labels(
        self,
        dataset: Dataset,
        engine: Engine,
        computed: np.ndarray | None = None,
        *,
        in_memory: bool = True,
    ) -> None:
        """Set ``labels_``: an array for rows that were given in memory, else a handle or a lazy array.

        An array that is not `computed` is computed on first access.
        """
        self.__dict__.pop("labels_", None)
        self._later: Labels | None = None
        if in_memory and computed is not None:
            self.labels_: Any = spread(mask_of_source(dataset), computed)
            return
        function = self.label_function(dataset.dtype)
        labels = Labels(dataset, function, engine, computed=computed)
        if in_memory:
            self._later = labels
        else:
            self.labels_ = labels.like_rows()

    def __getattr__(self, name: str) -> Any:
        if name != "labels_":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        later = vars(self).get("_later")
        if later is None:
            raise AttributeError(
                f"this {type(self).__name__} has no labels_: it was not fitted, or it was loaded, or "
                "pickled without its rows, which no other process can read; use predict(X)."
            )
        self.labels_ = np.asarray(later)
        return self.labels_

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        for name in ("_later", "coreset_"):  # which hold rows
            state.pop(name, None)
        labels = state.get("labels_")
        if isinstance(labels, Labels) and not labels.travels:
            del state["labels_"]
        return state

    def save(
        self, url: str, *, overwrite: bool = False, storage_options: dict[str, Any] | None = None
    ) -> None:
        """Write the model to `url` (Zarr and JSON, no pickle): the centres and a few kB.

        Kernel k-means saves support rows and their coefficients as its centres.

        Raises
        ------
        OutputExistsError
            `url` exists, and `overwrite` is False or it is not a model.

        Notes
        -----
        Cost: writes the bytes of the centres, of some axes where rows are wide, and a few kB; no pass.
        """
        check_is_fitted(self)
        save_model(self.to_model(), url, overwrite=overwrite, storage_options=storage_options)

    # -- reports -------------------------------------------------------------------------------

    def to_model(self) -> Any:
        """Return the fitted model, without the data."""
        raise NotImplementedError

    def report(self, X: Any = None, sample_weight: Any = None) -> Report:
        """Return a report: in a notebook a page, with ``report(X).save("report.html")`` a file.

        Without rows, it shows what the fit knows: what sets each cluster apart, sizes, centres and
        convergence. With rows, usually those of the fit, it also shows how well the clusters are separated,
        how stable they are over seeds, and example rows.

        Parameters
        ----------
        X : anything `fit` takes, optional
        sample_weight : array-like of shape (n,), optional

        Returns
        -------
        Report
            Its ``save(path)`` writes .html, .png, .md or .json.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            The estimator is not fitted.

        Notes
        -----
        Cost: one pass over `X`, with k + 1 distances per row; then a few seconds in this process for a
        sample of at most 10,000 rows. No pass without `X`. Charts need matplotlib.
        """
        from daskcluster.reports.contents import MOST_EXAMPLES, Report

        check_is_fitted(self)
        data = None
        if X is not None:
            dataset = self.known_rows(X, sample_weight, complete=True)
            data = self.examine(dataset, MOST_EXAMPLES, MOST_RANKED)
        return Report(self.to_model(), type(self).__name__, data=data)

    @property
    def _repr_html_(self) -> Any:
        """The page that a notebook shows: a report once fitted, before that scikit-learn's diagram."""
        diagram = super()._repr_html_  # raises if scikit-learn is set to display text
        try:
            return self.report()._repr_html_
        except NotFittedError:
            return diagram

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**kwargs)
        if "text/html" in bundle:
            bundle["text/html"] = self._repr_html_()
        return bundle


class ClusterEstimator(ClassNamePrefixFeaturesOutMixin, TransformerMixin, RowsEstimator):
    """Base of estimators that learn centres.

    Subclasses have ``transform``, and learn ``labels_``, ``cluster_sizes_``, ``cluster_weights_`` and
    ``cluster_costs_``.
    """

    _centres: Any

    def fit_transform(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Fit, and return the distance of every row to every centre; see `transform`."""
        return self.fit(X, sample_weight=sample_weight).transform(X)

    def learn_fit(self, fit: Any, result: Any, found: ScoreStatistics, why: str = "") -> None:
        """Set what was learnt besides centres and labels; warn of empty clusters, saying `why`."""
        self.n_iter_, self.stop_reason_ = result.n_iter, str(result.stop_reason)
        self.history_, self.seeding_ = result.history, fit.method
        self.passes_, self.bytes_read_, self.n_rows_ = (
            fit.passes,
            fit.bytes_read,
            fit.dataset.n_rows,
        )
        self.inertia_, self.cluster_sizes_ = found.inertia, found.sizes
        self.cluster_weights_ = found.cluster_weights(weighted=fit.dataset.weights is not None)
        self.cluster_costs_ = found.costs.sum(axis=0)
        distinct, expected = int((found.sizes > 0).sum()), len(found.sizes)
        if distinct < expected:
            text = (
                f"Number of distinct clusters ({distinct}) found smaller than n_clusters ({expected}). "
                f"Possibly due to duplicate points in X{why}."
            )
            # Centres of a kernel's space have no coordinates to tell them apart by.
            centres = np.asarray(getattr(self, "cluster_centers_", ()))
            if np.abs(centres).max(initial=0.0) >= EXACT_INTEGERS:
                text += " Or float64 cannot tell them apart: above 2**53 it rounds integers."
            if len(np.unique(centres, axis=0)) == expected:
                text = (
                    f"{expected - distinct} of {expected} clusters are empty: no row is nearest to their "
                    f"centres{why}. Fit fewer clusters, or from another init or random_state."
                )
            warnings.warn(text, ConvergenceWarning, stacklevel=4)

    def score(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        checkpoint: Any = None,
        resume: bool = False,
    ) -> float:
        """Return minus the weighted sum of squared distances of the rows to their nearest centres.

        Parameters
        ----------
        X : anything `predict` takes
        y : ignored
        sample_weight : array-like of shape (n,), optional
        checkpoint : str or path, optional
            Folder or URL at which a long pass over stored rows keeps its totals about every minute, until
            it is done.
        resume : bool, default False
            Read only the rows that an interrupted call with this `checkpoint` has not read; the result has
            the same bits. Other rows, or another model, are refused.

        Raises
        ------
        CheckpointError
            The totals at `checkpoint` are of other rows or another model.

        Notes
        -----
        Cost: one pass.
        """
        rows = self.known_rows(X, sample_weight, complete=True)
        with self.storing_score(rows, checkpoint, resume=resume) as stored:
            totals = None if stored is None else stored.totals()
            return -self.cluster_scores(rows, totals=totals).inertia

    def summary(self) -> dict[str, np.ndarray]:
        """Return ``size``, ``weight`` and ``cost`` of every cluster, as found by the fit."""
        check_is_fitted(self)
        return {
            "size": self.cluster_sizes_.copy(),
            "weight": self.cluster_weights_.copy(),
            "cost": self.cluster_costs_.copy(),
        }


class CentreEstimator(ClusterEstimator):
    """Base of estimators whose model is a set of centres.

    Subclasses have the parameters ``engine``, ``callbacks`` and ``metric``, and learn ``cluster_centers_``.
    Rows are compared with ``_centres``, the same centres on the scale of the fit.
    """

    callbacks: Any
    metric: str
    fits_partial: ClassVar[bool] = False
    """Whether rows opened with ``missing="partial"`` can be fitted."""
    _search: FixedSearch | None = None
    cluster_centers_: np.ndarray
    _centres = ScaledAttribute("cluster_centers_")

    # -- results for rows ----------------------------------------------------------------------

    def predict(
        self,
        X: Any,
        *,
        n_nearest: int | None = None,
        return_distance: bool = False,
        output: str | None = None,
        overwrite: bool = False,
        storage_options: dict[str, Any] | None = None,
        resume: bool = False,
    ) -> Any:
        """Return the nearest centre of every row.

        Parameters
        ----------
        X : array-like of shape (n, d), dask array or frame, xarray.DataArray, Dataset, or URL
        n_nearest : int, optional
            Return this many nearest centres instead, nearest first.
        return_distance : bool, default False
            Also return Euclidean distances.
        output : str, optional
            URL to which labels are streamed chunk by chunk; whole or absent. A Zarr array, or a group of
            ``label`` and ``distance``; a file with the ids of the rows if it ends in .parquet or .csv, of
            labels alone if it ends in .npy; of the cells of a grid a map in Zarr, or a GeoTIFF if it ends
            in .tif.
        overwrite : bool, default False
            Replace an existing output.
        storage_options : dict, optional
            Options of the output's file system.
        resume : bool, default False
            Resume an interrupted call that wrote `output`: finished chunks are not computed again. Finished
            chunks of this call are kept if it is interrupted, too.

        Returns
        -------
        labels : ndarray of int32, shape (n,) or (n, n_nearest)
            For a dask array a lazy one with its row chunks, for a dask DataFrame a lazy Series with its
            partitions and index, for a DataArray one of its cells, with -1 where values are missing; the
            output's URL with `output`. Rows that lack a value are -1 if the fit left out such rows
            (``missing="drop"``), and an error otherwise.
        distances : ndarray of the same shape
            Only with `return_distance`.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            The estimator is not fitted.
        OutputExistsError
            `output` exists and `overwrite` is False.

        Notes
        -----
        Cost: one pass.
        """
        check_is_fitted(self)
        return self.predict_level(
            X,
            n_nearest=n_nearest,
            return_distance=return_distance,
            output=output,
            overwrite=overwrite,
            storage_options=storage_options,
            resume=resume,
        )

    def predict_level(
        self,
        X: Any,
        parents: np.ndarray | None = None,
        *,
        n_nearest: int | None = None,
        return_distance: bool = False,
        output: str | None = None,
        **writing: Any,
    ) -> Any:
        """Return what `predict` returns, with `parents` (k,) in place of the clusters, if given."""

        def nearest(dtype: Any) -> RowFunction:
            params = replace(self.row_params(dtype), parents=parents)
            distances = params.centres.dtype if return_distance else None
            cosine = self.metric == "cosine"
            return nearest_function(params, n_nearest, distances=distances, normalize=cosine)

        k = len(self._centres)
        if n_nearest is not None and not 1 <= n_nearest <= k:
            raise InvalidParameterError(
                f"n_nearest={n_nearest} should be in [1, {k}], the number of centres."
            )
        is_plain = n_nearest is None and parents is None and not return_distance
        function_for = self.label_function if is_plain else nearest
        found = self.map_rows(X, function_for, output=output, **writing)
        if output is not None or not return_distance:
            return found
        if is_dask_frame(X):
            both = [[c for c in found.columns if c.startswith(f)] for f in ("label", "distance")]
            return tuple(found[c[0] if n_nearest is None else c] for c in both)
        return found["label"], found["distance"]

    def label_function(self, dtype: Any) -> RowFunction:
        """Return the function that labels rows of `dtype`."""
        return nearest_function(self.row_params(dtype), normalize=self.metric == "cosine")

    def transform(self, X: Any) -> Any:
        """Return Euclidean distances of every row to every centre, shape (n, k).

        The dtype is the wider one of rows and centres, as computed. For dask input, the result is a lazy
        dask array.

        Notes
        -----
        Cost: one pass; memory for the n k numbers of the result.
        """
        check_is_fitted(self)

        def distances(dtype: Any) -> RowFunction:
            params, cosine = self.row_params(dtype), self.metric == "cosine"
            shape: tuple[Any, int] = params.centres.dtype, len(self._centres)
            return RowFunction(distance_rows, params, prepare_rows, *shape, "distances", cosine)

        return self.map_rows(X, distances)

    def row_params(self, dtype: Any) -> RowParams:
        """Return the centres as rows of `dtype` meet them."""
        return RowParams(for_rows(self._centres, dtype), search=self._search)

    # -- scikit-learn protocols --------------------------------------------------------------------

    @property
    def _n_features_out(self) -> int:
        return int(self._centres.shape[0])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


_LEARNT = ("n_iter", "stop_reason", "seeding", "passes", "bytes_read", "n_rows")

_OF_ONE_CALL = ("checkpoint", "checkpoint_every", "validation")
"""Parameters of a single call, which are not stored in the model."""


def provenance(estimator: Any) -> dict[str, Any]:
    """Return the fields of a `FittedModel` other than its centres, from a fitted estimator."""
    names = getattr(estimator, "feature_names_in_", None)
    return {
        **{name: getattr(estimator, f"{name}_") for name in _LEARNT},
        "history": tuple(estimator.history_),
        "parameters": _plain_parameters(estimator),
        "feature_names": None if names is None else tuple(map(str, names)),
        "created_with": created_with(),
        "estimator": registered_name(type(estimator)),
        "scaling": getattr(estimator, "scaling_", None),
        "decoded": getattr(estimator, "_decoded", None),
        "missing": getattr(estimator, "_missing", "error"),
        "search": getattr(estimator, "_search", None),
    }


_FIGURES = {
    "weights": "cluster_weights_",
    "sizes": "cluster_sizes_",
    "costs": "cluster_costs_",
    "inertia": "inertia_",
}
"""Fields of a model of clusters, and the attributes of its estimator that have them."""


def figures(estimator: Any) -> dict[str, Any]:
    """Return the fields of a model that say how large and how costly its clusters are."""
    return {name: getattr(estimator, attribute) for name, attribute in _FIGURES.items()}


def take_figures(estimator: Any, model: Any) -> None:
    """Set the attributes of an estimator that the fields of `figures` hold."""
    for name, attribute in _FIGURES.items():
        setattr(estimator, attribute, getattr(model, name))


def registered_name(estimator: type) -> str:
    """Return the name of `estimator`, or of its nearest base class that declares parameters."""
    declares = (base for base in estimator.__mro__ if vars(base).get("_parameters"))
    return next(declares, estimator).__name__


def from_provenance(kind: type[E], model: FittedModel, **arguments: Any) -> E:
    """Return an estimator of class `kind` with the parameters and fit details of `model`.

    Parameters
    ----------
    kind : type
        Class of the estimator.
    model : FittedModel
    **arguments : object
        Constructor arguments that replace recorded parameters.
    """
    names = kind(**arguments).get_params(deep=False)
    # Engine and checkpoint are never taken from a file: an untrusted file could name a scheduler, which
    # would receive rows and return pickles.
    names = set(names) - {*BY_REFERENCE, *_OF_ONE_CALL}
    plain = {
        name: value
        for name, value in model.parameters.items()
        if name in names and _is_plain(value) and not str(value).startswith("<")
    }
    estimator: Any = kind(**{**plain, **arguments})
    for name in _LEARNT:
        setattr(estimator, f"{name}_", getattr(model, name))
    estimator.history_ = list(model.history)
    estimator.n_features_in_ = model.n_features
    vars(estimator).update(_decoded=model.decoded, _missing=model.missing)
    if model.feature_names is not None:
        estimator.feature_names_in_ = np.asarray(model.feature_names, dtype=object)
    return estimator


def _plain_parameters(estimator: BaseEstimator) -> dict[str, Any]:
    """Return the parameters as plain JSON values; others are replaced by the name of their type."""
    found: dict[str, Any] = {}
    for name, value in estimator.get_params(deep=False).items():
        if name in (*BY_REFERENCE, *_OF_ONE_CALL):
            continue
        if isinstance(value, np.generic):
            value = value.item()
        found[name] = value if _is_plain(value) else f"<{type(value).__name__}>"
    return found


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, str))
