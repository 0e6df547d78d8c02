"""Models, the results of fits: what all share, centres of k-means, and their saved form."""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, Field, dataclass, field, fields
from importlib.metadata import PackageNotFoundError, version
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from daskcluster import __version__
from daskcluster.chunkwise.feature_scaling import FeatureScaling, undone
from daskcluster.chunkwise.pruned import FixedSearch
from daskcluster.data.features import FeatureSpec
from daskcluster.errors import InvalidParameterError, ModelFormatError, OutputExistsError
from daskcluster.events import StopReason
from daskcluster.kernels.quantized import Projection, RowRange
from daskcluster.models.balance import Balance
from daskcluster.parameters.shared import METRICS
from daskcluster.storage.document import (
    Document,
    Form,
    looks_like,
    plain,
    read_count,
    read_mapping,
    read_names,
    read_number,
    read_records,
    read_text,
    read_texts,
    sealed,
    unsealed,
)
from daskcluster.storage.files import file_size
from daskcluster.storage.location import locate
from daskcluster.storage.staging import Staging
from daskcluster.storage.staging import check_free as check_output_free
from daskcluster.storage.zarr_stores import HEAD, MODEL_FORMAT

AXES = "axes"
"""Name of the array of axes in a document."""
_NEARLY = 1e-2
"""The most that axes may lack to be orthonormal, see `daskcluster.kernels.quantized.Slack`."""


def body_of_search(search: FixedSearch) -> dict[str, Any]:
    """Return everything except the axes, as plain JSON values; for a search that pays."""
    found: dict[str, Any] = {"share": search.share, "short": search.short}
    for name in ("features", "heads"):
        rows: RowRange | None = getattr(search, name)
        if rows is not None:
            found[name] = rows._asdict()
    return found


def search_of(
    body: Mapping[str, Any], arrays: Mapping[str, np.ndarray], n_features: int
) -> FixedSearch:
    """Return the search that the entry ``search`` of `body`, and axes, describe.

    Raises
    ------
    ModelFormatError
        They describe none.
    """
    entry, axes = read_mapping(body, "search"), arrays.get(AXES)
    short, heads = entry.get("short"), "heads" in entry
    if not isinstance(short, bool) or heads != (axes is not None):
        raise ModelFormatError("the model's search should have axes and their range, or neither.")
    if axes is not None:
        _check_axes(axes, n_features)
    return FixedSearch(
        read_number(entry, "share"),
        axes,
        _range(read_mapping(entry, "features")),
        _range(read_mapping(entry, "heads")) if heads else None,
        short,
    )


def _range(entry: Mapping[str, Any]) -> RowRange:
    found = RowRange(*(read_number(entry, name) for name in RowRange._fields))
    if not (found.low <= found.high and found.longest >= 0.0 and found.rest >= 0.0):
        raise ModelFormatError(
            f"the range {tuple(found)} of the model's search should not be empty."
        )
    return found


def _check_axes(axes: np.ndarray, n_features: int) -> None:
    if axes.ndim != 2 or len(axes) != n_features or not 1 <= axes.shape[1] <= n_features:
        raise ModelFormatError(
            f"axes of shape {axes.shape} should be of shape ({n_features}, m), with m <= {n_features}."
        )
    if axes.dtype not in (np.float32, np.float64):
        raise ModelFormatError(f"axes of dtype {axes.dtype} should be float32 or float64.")
    with np.errstate(all="ignore"):
        is_near = Projection(axes, axes[:0], np.empty(0)).slack().square <= _NEARLY
    if not is_near:
        raise ModelFormatError("axes should be orthonormal; fit and save the model again.")


