"""The job that measures rows under a saved model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from daskcluster.data.open import open_dataset
from daskcluster.events import Callback
from daskcluster.jobs.kinds import JOBS, check_features
from daskcluster.jobs.run import Run
from daskcluster.models.persist import load_document
from daskcluster.models.record import ScoreRecord


def score(
    model: str,
    source: Any,
    *,
    array: str | None = None,
    weights: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    flatten: bool = False,
    name: str | None = None,
    engine: Any = None,
    callbacks: Sequence[Callback] = (),
) -> ScoreRecord:
    """Return the inertia of `source` under a saved model.

    Parameters
    ----------
    model : str
        URL of a saved model.
    source, array, weights, storage_options, flatten, name, engine, callbacks
        See `fit`.

    Raises
    ------
    ModelFormatError
    InvalidDataError
        The rows do not have the model's features.

    Notes
    -----
    Cost: one pass.
    """
    run = Run("score", name, arguments={}, engine=engine, callbacks=callbacks)
    with run:
        run.hold()
        fitted = load_document(model, storage_options)
        dataset = open_dataset(
            source, array=array, weights=weights, storage_options=storage_options, flatten=flatten
        )
        check_features(fitted, dataset)
        chosen = run.engine(engine, dataset)
        inertia, value = JOBS[fitted.kind].score(fitted, dataset, chosen, run.callbacks)
        return run.done(
            ScoreRecord(model=str(model), inertia=inertia, score=value, **run.tally.common(dataset))
        )
