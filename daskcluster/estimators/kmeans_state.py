"""The state of a ``KMeans.fit`` between two iterations, as a document and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from daskcluster.chunkwise.statistics import ExactScalar, SurveyStatistics
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.events import StopReason
from daskcluster.models.document import Document
from daskcluster.models.fields import read_count, read_mapping, read_number, read_records, read_text
from daskcluster.models.result import FitResult

_GOES_ON = (StopReason.MAX_ITER, StopReason.MAX_TIME, StopReason.CALLBACK)
"""Ends that were set from outside: the next fit has its own limits."""
_MOMENTS = ("spread", "weighted_spread", "weight")


@dataclass(frozen=True)
class KMeansState:
    """Where a fit is.

    Attributes
    ----------
    seed : int
        From which all draws of the fit come.
    restart : int
        Which restart is under way.
    centres : ndarray of shape (k, d)
    history : sequence of dict
        The restart's iterations so far.
    reason : StopReason or None
        Why the last iteration was the restart's last, if it was.
    best : FitResult or None
        Of the restarts before.
    passes, bytes_read : int
        What the fit took so far.
    survey : SurveyStatistics or None
        What the first pass learnt of the rows, once it was made: sums of later passes are on its grid.
    """

    seed: int
    restart: int
    centres: np.ndarray
    history: Sequence[dict[str, float]] = ()
    reason: StopReason | None = None
    best: FitResult | None = None
    passes: int = 0
    bytes_read: int = 0
    survey: SurveyStatistics | None = field(default=None, repr=False)

    def document(self) -> Document:
        """Return the state as plain values and arrays."""
        body: dict[str, Any] = {
            "seed": str(self.seed),  # up to 64 bits, more than a JSON number is safe for
            "restart": self.restart,
            "history": list(self.history),
            "reason": "" if self.reason is None else str(self.reason),
            "passes": self.passes,
            "bytes_read": self.bytes_read,
        }
        arrays = {"centres": self.centres}
        if self.best is not None:
            arrays["best_centres"] = self.best.centres
            body["best"] = {
                "history": self.best.history,
                "n_iter": self.best.n_iter,
                "reason": str(self.best.stop_reason),
            }
        if self.survey is not None:
            arrays |= {"max_abs": self.survey.max_abs, "sums": self.survey.sums}
            body["survey"] = _survey_body(self.survey)
        return Document("lloyd", body, arrays)

    @classmethod
    def of(cls, document: Document, rows: ScaledPlacement) -> KMeansState:
        """Return the state that `document` describes, of a fit of `rows`."""
        body, arrays = document.body, document.arrays
        reason = read_text(body, "reason")
        ended = StopReason(reason) if reason else None
        best = None
        if "best" in body:
            inner = read_mapping(body, "best")
            best = FitResult(
                arrays["best_centres"],
                read_count(inner, "n_iter"),
                StopReason(read_text(inner, "reason")),
                list(read_records(inner, "history")),
            )
        return cls(
            int(read_text(body, "seed")),
            read_count(body, "restart"),
            arrays["centres"],
            read_records(body, "history"),
            None if ended in _GOES_ON else ended,
            best,
            read_count(body, "passes"),
            read_count(body, "bytes_read"),
            _survey_of(body, arrays, rows.origin) if "survey" in body else None,
        )


def _survey_body(survey: SurveyStatistics) -> dict[str, Any]:
    moments = {name: vars(getattr(survey, name)) for name in _MOMENTS}
    return {"n_rows": survey.n_rows, **moments}


def _survey_of(
    body: dict[str, Any], arrays: dict[str, np.ndarray], origin: np.ndarray
) -> SurveyStatistics:
    inner = read_mapping(body, "survey")

    def moment(name: str) -> ExactScalar:
        parts = read_mapping(inner, name)
        return ExactScalar(read_number(parts, "high"), read_number(parts, "low"))

    return SurveyStatistics(
        origin,
        arrays["max_abs"],
        arrays["sums"],
        moment("spread"),
        moment("weighted_spread"),
        moment("weight"),
        read_count(inner, "n_rows"),
    )
