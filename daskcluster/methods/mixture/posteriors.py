"""Posteriors of rows under a mixture, as a sparse matrix or streamed to Zarr."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from daskcluster.chunkwise.assign import prepare_rows
from daskcluster.data.sink_group import GroupSink
from daskcluster.engine.engine import Engine
from daskcluster.estimators.fingerprint import fingerprint_of_rows
from daskcluster.events import Callback
from daskcluster.methods.mixture.chunkwise.parameters import Gaussians
from daskcluster.methods.mixture.chunkwise.rows import (
    STORED_POSTERIOR,
    MixtureRowParams,
    stored_posteriors,
)
from daskcluster.typing import Dataset


def as_csr(found: np.ndarray, n_components: int) -> Any:
    """Return structured posteriors (n, q) as a ``scipy.sparse.csr_array`` (n, k) with sorted columns."""
    from scipy.sparse import csr_array

    q = found.shape[1]
    order = np.argsort(found["components"], axis=1, kind="stable")
    index = np.take_along_axis(found["components"], order, axis=1).ravel()
    values = np.take_along_axis(found["probabilities"], order, axis=1).ravel()
    starts = np.arange(0, len(values) + 1, q)
    return csr_array((values, index, starts), shape=(len(found), n_components))


def save_posteriors(
    dataset: Dataset,
    engine: Engine,
    gaussians: Gaussians,
    truncation: int,
    url: str,
    *,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    callbacks: Sequence[Callback] = (),
    resume: bool = False,
) -> None:
    """Stream the posteriors of `dataset` to a Zarr group at `url`; nothing is left of a failed try.

    Parameters
    ----------
    truncation : int
        Posteriors of a row.
    resume : bool
        As of `save_rows`.

    Notes
    -----
    Cost: one pass; the group holds 8 bytes for each of the n x `truncation` entries before
    compression: ``components`` int32 and ``probabilities`` float32, largest first.
    """
    params = MixtureRowParams.of(gaussians, truncation)
    sink = GroupSink.create(
        url,
        n_rows=dataset.n_rows,
        chunk_rows=max(dataset.chunk_sizes),
        dtype=STORED_POSTERIOR,
        width=truncation,
        attributes={"daskcluster": "posteriors", "n_components": gaussians.k},
        overwrite=overwrite,
        storage_options=storage_options,
        mark=fingerprint_of_rows(dataset, params, stored_posteriors),
        resume=resume,
    )
    with sink.transaction(), engine.place(dataset, callbacks=callbacks) as placement:
        placement.map_rows(stored_posteriors, sink, params, prepare=prepare_rows, name="posteriors")
