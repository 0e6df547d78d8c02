"""Several measures of one labelling, with shared passes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from daskcluster.chunkwise.labelled import RowLabels
from daskcluster.engine.choose import choose_engine
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.events import Callback
from daskcluster.metrics.separation import Clusters
from daskcluster.metrics.silhouettes import SAMPLE_SIZE, sampled_silhouette
from daskcluster.parameters.algorithm import check_measures
from daskcluster.typing import Dataset


def measure(
    dataset: Dataset,
    labels: RowLabels,
    n_clusters: int,
    names: Sequence[str],
    *,
    metric: str = "euclidean",
    sample_size: int | None = SAMPLE_SIZE,
    random_state: Any = None,
    engine: Any = None,
    callbacks: Sequence[Callback] = (),
) -> dict[str, float]:
    """Return measures by name.

    Parameters
    ----------
    dataset : Dataset
    labels : RowLabels
        Labels of all rows.
    n_clusters : int
        Labels are less than this; clusters without rows are ignored.
    names : sequence of str
        Names of `daskcluster.parameters.algorithm.MEASURES`.
    metric : {"euclidean", "cosine"}
        Metric of the silhouettes. The other measures are Euclidean.
    sample_size, random_state
        See `daskcluster.metrics.silhouette`.
    engine : see `daskcluster.KMeans`
    callbacks : sequence of callables
        Called with the events of passes.

    Notes
    -----
    Cost: one pass for sums, one for distances if a measure needs them, one for a sample. With
    ``metric="cosine"``, the simplified silhouette takes two passes of its own.
    """
    wanted = check_measures(names)
    angular = "simplified-silhouette" if metric == "cosine" else None
    found, chosen = {}, choose_engine(engine, dataset)
    plain = [name for name in wanted if name != angular]
    if plain:
        with chosen.place(dataset, callbacks=callbacks) as placement:
            compare = "simplified-silhouette" in plain
            clusters = Clusters(ScaledPlacement(placement), labels, n_clusters, compare=compare)
            for name in plain:
                if name == "calinski-harabasz":
                    found[name] = clusters.calinski_harabasz()
                elif name == "davies-bouldin":
                    found[name] = clusters.davies_bouldin()
                elif name == "silhouette":
                    found[name] = sampled_silhouette(
                        placement, labels, metric, sample_size, random_state
                    )
                else:
                    found[name] = clusters.simplified_silhouette()
    if angular in wanted:
        with chosen.place(dataset.normalized(), callbacks=callbacks) as placement:
            clusters = Clusters(ScaledPlacement(placement), labels, n_clusters)
            found[angular] = clusters.simplified_silhouette()
    return {name: found[name] for name in wanted}
