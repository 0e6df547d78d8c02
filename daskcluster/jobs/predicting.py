"""The job that labels rows under a saved model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from daskcluster.data.open import open_dataset
from daskcluster.engine.choose import choose_engine
from daskcluster.events import Callback
from daskcluster.jobs.kinds import JOBS, POSTERIORS, check_features, check_posteriors
from daskcluster.jobs.outputs import check_outputs
from daskcluster.jobs.tally import Tally
from daskcluster.models.persist import load_document
from daskcluster.models.record import PredictRecord


def predict(
    model: str,
    source: Any,
    *,
    output: str,
    posteriors: str | None = None,
    array: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    flatten: bool = False,
    overwrite: bool = False,
    engine: Any = None,
    callbacks: Sequence[Callback] = (),
) -> PredictRecord:
    """Write the label of every row of `source` to `output`, a 1-D int32 Zarr array.

    Parameters
    ----------
    model : str
        URL of a saved model.
    source, array, storage_options, flatten, overwrite, engine, callbacks
        See `fit`.
    output : str
        URL of the labels; whole or absent.
    posteriors : str, optional
        For a mixture: URL of a Zarr group with ``components`` (int32) and ``probabilities`` (float32), the
        largest posteriors of every row.

    Raises
    ------
    ModelFormatError, OutputExistsError
        Before any work.
    InvalidDataError
        The rows do not have the model's features.

    Notes
    -----
    Cost: one pass, and one for `posteriors`.
    """
    tally = Tally()
    inputs, outputs = {"source": source, "model": model}, {"output": output}
    outputs |= {} if posteriors is None else {"posteriors": posteriors}
    check_outputs(outputs, inputs, storage_options, overwrite)
    fitted = load_document(model, storage_options)
    if posteriors is not None:
        check_posteriors(fitted)
    dataset = open_dataset(source, array=array, storage_options=storage_options, flatten=flatten)
    check_features(fitted, dataset)
    writes = [(JOBS[fitted.kind].write_labels, output)]
    if posteriors is not None:
        writes.append((POSTERIORS[fitted.kind].write_posteriors, posteriors))
    chosen = choose_engine(engine, dataset)
    for write, url in writes:
        write(
            fitted,
            dataset,
            chosen,
            url,
            overwrite=overwrite,
            storage_options=storage_options,
            callbacks=(*callbacks, tally),
        )
    return PredictRecord(
        model=str(model), output=output, posteriors=posteriors, **tally.common(dataset)
    )
