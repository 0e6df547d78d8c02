"""The saved form of partitions, which tells new rows their partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from daskcluster.chunk import for_rows
from daskcluster.chunkwise.assign import RowFunction
from daskcluster.data.csr import csr_of
from daskcluster.errors import InvalidDataError, ModelFormatError
from daskcluster.events import Callback
from daskcluster.methods.kmeans.estimator import KMeans
from daskcluster.methods.partition.chunkwise import PartitionParams, partition_rows, prepare_cells
from daskcluster.methods.partition.training import Trained
from daskcluster.models.balance import Balance
from daskcluster.models.fitted import check_per_cluster
from daskcluster.models.kmeans import KMeansModel
from daskcluster.models.persist import save_model
from daskcluster.storage.document import read_text
from daskcluster.typing import Dataset


@dataclass(frozen=True, eq=False)
class PartitionModel(KMeansModel):
    """Partitions without their rows: new rows go where they would have gone.

    Attributes
    ----------
    centres : ndarray of shape (k, d)
        Means of the partitions, which searches compare with queries. Nearest centres and scores are about
        these.
    assigning : ndarray of shape (k, d), dtype of `centres`
    penalties : ndarray of shape (k,), float64
        At least 0. A row belongs to the partition with the least sum of the squared distance to these
        centres and the penalty.
    weights, sizes, metric
        As in `daskcluster.models.kmeans.KMeansModel`. Costs and inertia are not known.

    Raises
    ------
    ModelFormatError
        The arrays do not fit together.

    Examples
    --------
    >>> import numpy as np
    >>> given = {"assigning": np.eye(3), "penalties": np.zeros(3)}
    >>> PartitionModel(np.eye(3), np.ones(3), **given).n_clusters
    3
    """

    kind: ClassVar[str] = "partitions"
    array_names: ClassVar[frozenset[str]] = KMeansModel.array_names | {"assigning", "penalties"}

    assigning: np.ndarray = field(kw_only=True)
    penalties: np.ndarray = field(kw_only=True)
    estimator: str = field(default="partition", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_per_cluster("penalties", self.penalties, self.n_clusters)
        found, expected = self.assigning, self.centres
        if found.shape != expected.shape or found.dtype != expected.dtype:
            raise ModelFormatError(
                f"the assigning centres of shape {found.shape} and dtype {found.dtype} should be as the "
                f"centres, of shape {expected.shape} and dtype {expected.dtype}."
            )
        if not np.isfinite(found).all():
            raise ModelFormatError("assigning centres should be finite; one holds NaN or infinity.")

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays to save, by name."""
        penalties = np.asarray(self.penalties, np.float64)
        return super().arrays() | {"assigning": self.assigning, "penalties": penalties}

    def own(self) -> dict[str, Any]:
        """Return the entries of `body` that are specific to this kind of model."""
        return {"metric": self.metric}

    def facts(self) -> dict[str, Any]:
        """Return the fields specific to this kind of model, for tables."""
        shown = {"metric": self.metric, "dtype": str(self.centres.dtype)}
        return shown | {"balance": str(Balance.of(self.sizes)) if self.sizes.any() else None}

    @classmethod
    def from_parts(
        cls, body: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
    ) -> PartitionModel:
        """Return the model that `body` and `arrays` describe; see `ModelFormatError`."""
        return cls(metric=read_text(body, "metric"), **cls.shared_parts(body, arrays))

    def save(
        self,
        url: str,
        *,
        overwrite: bool = False,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        """Save the model for ``daskcluster predict`` and `daskcluster.load_model`.

        Parameters
        ----------
        url : str
        overwrite : bool
            Replace an existing model.
        storage_options : mapping, optional

        Raises
        ------
        OutputExistsError
        """
        save_model(self, url, overwrite=overwrite, storage_options=storage_options)

    def predict(
        self, X: Any, *, engine: Any = None, callbacks: Sequence[Callback] = ()
    ) -> np.ndarray:
        """Return the partition of each row, int32 (n,), as `daskcluster.partition` would assign it.

        Parameters
        ----------
        X : Dataset, or anything `open_dataset` takes, of shape (n, d)
        engine, callbacks : see `daskcluster.partition`

        Raises
        ------
        InvalidDataError
            Sparse rows, rows with NaN or infinity, or with another number of features.

        Notes
        -----
        Cost: one pass. Equal rows that had to be divided by their numbers go to the first of their
        partitions, and sizes are not bounded: partition all rows again where new rows make them uneven.
        """
        from daskcluster.estimators.opening import open_dataset

        dataset: Any = X if isinstance(X, Dataset) else open_dataset(X)
        found = PartitionRows.from_model(self).set_params(engine=engine)
        labels: np.ndarray = found.map_rows(dataset, found.label_function, callbacks=callbacks)
        return labels


class PartitionRows(KMeans):
    """Rows under a `PartitionModel`, without a fit; nearest centres and scores are about the means."""

    owner = "the model"

    @classmethod
    def from_model(cls, model: Any) -> Self:
        """Return what has results for rows under `model`."""
        self = super().from_model(model)
        self._model = model
        return self

    def known_rows(self, X: Any, sample_weight: Any = None, *, complete: bool = False) -> Dataset:
        """Return `X` as a dataset of dense rows with the features of the model; see `fit_dataset`."""
        dataset = super().known_rows(X, sample_weight, complete=complete)
        if csr_of(dataset) is not None:
            raise InvalidDataError("Partitions are of dense rows, but these are sparse.")
        return dataset

    def label_function(self, dtype: Any) -> RowFunction:
        """Return the function that finds the partition of rows of `dtype`."""
        trained = Trained(for_rows(self._model.assigning, dtype), self._model.penalties)
        params, cosine = PartitionParams(trained.lifted()), self.metric == "cosine"
        return RowFunction(partition_rows, params, prepare_cells, normalize=cosine)
