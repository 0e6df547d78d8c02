"""Levels of clusters: their sizes, and the rows that their centres are fitted to again.

Vo et al., "Automatic Data Curation for Self-Supervised Learning: A Clustering-Based Approach" (2024),
algorithm 1. The first level clusters rows, each further one the centres below it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.assign import RowParams, nearest_function
from daskcluster.chunkwise.labelled import (
    CHOOSE,
    PICK,
    Choice,
    ChoiceParams,
    OneCluster,
    PickedRows,
    PickParams,
    Ranking,
)
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.errors import InvalidParameterError, WrongTypeError

ROUNDS, FIRST_ROUNDS = 10, 2
"""Rounds of resampling in each level, by default; in the first one, which reads the rows in each."""
PASSES_OF_A_ROUND = 2
"""One finds the nearest rows, one fetches them."""
_FACTOR = 10.0
"""Clusters of a level for each of the next one; less where there are few."""
_LEAST_SIZE, _MOST_SIZE = 2, 20


def sizes_above(
    n_clusters: int, n_levels: int, level_sizes: str | Sequence[int] | None
) -> list[int]:
    """Return the numbers of clusters of the levels above the first.

    Raises
    ------
    InvalidParameterError
        They do not decrease from `n_clusters` to 1 or more, or contradict `n_levels`.
    WrongTypeError
        They are not whole numbers.

    Examples
    --------
    >>> sizes_above(5000, 3, None), sizes_above(64, 3, None), sizes_above(1000, 1, "50, 5")
    ([500, 50], [16, 4], [50, 5])
    """
    if level_sizes is None:
        factor = min(_FACTOR, n_clusters ** (1.0 / n_levels))
        sizes = [round(n_clusters / factor**level) for level in range(1, n_levels)]
        given, remedy = f"n_levels={n_levels}", "ask for fewer levels or more clusters"
    else:
        sizes = _whole_numbers(level_sizes)
        given, remedy = f"level_sizes={sizes}", "leave out the number of the first level"
        if n_levels not in (1, len(sizes) + 1):
            raise InvalidParameterError(
                f"n_levels={n_levels} and {given} were both given, which are {len(sizes) + 1} levels with "
                "the first; give one of them."
            )
    every = [n_clusters, *sizes]
    if any(below <= above for below, above in zip(every, sizes, strict=False)) or every[-1] < 1:
        raise InvalidParameterError(
            f"{given} gives levels of {every} clusters, which should decrease and be >= 1; {remedy}."
        )
    return sizes


def _whole_numbers(values: str | Sequence[int]) -> list[int]:
    parts = values.split(",") if isinstance(values, str) else values
    try:
        found = [int(part) for part in parts]
        exact = all(
            isinstance(part, str) or number == part
            for number, part in zip(found, parts, strict=True)
        )
    except (TypeError, ValueError):
        exact = False
    if not exact:
        raise WrongTypeError(
            f"level_sizes={values!r} should be whole numbers, such as [500, 20] or '500,20'."
        )
    return found


def resample_rounds(parameters: Mapping[str, Any], *, first: bool = True) -> int:
    """Return the rounds of resampling in the first level, or in each other one.

    Examples
    --------
    >>> given = {"n_levels": 2, "level_sizes": None, "resample_rounds": "auto"}
    >>> resample_rounds(given), resample_rounds(given, first=False)
    (2, 10)
    """
    given = parameters["resample_rounds"]
    if given != "auto":
        return int(given)
    if parameters["n_levels"] == 1 and parameters["level_sizes"] is None:
        return 0
    return FIRST_ROUNDS if first else ROUNDS


def resample_size(given: int | str, n_rows: int, n_clusters: int) -> int:
    """Return how many nearest rows of each cluster a round takes.

    Examples
    --------
    >>> resample_size("auto", 1000, 100), resample_size("auto", 10**9, 100), resample_size(7, 9, 3)
    (5, 20, 7)
    """
    if given != "auto":
        return int(given)
    return min(max(n_rows // (2 * n_clusters), _LEAST_SIZE), _MOST_SIZE)


def nearest_rows(rows: ScaledPlacement, centres: np.ndarray, size: int) -> Chunk:
    """Return the `size` nearest rows of each cluster, in the order of the dataset; two passes.

    Clusters with fewer rows give all of them, rows without weight are left out, and those that are
    returned have none.
    """
    placement = rows.placement
    labels = nearest_function(RowParams(centres), normalize=rows.normalize)
    most = np.full(len(centres), size, np.int64)
    ranking = Ranking("nearest", centres=centres)
    found: Choice = placement.reduce(CHOOSE, ChoiceParams(labels, ranking, most))
    found.chosen.settle()
    chosen = np.sort(found.chosen.rows)
    if not len(chosen):
        return rows.chunk(np.empty((0, centres.shape[1]), centres.dtype))
    picked: PickedRows = placement.reduce(PICK, PickParams(OneCluster(), chosen))
    return rows.chunk(picked.joined()[0])