@dataclass(frozen=True, eq=False)
class FittedModel:
    """Base of the models. Subclasses add fields; arrays and plain values are saved by their annotations.

    Attributes
    ----------
    centres : ndarray of shape (k, d), float32 or float64
    n_iter : int
        Number of centre updates.
    stop_reason : str
        A value of `daskcluster.events.StopReason`.
    seeding : str
        Method that chose the first centres.
    passes, bytes_read : int
        Passes over the data, and decoded bytes fetched from the store.
    history : tuple of dict
        One record per iteration.
    parameters : dict
        The estimator's parameters that are plain JSON values.
    feature_names : tuple of str, or None
    n_rows : int
        Number of rows of the fit.
    created_with : dict
        Versions of Python and the libraries.
    estimator : str
        Class name of the estimator, as in the catalogue of algorithms.
    scaling : FeatureScaling, optional
        Scale of the features of `centres`; None if they are in the units of the data.
    decoded : bool, optional
        See `daskcluster.data.features.FeatureSpec`.
    missing : {"error", "drop"}
        ``"drop"`` if the fit left out rows that lack a value; rows under the model are treated so, too.
    search : FixedSearch, optional
        The search by bounds that suited the rows. It decides how long the nearest centres take, never which
        they are.

    Raises
    ------
    ModelFormatError
        Centres are not finite floats of shape (k, d), or the number of feature names is wrong.
    """

    kind: ClassVar[str]
    optional_arrays: ClassVar[frozenset[str]] = frozenset()
    if TYPE_CHECKING:

        @property
        def weights(self) -> np.ndarray: ...

    centres: np.ndarray
    _: KW_ONLY
    n_iter: int = 0
    stop_reason: str = ""
    seeding: str = ""
    passes: int = 0
    bytes_read: int = 0
    history: tuple[dict[str, Any], ...] = ()
    parameters: dict[str, Any] = field(default_factory=dict)
    feature_names: tuple[str, ...] | None = None
    n_rows: int = 0
    created_with: dict[str, str] = field(default_factory=dict)
    estimator: str = ""
    scaling: FeatureScaling | None = None
    decoded: bool | None = True
    missing: str = "error"
    search: FixedSearch | None = None

    def __post_init__(self) -> None:
        _check_centres(self.centres)
        names = self.feature_names
        if names is not None and len(names) != self.n_features:
            raise ModelFormatError(
                f"{len(names)} feature names should be as many as the centres' {self.n_features} "
                "features."
            )
        # Most callers pass lists, but a frozen model stores tuples.
        object.__setattr__(self, "history", tuple(self.history))
        object.__setattr__(self, "feature_names", None if names is None else tuple(names))

    @property
    def n_clusters(self) -> int:
        return int(self.centres.shape[0])

    @property
    def n_features(self) -> int:
        return int(self.centres.shape[1])

    @property
    def features(self) -> FeatureSpec:
        """The features that rows must have for this model."""
        return FeatureSpec(
            self.n_features, self.feature_names, self.scaling, self.decoded, self.missing
        )

    @property
    def centres_of_data(self) -> np.ndarray:
        """Centres (k, d) in the units of the data."""
        return undone(self.scaling, self.centres)

    @classmethod
    def array_names(cls) -> frozenset[str]:
        """Return the names of the arrays that every model of this kind has: its fields of arrays."""
        return frozenset(each.name for each in fields(cls) if each.type == "np.ndarray")

    # -- as a document ----------------------------------------------------------------------------

    @classmethod
    def _plain_fields(cls, *, own: bool) -> list[Field[Any]]:
        """Return the fields of plain values: those that only this kind of model has, or the shared ones."""
        shared = {each.name for each in fields(FittedModel)}
        return [
            each
            for each in fields(cls)
            if each.type in _READERS and (each.name not in shared) == own
            if each.name not in _OPTIONAL
        ]

    def facts(self) -> dict[str, Any]:
        """Return the fields specific to this kind of model, for tables."""
        raise NotImplementedError

    def own(self) -> dict[str, Any]:
        """Return the entries of `body` that are specific to this kind of model."""
        return {each.name: getattr(self, each.name) for each in self._plain_fields(own=True)}

    def body(self) -> dict[str, Any]:
        """Return everything except the arrays, as plain JSON values."""
        found = {each.name: getattr(self, each.name) for each in self._plain_fields(own=False)}
        if self.decoded is not None:
            found["decoded"] = self.decoded
        if self.missing != "error":
            found["missing"] = self.missing
        if self.scaling is not None:
            found["scaling"] = self.scaling.plain()
        if self.search is not None:
            found["search"] = body_of_search(self.search)
        return plain({**self.own(), **found})

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays to save, by name."""
        found = {
            each.name: np.asarray(getattr(self, each.name), _DTYPES.get(each.name))
            for each in fields(self)
            if each.type == "np.ndarray"
        }
        axes = None if self.search is None else self.search.axes
        return found if axes is None else found | {AXES: axes}

    @classmethod
    def from_parts(cls, body: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Self:
        """Return the model that `body` and `arrays` describe, or raise `ModelFormatError`."""
        own = {
            each.name: _READERS[str(each.type)](body, each.name)
            for each in cls._plain_fields(own=True)
        }
        return cls(**own, **cls.shared_parts(body, arrays))

    @classmethod
    def shared_parts(
        cls, body: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
    ) -> dict[str, Any]:
        """Return the constructor arguments common to all kinds, and the arrays; for `from_parts`."""
        for name in sorted(cls.array_names()):
            if name not in arrays:
                raise ModelFormatError(f"the model's array {name!r} is missing; save it again.")
        found = {
            each.name: _READERS[str(each.type)](body, each.name)
            for each in cls._plain_fields(own=False)
            if each.name in body or each.name != "estimator"  # which older documents do not name
        }
        found["decoded"] = body["decoded"] is True if "decoded" in body else None
        found["missing"] = "drop" if body.get("missing") == "drop" else "error"
        if "scaling" in body:
            try:
                found["scaling"] = FeatureScaling.of(
                    read_mapping(body, "scaling"), arrays["centres"]
                )
            except InvalidParameterError as error:
                raise ModelFormatError(f"{error} Save the model again.") from error
        if "search" in body:
            found["search"] = search_of(body, arrays, arrays["centres"].shape[-1])
        return {**{name: arrays[name] for name in cls.array_names()}, **found}


def _read_optional_number(body: Mapping[str, Any], name: str) -> float | None:
    return None if body.get(name) is None else read_number(body, name)


_READERS: dict[Any, Callable[[Mapping[str, Any], str], Any]] = {
    "str": read_text,
    "int": read_count,
    "float": read_number,
    "float | None": _read_optional_number,
    "dict[str, Any]": read_mapping,
    "dict[str, str]": read_texts,
    "tuple[str, ...] | None": read_names,
    "tuple[dict[str, Any], ...]": read_records,
}
"""Readers of the plain fields of a model, by their annotations."""
_OPTIONAL = ("decoded", "missing", "scaling", "search")
"""Fields that only some documents have."""
_DTYPES = {"weights": np.float64, "mixing": np.float64, "costs": np.float64, "sizes": np.int64}
"""Dtypes in which arrays are saved that may have others."""


def _check_centres(centres: np.ndarray) -> None:
    if centres.ndim != 2 or centres.shape[0] < 1 or centres.shape[1] < 1:
        raise ModelFormatError(f"centres of shape {centres.shape} should be of shape (k, d).")
    if centres.dtype not in (np.float32, np.float64):
        raise ModelFormatError(f"centres of dtype {centres.dtype} should be float32 or float64.")
    if not np.isfinite(centres).all():
        raise ModelFormatError("centres should be finite; one holds NaN or infinity.")


def check_per_cluster(name: str, values: np.ndarray, n_clusters: int) -> None:
    """Raise if per-cluster figures are not finite and >= 0, or have the wrong shape."""
    if values.shape != (n_clusters,):
        raise ModelFormatError(
            f"cluster {name} of shape {values.shape} should be of shape ({n_clusters},)."
        )
    if values.dtype.kind not in "fiu":
        raise ModelFormatError(f"cluster {name} of dtype {values.dtype} should be numbers.")
    if not (np.isfinite(values).all() and (values >= 0).all()):
        raise ModelFormatError(f"cluster {name} should be finite and >= 0.")


@dataclass
class FitResult:
    """Centres and details of the loop that computed them.

    Attributes
    ----------
    centres : ndarray of shape (k, d)
        In the compute dtype.
    n_iter : int
        Number of centre updates.
    stop_reason : StopReason
    history : list of dict
        One record per iteration: ``iteration, inertia, shift, seconds, n_empty, bytes_read``.
    labelled : bool
        Whether the labels stored during the loop belong to `centres`.
    """

    centres: np.ndarray
    n_iter: int
    stop_reason: StopReason
    history: list[dict[str, Any]] = field(default_factory=list)
    labelled: bool = False

    @classmethod
    def of(cls, end: Any, begin: Any = None, *, centres: Any = None) -> FitResult:
        """Return the result of a loop that ended, from its state.

        Parameters
        ----------
        end, begin : LoopState with centres
            After the loop, and before it if it kept labels: they belong to the centres if these were the
            same in the last step.
        centres : GramCentres, optional
            Those of a kernel fit, whose state has them in another form.
        """
        made = begin is not None and len(end.history) > len(begin.history)
        labelled = made and end.reason is StopReason.CONVERGED
        centres = end.centres if centres is None else centres
        return cls(centres, len(end.history), end.reason, list(end.history), labelled)


_LIBRARIES = ("numpy", "numba", "zarr", "dask", "scikit-learn")


def created_with() -> dict[str, str]:
    """Return the versions of daskcluster, Python and the libraries, without importing them.

    Examples
    --------
    >>> sorted(created_with())[:2]
    ['dask', 'daskcluster']
    """
    found = {"daskcluster": __version__, "python": platform.python_version()}
    for name in _LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # a vendored copy has no metadata
            continue
    return found


_PER_CLUSTER = ("weights", "sizes", "costs")


@dataclass(frozen=True, eq=False)
class KMeansModel(FittedModel):
    """A fitted k-means, without its data.

    Attributes
    ----------
    centres : ndarray of shape (k, d), float32 or float64
    weights : ndarray of shape (k,), float64
        Total row weight of each cluster (its size if rows have no weights).
    sizes : ndarray of shape (k,), int64
        Number of rows in each cluster.
    costs : ndarray of shape (k,), float64
        Inertia of each cluster.
    metric : str
        ``"euclidean"`` or ``"cosine"``.
    inertia : float
        Weighted sum of squared distances of the rows to their centres.
    n_iter, stop_reason, seeding, passes, bytes_read, history, parameters, feature_names, n_rows,
    created_with, estimator, search
        As in `daskcluster.models.fitted.FittedModel`.

    Raises
    ------
    ModelFormatError
        A value is invalid (not finite, inconsistent shapes, ...).

    Notes
    -----
    Cost: memory for the centres, three numbers per cluster, and the history.

    Examples
    --------
    >>> import numpy as np
    >>> model = KMeansModel(np.zeros((2, 3), np.float32), np.ones(2), n_rows=2)
    >>> model.n_clusters, model.n_features
    (2, 3)
    """

    kind: ClassVar[str] = "kmeans"
    optional_arrays: ClassVar[frozenset[str]] = frozenset({AXES})

    weights: np.ndarray
    sizes: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    costs: np.ndarray = field(default_factory=lambda: np.empty(0))
    metric: str = "euclidean"
    inertia: float = 0.0
    estimator: str = field(default="KMeans", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("sizes", "costs"):
            if len(getattr(self, name)) == 0:
                kind = np.int64 if name == "sizes" else np.float64
                object.__setattr__(self, name, np.zeros(self.n_clusters, kind))
        for name in _PER_CLUSTER:
            check_per_cluster(name, getattr(self, name), self.n_clusters)
        if self.metric not in METRICS:
            raise ModelFormatError(f"metric={self.metric!r} should be one of {', '.join(METRICS)}.")
        if not (math.isfinite(self.inertia) and self.inertia >= 0.0):
            raise ModelFormatError(f"inertia={self.inertia!r} should be finite and >= 0.")

    def facts(self) -> dict[str, Any]:
        """Return the fields specific to this kind of model, for tables."""
        total = float(np.sum(self.weights))
        return {
            "metric": self.metric,
            "dtype": str(self.centres.dtype),
            "inertia": self.inertia,
            "mean_squared_distance": self.inertia / total if total > 0 else None,
            "balance": str(Balance.of(self.sizes)) if self.sizes.any() else None,
        }


Model = FittedModel
"""A model of any kind of `KINDS`."""

KINDS: dict[str, str] = {
    "kmeans": "daskcluster.models.fitted:KMeansModel",
    "hierarchical-kmeans": "daskcluster.methods.hierarchical.cells:HierarchicalModel",
    "partitions": "daskcluster.methods.partition.partitioning:PartitionModel",
    "mixture": "daskcluster.methods.mixture.model:MixtureModel",
    "kernel-kmeans": "daskcluster.methods.kernel_kmeans.model:KernelKMeansModel",
    "graph-kmeans": "daskcluster.methods.kernel_kmeans.graph:GraphKMeansModel",
}
"""Import paths of the model classes, by their kind in saved documents."""


def model_class(kind: str) -> type[Model]:
    """Return the class of models of one of `KINDS`."""
    found: type[Model] = resolve_name(KINDS[kind])
    return found


MODEL = Form(MODEL_FORMAT, 1, "model")

_REPLACEABLE = ("group", "model")


def save_model(
    model: Model,
    url: str,
    *,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> None:
    """Save `model` under `url`.

    Parameters
    ----------
    model : KMeansModel, or any other `daskcluster.models.fitted.Model`
    url : str
        A path or an fsspec URL.
    overwrite : bool
        Replace an existing model. Anything else is never replaced.
    storage_options : mapping, optional
        Passed to the file system.

    Raises
    ------
    OutputExistsError
        `url` exists and may not be replaced.

    Notes
    -----
    Cost: writes the arrays and a few kB.

    Examples
    --------
    >>> import numpy as np
    >>> from daskcluster.models.fitted import KMeansModel
    >>> model = KMeansModel(np.eye(2), np.ones(2), n_rows=2)
    >>> save_model(model, "memory://doctest/model.zarr", overwrite=True)
    >>> load_document("memory://doctest/model.zarr").centres
    array([[1., 0.],
           [0., 1.]])
    """
    check_free(url, overwrite=overwrite, storage_options=storage_options)
    files = dict(sealed(MODEL, Document(model.kind, model.body(), model.arrays())))
    with Staging.begin(
        url, overwrite=overwrite, storage_options=storage_options, kinds=_REPLACEABLE
    ) as staging:
        staging.commit(files)


def check_free(
    url: str, *, overwrite: bool = False, storage_options: Mapping[str, Any] | None = None
) -> None:
    """Raise `OutputExistsError` if `save_model` would refuse `url`."""
    check_output_free(url, overwrite=overwrite, storage_options=storage_options, kinds=_REPLACEABLE)
    place = locate(url, storage_options)
    if overwrite and file_size(place, HEAD) >= 0 and not looks_like(MODEL, place):
        # Any other Zarr group may hold data.
        raise OutputExistsError(
            f"The output {place.url!r} exists and is not a model, so overwrite=True does not replace it; "
            "choose another name, or remove it yourself."
        )


def is_model(url: str, *, storage_options: Mapping[str, Any] | None = None) -> bool:
    """Return whether there is a model, damaged or not, at `url`."""
    return looks_like(MODEL, locate(url, storage_options))


def load_document(url: str, storage_options: Mapping[str, Any] | None = None) -> Model:
    """Load the model at `url` and check all of it.

    Parameters
    ----------
    url : str
        A path or an fsspec URL.
    storage_options : mapping, optional
        Passed to the file system.

    Raises
    ------
    ModelNotFoundError
        There is no readable document at `url`.
    ModelFormatError
        It is not a model, is damaged, or has a format version unknown to this release.
    """
    classes = [model_class(kind) for kind in KINDS]
    known = {each.kind: (each.array_names(), each.optional_arrays) for each in classes}
    document = unsealed(MODEL, locate(url, storage_options), known)
    return model_class(document.kind).from_parts(document.body, document.arrays)
