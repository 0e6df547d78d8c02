"""Merge coresets of disjoint parts into one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from daskcluster.data.dataset import refuse_replacing
from daskcluster.data.memory import ArrayDataset, MemorySparseDataset
from daskcluster.data.weighted import array_weights, stored_attributes, write_weighted
from daskcluster.errors import InvalidParameterError
from daskcluster.models.fitted import created_with
from daskcluster.sparse_rows import Rows, SparseRows, join_rows
from daskcluster.storage.location import Location, locate
from daskcluster.typing import Dataset


class _OfParts:
    """Shared part of `MergedCoreset` and `MergedSparseCoreset`: what they add to a dataset in memory."""

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
        refuse_replacing(self, url=locate(url, storage_options))
        write_weighted(
            url,
            *rows_and_weights(self),
            facts={"coreset": self.provenance()},
            overwrite=overwrite,
            storage_options=storage_options,
        )

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()  # type: ignore[assignment]
        return {**state, "parts": self.parts, "seed": self.seed}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[misc]
        self.parts, self.seed = state["parts"], state["seed"]


class MergedCoreset(_OfParts, ArrayDataset):
    """Weighted rows in memory, see `daskcluster.merge_coresets`."""


class MergedSparseCoreset(_OfParts, MemorySparseDataset):
    """Weighted CSR rows in memory, see `daskcluster.merge_coresets`."""


def merged(
    rows: Rows,
    weights: np.ndarray,
    parts: Sequence[Mapping[str, Any]],
    seed: int | None,
    read_from: tuple[Location, ...] = (),
) -> MergedCoreset | MergedSparseCoreset:
    """Return the rows of a merged coreset, with the provenance of its parts.

    Parameters
    ----------
    rows : Rows, shape (m, d)
    weights : ndarray of shape (m,)
    parts : sequence of mapping
        See `part_provenance`.
    seed : int or None
        Of the draws from the union; None if nothing was drawn.
    read_from : tuple of Location
        What the parts were read from.
    """
    dataset: MergedCoreset | MergedSparseCoreset
    if isinstance(rows, SparseRows):
        dataset = MergedSparseCoreset(rows)
    else:
        dataset = MergedCoreset(rows)
    dataset.own_weights = array_weights(weights, len(rows))
    dataset.parts, dataset.seed, dataset.read_from = tuple(parts), seed, read_from
    return dataset


def part_provenance(dataset: Dataset) -> dict[str, Any]:
    """Return the provenance of one part; without one, its size and its weight."""
    if isinstance(dataset, _OfParts):
        return dataset.provenance()
    stored = stored_attributes(dataset).get("coreset")
    if isinstance(stored, Mapping) and {"size", "total_weight"} <= set(stored):
        return dict(stored)
    rows, weights = rows_and_weights(dataset)
    return {"source": source_of(dataset), "size": len(rows), "total_weight": float(weights.sum())}


def rows_and_weights(dataset: Any) -> tuple[Rows, np.ndarray]:
    """Return all rows of a dataset, dense or CSR, and their weights (1 if it has none)."""
    chunk = dataset.load((0, dataset.n_rows))
    return chunk.rows, np.ones(chunk.n_rows) if chunk.weights is None else chunk.weights


def source_of(dataset: Any) -> str:
    """Return the source of rows, for people."""
    return str(getattr(dataset, "source", type(dataset).__name__))


def united(parts: Sequence[tuple[Rows, np.ndarray]]) -> tuple[Rows, np.ndarray]:
    """Return the rows and weights of coresets of disjoint parts, one after the other.

    Any weighted sum over the union has as its expectation the sum over all parts. Dense rows of
    different dtypes are merged in the wider one; dense and sparse rows are merged as sparse rows.

    Parameters
    ----------
    parts : sequence of (rows, weights)

    Raises
    ------
    InvalidParameterError
        They do not have the same number of features.

    Examples
    --------
    >>> import numpy as np
    >>> rows, weights = united([(np.eye(2), np.ones(2)), (np.zeros((1, 2)), np.array([5.0]))])
    >>> rows.shape, weights
    ((3, 2), array([1., 1., 5.]))
    """
    widths = [rows.shape[1] for rows, _ in parts]
    if len(set(widths)) > 1:
        raise InvalidParameterError(
            f"coresets with {', '.join(map(str, widths))} features should have the same number; merge "
            "those of parts of one dataset."
        )
    sparse = any(isinstance(rows, SparseRows) for rows, _ in parts)
    dtype = np.result_type(*(rows.dtype for rows, _ in parts))
    alike = [_as(rows, dtype, sparse=sparse) for rows, _ in parts]
    return join_rows(alike), np.concatenate([weights for _, weights in parts])


def _as(rows: Rows, dtype: np.dtype, *, sparse: bool) -> Rows:
    if isinstance(rows, SparseRows):
        return rows.astype(dtype)
    rows = rows.astype(dtype, copy=False)
    return SparseRows.of(rows) if sparse else rows
