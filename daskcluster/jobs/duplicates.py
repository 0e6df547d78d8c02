"""The job that finds near-duplicates and writes which rows to keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from daskcluster.data.spec import looks_like_path
from daskcluster.data.tables import TableFormat
from daskcluster.errors import InvalidParameterError
from daskcluster.events import Callback
from daskcluster.jobs.opening import open_rows
from daskcluster.jobs.run import Run
from daskcluster.methods.duplicates.parameters import RULES
from daskcluster.models.record import DuplicatesRecord


def dedup(
    source: Any,
    *,
    output: str,
    report: str | None = None,
    threshold: float = 0.95,
    metric: str = "cosine",
    keep: Any = "first",
    groups: str = "components",
    random_state: int = 0,
    checkpoint: str | None = None,
    resume: bool = False,
    scratch: str | None = None,
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
) -> DuplicatesRecord:
    """Find the near-duplicates of `source`, and write group, kept and similarity of every row.

    Parameters
    ----------
    source : URL, or anything `open_dataset` takes
    output : str
        URL of the result, which appears there only when complete: a ``.parquet`` or ``.csv`` file with the
        ids of the rows, else a Zarr group of the arrays ``group``, ``kept`` and ``similarity`` (or
        ``distance``).
    report : str, optional
        Local file for a report on the groups: .html, .png, .md or .json. A job with `name` writes none,
        since it may be finished already.
    threshold, metric, groups, random_state, checkpoint, resume, scratch
        See `daskcluster.near_duplicates`.
    keep : str or array
        As there. Of a table, also the name of a column of scores, which should be no feature.
    array, storage_options, flatten, decode, columns, missing, grid, overwrite, name, engine, callbacks
        See `fit`.

    Returns
    -------
    DuplicatesRecord

    Raises
    ------
    OutputExistsError
        The output or the report exists; raised before any work.
    InvalidParameterError, InvalidDataError, CheckpointError, DiskSpaceError

    Notes
    -----
    Cost: see `daskcluster.near_duplicates`.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.random.default_rng(0).normal(size=(100, 32))
    >>> rows[60] = rows[7]
    >>> record = dedup(rows, output="memory://example/duplicates", overwrite=True)
    >>> record.n_kept, record.n_groups
    (99, 1)
    """
    asked = dict(locals())
    if report is not None:
        _check_report(report, name, overwrite=overwrite)
    is_url = isinstance(keep, str) and keep not in RULES and looks_like_path(keep)
    given: dict[str, Any] = {"threshold": threshold, "metric": metric, "groups": groups}
    given |= {"random_state": random_state}
    run = Run("dedup", asked)
    with run:
        before = run.begin(DuplicatesRecord, keep=keep if is_url else None)
        if before is not None:
            return before
        dataset, chosen = open_rows(run)
        # Imported here, since scikit-learn takes long to import.
        from daskcluster.methods.duplicates.near_duplicates import searching

        is_table = isinstance(getattr(dataset, "form", None), TableFormat)
        if isinstance(keep, str) and keep not in RULES and is_table:
            scores, _ = open_rows(run, columns=[keep])
            keep = scores.to_numpy()[:, 0]
        opened, n_bytes = run.counters.passes, run.counters.bytes_read
        # The state goes when the output is there and the job is done.
        with searching(
            dataset,
            keep=keep,
            engine=chosen,
            callbacks=run.callbacks,
            checkpoint=run.state_at(checkpoint),
            resume=resume or run.is_resumed,
            scratch=scratch,
            storage_options=storage_options,
            **given,
        ) as found:
            # Sweeps over the blocks on scratch are no passes.
            common = run.counters.common(dataset)
            common |= {"passes": opened + found.passes, "bytes_read": n_bytes + found.bytes_read}
            run.begin_output()
            found.save(output, overwrite=run.overwrite, storage_options=storage_options)
            if report is not None:
                title = f"Near-duplicates in {source if isinstance(source, str) else 'rows'}"
                found.report(title).save(report, overwrite=run.overwrite)
            facts: dict[str, Any] = {"n_kept": found.n_kept, "n_groups": found.n_groups}
            facts |= {"n_copies": found.n_copies, "n_pairs": found.n_pairs}
            facts |= {"threshold": threshold, "metric": metric}
            return run.done(DuplicatesRecord(output=str(output), **facts, **common))


def _check_report(report: str, name: str | None, *, overwrite: bool) -> None:
    from daskcluster.reports.pages import FORMATS, check_output

    if name is not None:
        raise InvalidParameterError(
            f"report={report!r} should be left out of a job with a name, which may be finished already; "
            "leave out name, or report."
        )
    check_output(report, FORMATS, overwrite=overwrite)
