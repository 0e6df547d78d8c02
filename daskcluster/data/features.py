"""Features of rows as a model demands them: those that it knows by name, in its order, on its scale."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np

from daskcluster.chunkwise.feature_scaling import PARTIAL, FeatureScaling
from daskcluster.data.csr import CsrLayout
from daskcluster.data.dataset import DerivedDataset, RowDataset
from daskcluster.data.memory import ArrayDataset, scipy_rows
from daskcluster.data.recipes import DerivedRecipe
from daskcluster.data.spec import AS_THEY_ARE
from daskcluster.errors import InvalidDataError, InvalidParameterError, WrongTypeError
from daskcluster.sparse_rows import INDEX_DTYPE, SparseRows
from daskcluster.typing import Dataset, Recipe

_SHOWN = 5


@dataclass(frozen=True, eq=False)
class FeatureSpec:
    """The features that a model demands of rows: their number, names and scale.

    Attributes
    ----------
    n_features : int
    names : tuple of str, optional
        Names of the features, where the rows of the fit had names.
    scaling : FeatureScaling, optional
        The scale of the fit, and its values in place of missing ones.
    decoded : bool, optional
        False if it was fitted on stored numbers that attributes would decode; None if an earlier version
        saved the model, which does not say.
    missing : {"error", "drop"}
        ``"drop"`` if the fit left out rows that lack a value.
    owner : str
        What messages call the model.
    """

    n_features: int
    names: tuple[str, ...] | None = None
    scaling: FeatureScaling | None = None
    decoded: bool | None = True
    missing: str = "error"
    owner: str = "the model"

    @classmethod
    def of(cls, dataset: Dataset) -> FeatureSpec:
        """Return what a model demands that was fitted on these rows."""
        facts = ("feature_names", "scaling", "decoded", "missing")
        names, scaling, decoded, missing = (getattr(dataset, name, None) for name in facts)
        left_out = "drop" if missing == "drop" else "error"
        return cls(dataset.n_features, names, scaling, decoded is not False, left_out)

    def leaves_out(self, rows: Any) -> bool:
        """Return whether rows that lack a value are left out, as in the fit, unless `missing` was given."""
        return self.missing == "drop" and not (isinstance(rows, RowDataset) and rows.missing)

    def align(self, dataset: Dataset) -> Any:
        """Return rows with the features of the model, in its order and on its scale.

        Rows and models without names are compared by their number of features alone. Rows that bring values
        of their own for what is missing keep these.

        Raises
        ------
        InvalidDataError
            Another number of features, or names of the model that the rows lack; or rows that are decoded
            unlike those of the fit.
        InvalidParameterError
            The rows are on another scale than the model.
        """
        self.check_decoded(getattr(dataset, "decoded", None))
        return _scaled_like(self.chosen_from(dataset), self.scaling)

    def check_decoded(self, decoded: bool | None) -> None:
        """Refuse rows that are decoded unlike those of the fit.

        Raises
        ------
        InvalidDataError
        """
        if decoded and not self.decoded:
            why = "which earlier versions did not always do, one of which saved"
            if self.decoded is False:
                why = "unlike the stored numbers of the fit of"
            raise InvalidDataError(
                f"The rows are decoded by attributes of their array, {why} {self.owner}. Pass decode=False "
                "(--no-decode) if it was fitted on stored numbers, else decode=True (--decode)."
            )

    def chosen_from(self, dataset: Dataset) -> Any:
        """Return rows with the features of the model, in its order."""
        names, found = self.names, getattr(dataset, "feature_names", None)
        if names is not None and found is not None and tuple(found) != tuple(names):
            counts, at = Counter(found), {name: number for number, name in enumerate(found)}
            twice = next((name for name in names if counts[name] > 1), None)
            if twice is not None:
                raise InvalidDataError(
                    f"{counts[twice]} features of the rows are called {twice!r}, and {self.owner} knows "
                    "one; give each a name of its own, e.g. with adata.var_names_make_unique()."
                )
            if set(names) <= set(found) and isinstance(dataset, RowDataset):
                chosen = _chosen(dataset, [at[name] for name in names])
                if chosen is not None:
                    return chosen
            raise names_differ(names, found)
        self.check_number(dataset.n_features)
        return dataset

    def check_number(self, found: int) -> None:
        """Raise `InvalidDataError` for another number of features."""
        if found != self.n_features:
            raise InvalidDataError(
                f"X has {found} features, but {self.owner} is expecting {self.n_features} features as "
                "input; give it rows with the columns it was fitted on."
            )


def _scaled_like(dataset: Dataset, scaling: FeatureScaling | None) -> Dataset:
    own = getattr(dataset, "scaling", None)
    if own is not None and not own.scales:
        by_cluster = scaling is not None and own.kind == scaling.kind == PARTIAL
        if scaling is None or not (scaling.scales or by_cluster):
            return dataset
        if by_cluster:
            return dataset.with_scaling(scaling)  # type: ignore[attr-defined]
        scaling = replace(scaling, fill=own.fill)
        own = None
    if scaling is None and own is None:
        return dataset
    if own is not None and not own.same_as(scaling):
        raise InvalidParameterError(
            "The rows were opened with a scale that is not that of the fit; open them without scale: "
            "the scale of the fit is applied to them."
        )
    if own is not None or scaling is None:
        return dataset
    if not isinstance(dataset, RowDataset):
        raise WrongTypeError(f"a {type(dataset).__name__} cannot be scaled; give it scaled rows.")
    return dataset.with_scaling(scaling)


def is_partial(dataset: Any) -> bool:
    """Return whether some distances are partial: rows were opened with ``missing="partial"``."""
    scaling = getattr(dataset, "scaling", None)
    return scaling is not None and scaling.kind == PARTIAL


def refuse_partial(dataset: Any, what: str) -> None:
    """Refuse rows of which some distances are partial, where others would be computed.

    Raises
    ------
    InvalidParameterError
    """
    if is_partial(dataset):
        raise InvalidParameterError(
            f"{what} takes no rows that were opened with missing='partial', which KMeans alone compares by "
            "the features that they have; use missing='mean' or 'drop'."
        )


def columns_by_name(centres: Any, names: Sequence[str] | None, dataset: Dataset) -> Any:
    """Return centres (k, d) of a model with their features in the order of other rows.

    Raises
    ------
    InvalidDataError
        Both have names of features, and they are not the same.
    """
    found = getattr(dataset, "feature_names", None)
    if names is None or found is None or tuple(names) == tuple(found):
        return centres
    if sorted(names) != sorted(found):
        raise names_differ(names, found)
    at = {name: number for number, name in enumerate(names)}
    return np.asarray(centres)[:, [at[name] for name in found]]


def names_differ(fitted: Sequence[str], found: Collection[str]) -> InvalidDataError:
    """Return the error for names of features that are not those of the fit, as scikit-learn has it."""
    text = "The feature names should match those that were passed during fit.\n"
    unseen = sorted(set(map(str, found)) - set(fitted))
    missing = sorted(set(fitted) - set(map(str, found)))
    for title, names in (
        ("Feature names unseen at fit time", unseen),
        ("Feature names seen at fit time, yet now missing", missing),
    ):
        more = ["- ..."] if len(names) > _SHOWN else []
        lines = [*(f"- {name}" for name in islice(names, _SHOWN)), *more]
        text += "\n".join([f"{title}:", *lines, ""]) if names else ""
    if not missing:
        text += "Feature names must be in the same order as they were in fit.\n"
    return InvalidDataError(f"{text}Rename the features, or give rows that have those of the fit.")


def _chosen(dataset: RowDataset, order: list[int]) -> RowDataset | None:
    """Return features in another order; None where stored sparse rows would lose some."""
    names = dataset.feature_names or ()
    if isinstance(dataset, ArrayDataset):
        found: RowDataset = _in_memory(dataset, order)
    elif hasattr(getattr(dataset, "array", None), "__dask_graph__"):
        found = _of_dask(dataset, order)
    elif dataset.csr is not None and len(order) < dataset.n_features:
        return None
    else:
        found = _like(dataset, ChosenFeatures(dataset.unscaled(), tuple(order)), order)
    return found.with_facts(feature_names=tuple(names[at] for at in order))


def _in_memory(dataset: ArrayDataset, order: list[int]) -> ArrayDataset:
    unfilled = None if dataset.unfilled is None else _in_memory(dataset.unfilled, order)
    return dataset.with_rows(_features_of(dataset.held, order)).with_facts(
        scaling=_scaling_of(dataset, order), unfilled=unfilled
    )


def _features_of(rows: Any, order: Sequence[int]) -> Any:
    if not isinstance(rows, SparseRows):
        return np.ascontiguousarray(rows[:, order])
    from scipy.sparse import csr_array

    parts = rows.data, rows.indices, rows.offsets
    return scipy_rows(csr_array(parts, shape=rows.shape)[:, order])


def _of_dask(dataset: Any, order: list[int]) -> RowDataset:
    from daskcluster.data.dask_array import open_dask

    frame = getattr(dataset, "frame", None)
    rows = dataset.array[:, order] if frame is None else frame[[frame.columns[at] for at in order]]
    return _like(dataset, open_dask(rows, AS_THEY_ARE), order)


def _like(dataset: RowDataset, found: RowDataset, order: list[int]) -> RowDataset:
    """Return rows with the weights, ids, grid and scaling of others."""
    same = {"own_weights": dataset.own_weights, "normalize": dataset.normalize}
    found = found.with_facts(**dataset.facts(), **same)
    scaling = _scaling_of(dataset, order)
    return found if scaling is None else found.with_scaling(scaling)


def _scaling_of(dataset: RowDataset, order: list[int]) -> FeatureScaling | None:
    scaling = dataset.scaling
    if scaling is None:
        return None
    fill = None if scaling.fill is None else scaling.fill[..., order]
    return replace(scaling, shift=scaling.shift[order], width=scaling.width[order], fill=fill)


class ChosenFeatures(DerivedDataset):
    """Some features of stored rows, not scaled, in another order; all features of CSR rows.

    Parameters
    ----------
    base : RowDataset
    order : tuple of int
        Numbers of the features in `base`.
    """

    def __init__(self, base: RowDataset, order: tuple[int, ...]) -> None:
        edges = np.append(0, np.cumsum(base.chunk_sizes))
        csr = base.csr and CsrLayout(base.csr.indptr, base.dtype.itemsize + INDEX_DTYPE.itemsize)
        super().__init__(len(order), base.dtype, edges, csr)
        self.base, self.order = base, order
        self.n_readers, self.reader_bytes = max(1, base.n_readers), base.reader_bytes

    @property
    def row_bytes(self) -> int:
        """Decoded bytes of one row of the base: all features are read."""
        return self.base.row_bytes if self.csr is None else super().row_bytes

    def ids(self, start: int, stop: int) -> Any:
        return self.base.ids(start, stop)

    def fetch(self, start: int, stop: int) -> Any:
        return _features_of(self.base.fetch(start, stop), self.order)

    def own_recipe(self) -> Recipe:
        return DerivedRecipe(ChosenFeatures, self.base.own_recipe(), (self.order,))

    __reduce__ = RowDataset.by_recipe
