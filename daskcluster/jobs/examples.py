"""Examples of every cluster: which rows, how far they are, and the rows themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from daskcluster.chunkwise.examples import EXAMPLES, ClusterExamples, ExampleParams, Examples
from daskcluster.engine.choose import choose_engine
from daskcluster.events import Callback
from daskcluster.sparse_rows import dense_rows
from daskcluster.typing import Dataset


def find_examples(
    dataset: Dataset,
    params: ExampleParams,
    clusters: Sequence[int],
    engine: Any,
    callbacks: Sequence[Callback],
) -> ClusterExamples:
    """Find examples of all clusters in one pass, and fetch the rows of some clusters' examples."""
    chosen = choose_engine(engine, dataset)
    with chosen.place(dataset, callbacks=callbacks) as placement:
        found: Examples = placement.reduce(EXAMPLES, params)
        ends = (found.nearest, found.farthest)
        indices = [end.of(cluster)[0] for cluster in clusters for end in ends]
        wanted = np.unique(np.concatenate([np.empty(0, np.int64), *indices]))
        rows = dense_rows(placement.take(wanted))
    return ClusterExamples(found, dict(zip(wanted.tolist(), rows, strict=True)))
