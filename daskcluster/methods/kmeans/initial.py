"""Initial centres from the public parameter ``init=``."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.centres import normalized_rows
from daskcluster.chunkwise.data_statistics import refuse_large
from daskcluster.data.checks import is_masked, without_mask
from daskcluster.data.features import columns_by_name
from daskcluster.data.open import open_chunk
from daskcluster.data.spec import names_of
from daskcluster.engine.local import LocalEngine
from daskcluster.engine.scaled import ScaledPlacement, score_rows
from daskcluster.errors import InvalidParameterError, ModelFormatError
from daskcluster.estimators.loop import Limits
from daskcluster.events import Notice, publish
from daskcluster.methods.kmeans.algorithm import CentresState, lloyd, swap_centres
from daskcluster.models.fitted import load_document
from daskcluster.parameters import shared
from daskcluster.randomness import Key
from daskcluster.seeding.methods import (
    afk_mc2,
    kmeans_parallel,
    kmeans_plusplus,
    most_candidates,
    most_drawn,
    n_proposals,
    random_rows,
)
from daskcluster.sparse_rows import Rows
from daskcluster.typing import Dataset

GIVEN = ("array", "model")
"""Methods that draw nothing: a second start would be the first again."""
_REFINEMENTS = 30
_SEARCHES, _MOST_SWAPPED = 3, 128
"""Local searches among the candidates of k-means||, and the most centres for which they are cheap."""
_LONG_REDUCTION = 1 << 31
"""Products above which a reduction of candidates, which takes seconds then, is announced."""
_RANDOM_RESTARTS = 10


def is_method(init: Any) -> bool:
    """Return True if `init` is the name of a seeding method (and not a URL of a model)."""
    return isinstance(init, str) and init in shared.METHODS


def is_auto(init: Any) -> bool:
    """Return True if the fit chooses how to seed; `init` may be an array."""
    return isinstance(init, str) and init == "auto"


def method_for(init: Any, *, in_memory: bool) -> str:
    """Return the name of the method; ``auto`` depends on where the rows are.

    k-means++ takes a pass per centre, which is cheap in memory; elsewhere k-means|| takes six.
    """
    if is_method(init):
        if init == "auto":
            return "k-means++" if in_memory else "k-means||"
        return str(init)
    if isinstance(init, str):
        return "model"
    if hasattr(init, "cluster_centers_"):
        return "model"
    return "callable" if callable(init) else "array"


def restarts_for(method: str, n_init: int | str, *, in_memory: bool) -> int:
    """Return the number of fits of `KMeans`: by default more than one only for random rows in memory."""
    if n_init == "auto":
        return _RANDOM_RESTARTS if method == "random" and in_memory else 1
    return 1 if method in GIVEN else int(n_init)


def warn_of_one_start(estimator: Any, method: str, stacklevel: int) -> None:
    """Warn of an ``n_init`` without effect, since centres are given."""
    n_init = estimator.n_init
    if method in GIVEN and n_init not in ("auto", 1):
        warnings.warn(
            "Explicit initial center position passed: performing only one init in "
            f"{type(estimator).__name__} instead of n_init={n_init}.",
            RuntimeWarning,
            stacklevel=stacklevel + 1,
        )


def initial_centres(
    init: Any,
    rows: ScaledPlacement,
    n_clusters: int,
    seed: int,
    *,
    source: Any,
    chain_length: int = shared.CHAIN_LENGTH.default,
) -> np.ndarray:
    """Return centres (k, d) in the compute dtype.

    Parameters
    ----------
    init : str, array-like, callable, fitted estimator, or URL of a saved model
    rows : ScaledPlacement
    n_clusters : int
    seed : int
    source : object
        X of a callable; its ``random_state`` is a RandomState of `seed`.
    chain_length : int
        Proposals for each centre of AFK-MC2.
    """
    dataset = rows.placement.dataset
    method = method_for(init, in_memory=dataset.in_memory)
    if method in SEEDINGS:
        return SEEDINGS[method].find(rows, n_clusters, seed, chain_length)
    if method == "callable":
        random_state = np.random.RandomState(seed % 2**32)
        init = init(source, n_clusters, random_state=random_state)
    elif method == "model":
        init = model_centres(init, dataset)
    centres = checked_centres(init, n_clusters, dataset, rows.dtype)
    return normalized_rows(centres) if rows.normalize else centres


@contextmanager
def placed(chunk: Chunk) -> Iterator[ScaledPlacement]:
    """Yield some rows placed on the threads of this process."""
    with LocalEngine().place(open_chunk(chunk)) as placement:
        yield ScaledPlacement(placement)


def candidate_reducer(
    seed: int, rows: ScaledPlacement
) -> Callable[[Rows, np.ndarray, int], np.ndarray]:
    """Return the reduction of k-means|| candidates: weighted k-means++, then Lloyd, in memory.

    With up to `_MOST_SWAPPED` centres, local searches follow, each with Lloyd; the best result is returned.
    """

    def reduce_candidates(candidates: Rows, weights: np.ndarray, n_clusters: int) -> np.ndarray:
        if n_clusters * candidates.shape[0] * candidates.shape[1] > _LONG_REDUCTION:
            text = f"Reducing {candidates.shape[0]:,} candidates of k-means|| to {n_clusters:,} centres"
            publish(rows.placement.callbacks, Notice(text))
        chunk = rows.chunk(candidates, weights)
        with placed(chunk) as few:
            centres, _ = kmeans_plusplus(few, n_clusters, seed)
            found = lloyd(few, CentresState(centres), Limits(_REFINEMENTS), tol=0.0).centres
            if not 1 < n_clusters <= _MOST_SWAPPED:
                return found
            cost = score_rows(few, found).inertia
            for number in range(_SEARCHES):
                key = Key(seed, "search among candidates", number)
                moved = swap_centres(chunk, found, key.derived_seed())
                moved = lloyd(few, CentresState(moved), Limits(_REFINEMENTS), tol=0.0).centres
                other = score_rows(few, moved).inertia
                if other < cost:
                    found, cost = moved, other
            return found

    return reduce_candidates


@dataclass(frozen=True)
class Seeding:
    """A way to choose initial centres that has a name, and what it takes.

    Attributes
    ----------
    name : str
    find : callable
        Returns centres (k, d) in the compute dtype; it is called with a `ScaledPlacement` of the rows, the
        number of clusters, the seed, and the parameter ``chain_length``.
    passes : callable
        Passes over all rows, for a number of clusters. Default: none.
    row_bytes : int
        Bytes of state per row.
    task_rows : callable
        Rows that a task returns at most, for a number of clusters. Default: none.
    process_rows : callable
        Rows that this process holds at most, for a number of clusters and a ``chain_length``. Default:
        none.
    """

    name: str
    find: Callable[[ScaledPlacement, int, int, int], np.ndarray]
    passes: Callable[[int], int] = lambda k: 0
    row_bytes: int = 0
    task_rows: Callable[[int], int] = lambda k: 0
    process_rows: Callable[[int, int], int] = lambda k, length: 0


SEEDINGS = {
    "random": Seeding("random", lambda rows, k, seed, length: random_rows(rows, k, seed)[0]),
    "k-means++": Seeding(
        "k-means++",
        lambda rows, k, seed, length: kmeans_plusplus(rows, k, seed)[0],
        passes=lambda k: k + 1,
        row_bytes=8,
    ),
    "k-means||": Seeding(
        "k-means||",
        lambda rows, k, seed, length: kmeans_parallel(
            rows, k, seed, reduce_candidates=candidate_reducer(seed, rows)
        ),
        passes=lambda k: 6,  # its rounds, and one for the weights of the candidates
        row_bytes=4,
        task_rows=most_drawn,
        process_rows=lambda k, length: most_candidates(k),
    ),
    "afk-mc2": Seeding(
        "afk-mc2",
        lambda rows, k, seed, length: afk_mc2(rows, k, seed, chain_length=length)[0],
        passes=lambda k: 2,  # one for the moments of the rows, one for the proposals
        process_rows=n_proposals,
    ),
}
"""Seedings by name; `daskcluster.extending.register_seeding` adds to them."""
_NO_SEEDING = Seeding("", lambda rows, k, seed, length: np.empty(0))


def seeding_of(method: str) -> Seeding:
    """Return the seeding of a name; one without cost where `method` is another word (see `method_for`)."""
    return SEEDINGS.get(method, _NO_SEEDING)


def checked_centres(init: Any, n_clusters: int, dataset: Dataset, dtype: Any) -> np.ndarray:
    """Return initial centres (k, d) in `dtype`, after scikit-learn's checks of their shape."""
    if hasattr(init, "toarray"):
        init = init.toarray()  # rows of sparse data, as a callable may pick them
    if hasattr(init, "columns"):
        init = columns_by_name(init, names_of(init.columns), dataset)
    # A masked value is missing, and refused as NaN is.
    given = without_mask(np.ma.asarray(init)) if is_masked(init) else init
    centres = np.array(given, dtype=dtype, order="C", copy=True)
    if centres.ndim != 2 or centres.shape[0] != n_clusters:
        raise InvalidParameterError(
            f"The shape of the initial centers {centres.shape} does not match the number of clusters "
            f"{n_clusters}."
        )
    if centres.shape[1] != dataset.n_features:
        raise InvalidParameterError(
            f"The shape of the initial centers {centres.shape} does not match the number of features "
            f"of the data {dataset.n_features}."
        )
    if not np.isfinite(centres).all():
        raise InvalidParameterError(
            "The initial centers contain NaN or infinity; they must be finite."
        )
    refuse_large(np.abs(centres).max(axis=0), centres.dtype, "The array of initial centers")
    return centres


def model_centres(init: Any, dataset: Dataset) -> np.ndarray:
    """Return the centres (k, d) of a fitted estimator or a saved model, with the features of the rows."""
    if hasattr(init, "cluster_centers_"):
        names = getattr(init, "feature_names_in_", None)
        own = None if names is None else names.tolist()
        return np.asarray(columns_by_name(init.cluster_centers_, own, dataset))
    try:
        model = load_document(init)
    except (ModelFormatError, FileNotFoundError) as error:
        raise InvalidParameterError(
            f"init={init!r} should be one of {', '.join(shared.METHODS)}, an array of centres, a "
            f"callable, a fitted estimator, or the URL of a saved model, which it is not: {error}"
        ) from error
    return np.asarray(columns_by_name(model.centres_of_data, model.feature_names, dataset))
