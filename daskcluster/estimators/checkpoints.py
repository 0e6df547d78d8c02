"""When a fit commits its state, and what a commit must have in common with the fit that goes on from it."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from daskcluster.data.stores import Location
from daskcluster.errors import InvalidParameterError
from daskcluster.events import Callback, Notice, publish
from daskcluster.models.checkpoint import CheckpointFolder
from daskcluster.models.document import Document
from daskcluster.models.versions import created_with
from daskcluster.typing import Dataset

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

EVERY_SECONDS = 30.0

_NO_MATTER = frozenset(
    "algorithm bounds bounds_memory callbacks checkpoint checkpoint_every engine max_iter max_time "
    "validation verbose".split()
)
"""Parameters that change when or how a fit ends up somewhere, not where it is after an iteration."""

_PROBED = 64


class Checkpoints:
    """The commits of one call of fit.

    Parameters
    ----------
    estimator : estimator
        With parameters ``checkpoint`` (a URL or None) and ``checkpoint_every``.
    dataset : Dataset
    callbacks : tuple of callables
        Are told where a fit goes on.
    resume : bool
        Go on from the last commit.

    Attributes
    ----------
    found : Document or None
        The state to go on from.
    """

    def __init__(
        self, estimator: Any, dataset: Dataset, callbacks: tuple[Callback, ...], *, resume: bool
    ) -> None:
        if resume and estimator.checkpoint is None:
            raise InvalidParameterError(
                "resume=True needs checkpoint=, the URL under which the earlier fit kept its state."
            )
        self._every = int(estimator.checkpoint_every)
        self._since, self._last = 0, time.monotonic()
        self._folder: CheckpointFolder | None = None
        self.found: Document | None = None
        if estimator.checkpoint is None:
            return
        self._folder = CheckpointFolder(estimator.checkpoint, facts(estimator, dataset))
        if resume:
            self.found = self._folder.latest()
            publish(callbacks, Notice(self._told()))

    def _told(self) -> str:
        assert self._folder is not None
        if self.found is None:
            return f"Nothing is committed at {self._folder.url!r} yet; the fit begins at its beginning."
        return f"The fit goes on from its checkpoint at {self._folder.url!r}."

    def keep(self, make: Callable[[], Document], *, now: bool = False) -> None:
        """Commit what `make` returns if it is time to, or `now`.

        It is time after ``checkpoint_every`` calls and after half a minute, whichever is first.
        """
        if self._folder is None:
            return
        self._since += 1
        late = time.monotonic() - self._last >= EVERY_SECONDS
        if now or late or self._since >= self._every:
            self._folder.commit(make())
            self._since, self._last = 0, time.monotonic()


def facts(estimator: BaseEstimator, dataset: Dataset) -> dict[str, Any]:
    """Return all that the result of a fit depends on, as plain values."""
    given = estimator.get_params(deep=False).items()
    versions = created_with()
    return {
        "estimator": type(estimator).__name__,
        "parameters": {name: _plain(value) for name, value in given if name not in _NO_MATTER},
        "data": {
            "rows": dataset.n_rows,
            "features": dataset.n_features,
            "dtype": str(dataset.dtype),
            "weighted": dataset.weights is not None,
            "first_and_last_rows": _rows_digest(dataset),
        },
        "daskcluster": versions["daskcluster"],
    }


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Location):
        return value.url
    centres = getattr(value, "cluster_centers_", getattr(value, "means_", value))
    if isinstance(centres, (np.ndarray, list, tuple)):
        return _digest(np.ascontiguousarray(centres))
    return f"<{getattr(value, '__qualname__', type(value).__name__)}>"


def _rows_digest(dataset: Dataset) -> str:
    n = dataset.n_rows
    ends = {*range(min(n, _PROBED)), *range(max(0, n - _PROBED), n)}
    return _digest(np.ascontiguousarray(dataset.take(np.array(sorted(ends)))))


def _digest(values: np.ndarray) -> str:
    return hashlib.sha256(values.tobytes() + str(values.shape).encode()).hexdigest()[:16]
