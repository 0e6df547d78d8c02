"""The job that tries several numbers of clusters and saves the table of results."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from daskcluster.errors import InvalidParameterError, OutputExistsError
from daskcluster.events import Callback
from daskcluster.jobs.opening import open_rows
from daskcluster.jobs.run import Run
from daskcluster.jobs.selection import select_k
from daskcluster.models.record import SweepRecord
from daskcluster.storage.files import read_file, write_file
from daskcluster.storage.location import Location, locate

_SUFFIX = ".json"


def sweep(
    source: Any,
    *,
    k_min: int = 2,
    k_max: int = 32,
    ks: Iterable[int] | None = None,
    output: str | None = None,
    random_state: int | None = None,
    array: str | None = None,
    weights: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    flatten: bool = False,
    decode: bool | None = None,
    columns: Any = None,
    missing: str = "error",
    scale: str | None = None,
    grid: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    name: str | None = None,
    engine: Any = None,
    callbacks: Sequence[Callback] = (),
    **settings: Any,
) -> SweepRecord:
    """Fit several numbers of clusters to `source` and return the best one.

    Parameters
    ----------
    source : URL, or anything `open_dataset` takes
    k_min, k_max, ks
        The numbers to try; see `daskcluster.select_k`.
    output : str, optional
        URL of a JSON file to write, which must end in ``.json``: the table and the best number.
    random_state : int, optional
    array, weights, storage_options, flatten, decode, columns, missing, scale, grid, overwrite, name, engine
    callbacks
        See `fit`. Without `output`, a restarted job starts from scratch.
    **settings
        Further arguments of `daskcluster.select_k`: ``criterion``, ``n_seeds``, ``coreset_size``,
        ``check``, ``init``, ``max_iter``, ``tol``, ``metric``, ``covariance_type``.

    Returns
    -------
    SweepRecord

    Raises
    ------
    OutputExistsError
        The output exists; raised before any work.
    InvalidParameterError, InvalidDataError
    JobCancelledError, LeaseError
        The job was cancelled (checked during passes and after fits), or another job or run writes the
        output.

    Notes
    -----
    Cost: that of `daskcluster.select_k`: three passes, and one more with `scale`.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> rows = rng.normal(size=(4000, 2)) + 30 * rng.permutation(np.arange(4000) % 5)[:, None]
    >>> url = "memory://example/table.json"
    >>> record = sweep(rows, k_max=12, n_seeds=2, random_state=0, output=url, overwrite=True)
    >>> record.best_k, len(record.candidates)
    (5, 11)
    """
    asked = dict(locals())
    tried = {"k_min": k_min, "k_max": k_max, "ks": None if ks is None else [int(k) for k in ks]}
    run = Run("sweep", asked)
    with run:
        before = run.earlier(SweepRecord)
        if before is not None:
            return before
        place = None if output is None else _place(output, storage_options)
        if place is not None and not run.may_replace(overwrite) and read_file(*place) is not None:
            raise OutputExistsError(
                f"{place[0].child(place[1]).url!r} exists; pass overwrite=True or choose another name."
            )
        run.hold()
        dataset, chosen = open_rows(run)
        found = select_k(
            dataset,
            **{**settings, **tried},
            random_state=random_state,
            engine=chosen,
            callbacks=run.callbacks,
        )
        common = {**found.as_dict(), **run.counters.common(dataset)}
        record = SweepRecord(output=output, **common)
        if place is not None:
            run.begin_output()
            content = json.dumps(record.as_dict(), allow_nan=False, indent=1)
            write_file(*place, content.encode())
        return run.done(record)


def _place(output: str, storage_options: Mapping[str, Any] | None) -> tuple[Location, str]:
    """Return the folder and the file name of a URL."""
    place = locate(output, storage_options)
    if not place.url.endswith(_SUFFIX):
        raise InvalidParameterError(
            f"output={place.url!r} should end in {_SUFFIX!r}: a sweep writes one JSON file."
        )
    folder, _, file = place.url.rpartition("/")
    return replace(place, url=folder), file
