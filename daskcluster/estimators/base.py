"""Base classes of the estimators: predict, transform, score, saving and pickling."""

from __future__ import annotations

import copy
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    ClusterMixin,
    TransformerMixin,
)
from sklearn.utils.validation import check_is_fitted

from daskcluster.chunk import for_rows
from daskcluster.chunkwise.assign import (
    RowParams,
    distance_rows,
    label_rows,
    nearest_dtype,
    nearest_output,
    nearest_rows,
)
from daskcluster.chunkwise.feature_scaling import FeatureScaling, undone
from daskcluster.chunkwise.pruned import FixedSearch
from daskcluster.engine.choose import choose_engine
from daskcluster.engine.memory import ONE_PASS
from daskcluster.engine.scaled import ScaledPlacement, score_rows
from daskcluster.errors import InvalidParameterError
from daskcluster.estimators.cells import is_xarray, map_cells
from daskcluster.estimators.inputs import fit_dataset, with_features_of
from daskcluster.estimators.labels import Labels, results_of_rows, save_rows
from daskcluster.estimators.lazy import is_dask_frame, map_blocks, map_frame, scaled_blocks
from daskcluster.estimators.reporting import ReportMixin
from daskcluster.models.persist import save_model
from daskcluster.parameters.checks import check_value
from daskcluster.parameters.parameter import Parameter
from daskcluster.typing import Dataset


class OnScale:
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


BY_REFERENCE = ("engine", "callbacks")
"""Parameters that are not plain values."""


class SharesEngine(BaseEstimator):
    """Base of estimators with an ``engine``, and possibly ``callbacks``.

    A class declares its parameters in ``_parameters``, in the order of its constructor.
    """

    _parameters: ClassVar[tuple[Parameter, ...]] = ()

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


