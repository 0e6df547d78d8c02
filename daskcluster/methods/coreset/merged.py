"""One coreset in place of several of disjoint parts: a dataset that knows what it was made of."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from daskcluster.data.array import ArrayDataset
from daskcluster.data.sparse_memory import MemorySparseDataset
from daskcluster.data.weighted import array_weights
from daskcluster.data.weighted_store import stored_facts, write_weighted
from daskcluster.models.versions import created_with
from daskcluster.sparse_rows import Rows, SparseRows
from daskcluster.typing import Dataset


class _OfParts:
    """What `MergedCoreset` and `MergedSparseCoreset` add to a dataset in memory."""

    parts: tuple[Mapping[str, Any], ...] = ()
    seed: int | None = None

    def provenance(self) -> dict[str, Any]:
        """Return what the coreset was made of, as plain JSON values: ``parts``, each with its own."""
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
    rows: Rows, weights: np.ndarray, parts: Sequence[Mapping[str, Any]], seed: int | None
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
    """
    dataset: MergedCoreset | MergedSparseCoreset
    if isinstance(rows, SparseRows):
        dataset = MergedSparseCoreset(rows)
    else:
        dataset = MergedCoreset(rows)
    dataset.own_weights = array_weights(weights, len(rows))
    dataset.parts, dataset.seed = tuple(parts), seed
    return dataset


def part_provenance(dataset: Dataset) -> dict[str, Any]:
    """Return what is known of one part: its own account, or else its size and its weight."""
    if isinstance(dataset, _OfParts):
        return dataset.provenance()
    stored = stored_facts(dataset).get("coreset")
    if isinstance(stored, Mapping) and {"size", "total_weight"} <= set(stored):
        return dict(stored)
    rows, weights = rows_and_weights(dataset)
    return {"source": source_of(dataset), "size": len(rows), "total_weight": float(weights.sum())}


def rows_and_weights(dataset: Any) -> tuple[Rows, np.ndarray]:
    """Return all rows of a dataset, dense or CSR, and their weights, ones where there are none."""
    chunk = dataset.load((0, dataset.n_rows))
    return chunk.rows, np.ones(chunk.n_rows) if chunk.weights is None else chunk.weights


def source_of(dataset: Any) -> str:
    """Return where rows come from, for people."""
    return str(getattr(dataset, "source", type(dataset).__name__))
