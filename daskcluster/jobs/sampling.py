"""The job that draws a balanced sample and writes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from daskcluster.events import Callback
from daskcluster.jobs.balanced_sample import draw, model_of, naming_scores, score_of
from daskcluster.jobs.opening import open_rows
from daskcluster.jobs.run import Run
from daskcluster.jobs.sample_outputs import check_rows, write_sample
from daskcluster.models.record import SampleRecord
from daskcluster.parameters import shared
from daskcluster.parameters.checks import check_value
from daskcluster.randomness import as_seed


def sample(
    model: str,
    source: Any,
    *,
    size: int,
    output: str,
    rows: str | None = None,
    weighted: bool = False,
    how: Any = "random",
    random_state: int | None = None,
    array: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    flatten: bool = False,
    decode: bool | None = None,
    columns: Any = None,
    missing: str = "error",
    grid: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    name: str | None = None,
    engine: Any = None,
    callbacks: Sequence[Callback] = (),
) -> SampleRecord:
    """Draw rows of `source` evenly from the clusters of a model, and write their ids.

    Parameters
    ----------
    model : str
        URL of a saved model.
    source, array, storage_options, flatten, decode, columns, missing, grid, overwrite, name, engine
    callbacks
        See `fit`.
    size, how, random_state
        See `daskcluster.balanced_sample`.
    output : str
        URL of the ids: a file with clusters and weights if it ends in .parquet or .csv; else row numbers
        alone, as .npy or a Zarr array.
    rows : str, optional
        URL of the rows themselves, in the order of the ids: Parquet (with ids) if it ends in .parquet, else
        Zarr.
    weighted : bool
        Write the rows with their weights. Every estimator uses those of Zarr by itself, and those of
        Parquet with ``weights="weight"``.

    Returns
    -------
    SampleRecord

    Raises
    ------
    OutputExistsError
        An output exists; raised before any work.
    InvalidParameterError, InvalidDataError, ModelFormatError, MemoryLimitError

    Notes
    -----
    Cost: two passes; with `rows`, their storage chunks are read once more.

    Examples
    --------
    >>> import numpy as np
    >>> from daskcluster.jobs import fit
    >>> X = np.random.default_rng(0).normal(size=(5000, 2))
    >>> urls = {"model": "memory://example/sampled-model", "overwrite": True}
    >>> record = fit(X, n_clusters=20, random_state=0, **urls)
    >>> record = sample(source=X, size=200, random_state=0, output="memory://example/ids.zarr", **urls)
    >>> record.size, record.passes, record.after[0]["largest"]
    (200, 2, 10)
    """
    asked = dict(locals())
    check_value("sample", shared.SAMPLE_SIZE, size)
    check_rows(rows)
    score = score_of(how)
    run = Run("sample", asked)
    with run:
        before = run.begin(SampleRecord, scores=score)
        if before is not None:
            return before
        fitted = model_of(model, storage_options)
        with naming_scores(score):
            weighted_by = {} if score is None else {"weights": score}
            dataset, chosen = open_rows(run, fitted.feature_names, **weighted_by)
        check_rows(rows, dataset)
        seed = as_seed(random_state)
        found = draw(fitted, dataset, size, how, seed, chosen, run.callbacks)
        run.begin_output()
        options: dict[str, Any] = {"overwrite": run.overwrite, "storage_options": storage_options}
        write_sample(found, output, rows=rows, weighted=weighted, **options)
        levels = range(1, len(found.sizes) + 1)
        of_all, of_sample = zip(*(found.balance(level) for level in levels), strict=True)
        return run.done(
            SampleRecord(
                model=str(model),
                output=output,
                rows=rows,
                size=len(found),
                how=how if isinstance(how, str) else "scores",
                seed=seed,
                levels=[len(sizes) for sizes in found.sizes],
                before=[balance.as_dict() for balance in of_all],
                after=[balance.as_dict() for balance in of_sample],
                **run.counters.common(dataset),
            )
        )