class ClusterEstimator(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, ReportMixin, SharesEngine
):
    """Base of estimators that learn centres.

    Subclasses have ``fit``, ``transform`` and ``to_model``, and learn ``labels_``, ``cluster_sizes_``,
    ``cluster_weights_`` and ``cluster_costs_``.
    """

    def fit_transform(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Fit, and return the distance of every row to every centre; see `transform`."""
        return self.fit(X, sample_weight=sample_weight).transform(X)

    def fit_predict(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Fit, and return the label of every row, as `predict` does."""
        labels = self.fit(X, sample_weight=sample_weight).labels_
        if is_xarray(X):
            return self.predict(X)
        return np.asarray(labels) if isinstance(labels, Labels) else labels

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        if isinstance(state.get("labels_"), Labels):
            del state["labels_"]
        return state

    def summary(self) -> dict[str, np.ndarray]:
        """Return ``size``, ``weight`` and ``cost`` of every cluster, as found by the fit."""
        check_is_fitted(self)
        return {
            "size": self.cluster_sizes_.copy(),
            "weight": self.cluster_weights_.copy(),
            "cost": self.cluster_costs_.copy(),
        }

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


class CentreEstimator(ClusterEstimator):
    """Base of estimators whose model is a set of centres.

    Subclasses have the parameters ``engine``, ``callbacks`` and ``metric``, and learn ``cluster_centers_``.
    Rows are compared with ``_centres``, the same centres on the scale of the fit.
    """

    engine: Any
    callbacks: Any
    metric: str
    scaling_: FeatureScaling | None = None
    fits_partial: ClassVar[bool] = False
    """Whether rows opened with ``missing="partial"`` can be fitted."""
    _label_parents: np.ndarray | None = None
    """Numbers to return in place of those of the clusters; see `RowParams`."""
    _search: FixedSearch | None = None
    cluster_centers_: np.ndarray
    _centres = OnScale("cluster_centers_")

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
        return_distance : bool
            Also return Euclidean distances.
        output : str, optional
            URL to which labels are streamed chunk by chunk; whole or absent. A Zarr array, or a group of
            ``label`` and ``distance``; a file with the ids of the rows if it ends in .parquet or .csv, of
            labels alone if it ends in .npy.
        overwrite : bool
            Replace an existing output.
        storage_options : dict, optional
            Options of the output's file system.
        resume : bool
            Resume an interrupted call that wrote `output`: finished chunks are not computed again. Finished
            chunks of this call are kept if it is interrupted, too.

        Returns
        -------
        labels : ndarray of int32, shape (n,) or (n, n_nearest)
            For a dask array a lazy one with its row chunks, for a dask DataFrame a lazy Series with its
            partitions and index, for a DataArray one of its cells, with -1 where values are missing; the
            output's URL with `output`.
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
        most = self._checked_most(n_nearest, return_distance)
        if output is not None:
            dataset = fit_dataset(self, X, None, reset=False)
            found = nearest_output(self._centres.dtype, n_nearest, return_distance)
            save_rows(
                dataset,
                choose_engine(self.engine, dataset),
                self._row_params(dataset, max(1, most)),
                output,
                overwrite=overwrite,
                storage_options=storage_options,
                resume=resume,
                **found,
            )
            return output
        if not most:
            return self._map(X, label_rows, np.dtype(np.int32), 0, 1)
        dtype = nearest_dtype(self._centres.dtype)
        found = self._map(X, nearest_rows, dtype, most, most)
        if is_dask_frame(X):
            columns = (
                [c for c in found.columns if c.startswith("label")],
                [c for c in found.columns if c.startswith("distance")],
            )
            labels, distances = (found[c[0] if n_nearest is None else c] for c in columns)
        elif is_xarray(X):
            found = found.isel(value=0) if n_nearest is None else found
            labels, distances = found["label"], found["distance"]
        else:
            found = found[:, 0] if n_nearest is None else found
            labels, distances = found["label"], found["distance"]
        return (labels, distances) if return_distance else labels

    def transform(self, X: Any) -> Any:
        """Return Euclidean distances of every row to every centre, shape (n, k).

        The dtype is that of the centres. For dask input, the result is a lazy dask array.

        Notes
        -----
        Cost: one pass; memory for the n k numbers of the result.
        """
        check_is_fitted(self)
        k = len(self._centres)
        return self._map(X, distance_rows, self._centres.dtype, k, 1)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return minus the weighted sum of squared distances of the rows to their nearest centres.

        Notes
        -----
        Cost: one pass.
        """
        check_is_fitted(self)
        dataset = fit_dataset(self, X, sample_weight, reset=False)
        engine = choose_engine(self.engine, dataset)
        with engine.place(dataset, footprint=ONE_PASS) as placement:
            rows = ScaledPlacement(placement)
            params = self._row_params(dataset)
            found = score_rows(rows, params.centres, search=params.search)
        return -found.inertia

    def _map(self, X: Any, fn: Any, dtype: np.dtype[Any], width: int, most: int) -> Any:
        X = with_features_of(self, X)
        if is_xarray(X):
            return map_cells(X, self._map, getattr(self, "scaling_", None), fn, dtype, width, most)
        if hasattr(X, "__dask_graph__"):
            self._check_lazy_features(X)
            if is_dask_frame(X):
                params = self._of_centres(self._centres_for(X), most)
                cosine = self.metric == "cosine"
                return map_frame(
                    X, fn, params, dtype, width, normalize=cosine, scaling=self.scaling_
                )
            if self.scaling_ is not None:
                X = scaled_blocks(X, self.scaling_)
            params = self._of_centres(self._centres_for(X), most)
            return map_blocks(X, fn, params, dtype, width, normalize=self.metric == "cosine")
        dataset = fit_dataset(self, X, None, reset=False)
        params = self._row_params(dataset, most)
        with choose_engine(self.engine, dataset).place(dataset, footprint=ONE_PASS) as placement:
            return results_of_rows(placement, fn, params, dtype, width)

    def _checked_most(self, n_nearest: int | None, return_distance: bool) -> int:
        """Return the number of nearest centres to find; 0 if only labels are needed."""
        k = len(self._centres)
        if n_nearest is None:
            return 1 if return_distance else 0
        if not 1 <= n_nearest <= k:
            raise InvalidParameterError(
                f"n_nearest={n_nearest} should be in [1, {k}], the number of centres."
            )
        return int(n_nearest)

    def _check_lazy_features(self, X: Any) -> None:
        # Imported here, since only callers with a dask collection have imported dask.
        from daskcluster.data.dask_array import rows_of

        given = len(X.columns) if hasattr(X, "columns") else rows_of(X).shape[1]
        expected = self._centres.shape[1]
        if given != expected:
            raise InvalidParameterError(
                f"X has {given} features, but {type(self).__name__} is expecting {expected} features "
                "as input; give it rows with the columns it was fitted on."
            )

    def _row_params(self, dataset: Dataset, most: int = 1) -> RowParams:
        return self._of_centres(for_rows(self._centres, dataset.dtype), most)

    def _of_centres(self, centres: np.ndarray, most: int) -> RowParams:
        return RowParams(centres, most, parents=self._label_parents, search=self._search)

    def _centres_for(self, X: Any) -> np.ndarray:
        # Imported here, since only callers with a dask collection have imported dask.
        from daskcluster.data.dask_array import rows_of

        return for_rows(self._centres, rows_of(X).dtype)

    # -- scikit-learn protocols --------------------------------------------------------------------

    @property
    def _n_features_out(self) -> int:
        return int(self._centres.shape[0])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
