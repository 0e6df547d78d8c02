"""What an algorithm's loop hands back."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from daskcluster.events import StopReason


@dataclass
class FitResult:
    """Centres and how the loop came to them.

    Attributes
    ----------
    centres : ndarray of shape (k, d)
        In the dtype in which rows were computed.
    n_iter : int
        Centre updates made.
    stop_reason : StopReason
    history : list of dict
        One record per iteration: ``iteration, inertia, shift, seconds, n_empty, bytes_read``.
    labelled : bool
        The labels that were kept on the way are those of `centres`.
    """

    centres: np.ndarray
    n_iter: int
    stop_reason: StopReason
    history: list[dict[str, float]] = field(default_factory=list)
    labelled: bool = False
