"""The checkpoint that ``VariationalGaussianMixture.fit`` writes between two iterations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskcluster.events import StopReason
from daskcluster.methods.mixture.algorithm import EMState, MixtureResult
from daskcluster.methods.mixture.chunkwise.statistics import Gaussians
from daskcluster.methods.mixture.passes import Carried
from daskcluster.storage.row_state import StateFiles
from daskcluster.storage.state import Shapes


@dataclass(frozen=True)
class Attached:
    """Names of the folders that lie next to the commits.

    Attributes
    ----------
    coreset : str or None
        Commits of the coreset that is fitted.
    sets : str or None
        K(n) of all rows, written by the tasks.
    """

    coreset: str | None = None
    sets: str | None = None


@dataclass(frozen=True)
class EMCheckpoint:
    """An `EMState` without the sets of rows.

    Attributes
    ----------
    means : ndarray of shape (k, d)
    variance : float or None
        Shared by all clusters.
    variances : ndarray of shape (k,), (k, d), (k, d, d) or (1, d, d), or None
        Of each cluster, if they do not share one; or covariance matrices.
    mixing : ndarray of shape (k,), or None
    masses : ndarray of shape (k,)
    history : sequence of dict
    reason : StopReason or None
    n_steps : int
    neighbours : ndarray of shape (k, g), int64, or None
    """

    means: np.ndarray
    variance: float | None
    variances: np.ndarray | None
    mixing: np.ndarray | None
    masses: np.ndarray
    history: Sequence[dict[str, Any]]
    reason: StopReason | None
    n_steps: int
    neighbours: np.ndarray | None

    @classmethod
    def of(cls, state: EMState) -> EMCheckpoint:
        """Return the checkpoint of a state."""
        carried = state.carried
        near = carried.neighbours
        return cls(
            *_parts(state.gaussians),
            state.masses,
            state.history,
            state.reason,
            carried.n_steps,
            None if near is None else near.astype(np.int64),
        )

    def state(self, sets: StateFiles | None) -> EMState:
        """Return the state, with the files that hold the sets of rows."""
        near = self.neighbours
        carried = Carried(self.n_steps, None if near is None else near.astype(np.int32), sets)
        return EMState(_gaussians(self), self.masses, list(self.history), self.reason, carried)


@dataclass(frozen=True)
class MixtureCheckpoint:
    """The `MixtureResult` of the best restart so far.

    Attributes
    ----------
    means, variance, variances, mixing, masses, history, reason
        As in `EMCheckpoint`.
    free_energy, weight : float
        As in `MixtureResult`.
    """

    means: np.ndarray
    variance: float | None
    variances: np.ndarray | None
    mixing: np.ndarray | None
    masses: np.ndarray
    history: Sequence[dict[str, Any]]
    reason: StopReason
    free_energy: float
    weight: float

    @classmethod
    def of(cls, result: MixtureResult) -> MixtureCheckpoint:
        """Return the checkpoint of a result."""
        return cls(
            *_parts(result.gaussians),
            result.masses,
            result.history,
            result.stop_reason,
            result.free_energy,
            result.weight,
        )

    def result(self) -> MixtureResult:
        """Return the result that this is a checkpoint of."""
        return MixtureResult(
            _gaussians(self),
            self.free_energy,
            self.weight,
            self.masses,
            len(self.history),
            self.reason,
            list(self.history),
        )


def _parts(
    gaussians: Gaussians,
) -> tuple[np.ndarray, float | None, np.ndarray | None, np.ndarray | None]:
    """Return the leading fields of both checkpoint classes."""
    shared = gaussians.shared
    variance = float(gaussians.variances) if shared else None
    variances = None if shared else gaussians.variances
    return gaussians.means, variance, variances, gaussians.weights


def _gaussians(kept: EMCheckpoint | MixtureCheckpoint) -> Gaussians:
    variances = np.asarray(kept.variance) if kept.variances is None else kept.variances
    return Gaussians(kept.means, variances, kept.mixing)


@dataclass(frozen=True)
class MixtureState:
    """Progress of a fit.

    Attributes
    ----------
    attached : Attached
    centres : ndarray of shape (k, d), or None
        Initial means; None before they are chosen, and once EM has started.
    em : EMCheckpoint or None
    restart : int
        Number of the current restart.
    best : MixtureCheckpoint or None
        Best of the previous restarts.
    """

    attached: Attached = Attached()
    centres: np.ndarray | None = None
    em: EMCheckpoint | None = None
    restart: int = 0
    best: MixtureCheckpoint | None = None


def mixture_shapes(k: int, d: int, g: int, kind: str) -> Shapes:
    """Return the shapes of the arrays of a `MixtureState`."""
    shapes: Shapes = {"diag": (k, d), "tied": (1, d, d), "full": (k, d, d)}
    own: Shapes = {
        "means": (k, d),
        "variances": shapes.get(kind, (k,)),
        "mixing": (k,),
        "masses": (k,),
    }
    parts = {f"{part}_{name}": shape for part in ("em", "best") for name, shape in own.items()}
    return {"centres": (k, d), "em_neighbours": (k, g), **parts}
