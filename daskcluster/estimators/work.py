"""Work on rows other than a fit, which can be resumed: opening, checks, plan, engine and checkpoint."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from daskcluster.data.csr import csr_of
from daskcluster.data.features import refuse_partial
from daskcluster.data.identity import data_identity
from daskcluster.data.label_files import write_columns
from daskcluster.data.writer import ArraySink, ZarrSink, read_results
from daskcluster.engine.choose import choose_engine
from daskcluster.engine.engine import Engine
from daskcluster.engine.memory import ONE_PASS
from daskcluster.errors import InvalidDataError
from daskcluster.estimators.opening import open_dataset
from daskcluster.events import Callback
from daskcluster.fingerprint import fingerprint
from daskcluster.parameters.checks import check_value
from daskcluster.parameters.parameter import Parameter
from daskcluster.randomness import as_seed
from daskcluster.storage.checkpoint import CheckpointFolder, noting_stored_state
from daskcluster.storage.document import Document
from daskcluster.storage.files import file_size
from daskcluster.storage.location import locate
from daskcluster.storage.zarr_stores import HEAD
from daskcluster.typing import Dataset, Sink


@dataclass
class Work:
    """Rows, and everything with which they are worked on.

    Attributes
    ----------
    dataset, rows : Dataset
        The rows as they were given, and at length one for cosine.
    plan : WorkPlan
    engine : Engine
    callbacks : sequence of callables
    seed : int
    stored : CheckpointFolder or None
    resumes : bool
        Resume from the state that is stored.
    passes, bytes_read : int
        Passes over the rows, and decoded bytes fetched from the store.
    began : float
    """

    dataset: Dataset
    rows: Dataset
    plan: Any
    engine: Engine
    callbacks: Sequence[Callback]
    seed: int
    stored: CheckpointFolder | None = None
    resumes: bool = False
    passes: int = 0
    bytes_read: int = 0
    began: float = field(default_factory=time.monotonic)

    @classmethod
    @contextmanager
    def begin(
        cls,
        source: Any,
        given: Mapping[str, Any],
        plan_of: Callable[[Dataset, Mapping[str, Any]], Any],
        what: str,
        facts_of: Callable[[], dict[str, Any]],
    ) -> Iterator[Work]:
        """Open rows, check that the work can be done, and yield it.

        Parameters
        ----------
        source : Dataset, or anything `open_dataset` takes
        given : mapping
            Arguments of the work, with ``metric``, ``random_state``, ``engine``, ``callbacks``,
            ``checkpoint``, ``resume`` and ``storage_options``.
        plan_of : callable (dataset, given) -> WorkPlan
        what : str
            Owner of the state, for messages.
        facts_of : callable () -> dict
            Returns what the result depends on besides rows, metric and seed, once the plan is made.
        """
        options, checkpoint = given["storage_options"], given["checkpoint"]
        dataset: Dataset = source
        if not isinstance(source, Dataset):
            dataset = open_dataset(source, storage_options=options)
        plan, engine = plan_of(dataset, given), choose_engine(given["engine"], dataset)
        plan.check_memory(engine)
        rows: Dataset = dataset.normalized() if given["metric"] == "cosine" else dataset
        seed = as_seed(given["random_state"])
        place = None if checkpoint is None else locate(checkpoint, options)
        facts = facts_of() | {"data": data_identity(rows), "metric": given["metric"]}
        facts["random_state"] = seed
        stored = None if place is None else CheckpointFolder(place, facts)
        # A job says itself where its state is.
        with noting_stored_state(None if place is checkpoint else place, what):
            more = given["callbacks"], seed, stored, given["resume"]
            yield cls(dataset, rows, plan, engine, *more)

    def state(self) -> Document | None:
        """Return the state of an earlier run; if there is none, remove what another one has left."""
        if self.stored is None:
            return None
        state = self.stored.latest() if self.resumes else None
        if state is None:
            self.stored.clear()
        return state

    def results(
        self,
        compute: Any,
        params: Any,
        prepare: Callable[[Any], Any],
        dtype: np.dtype[Any],
        name: str,
    ) -> np.ndarray:
        """Return the results of a function of rows, (n,), in one pass; see `Placement.map_rows`.

        With a checkpoint that the engine reaches, they are written there chunk by chunk, and the pass of an
        earlier run resumes.
        """
        found = np.empty(self.rows.n_rows, dtype)
        if self.stored is None or not self.engine.can_read(self.stored):
            self._map_rows(compute, ArraySink(found), params, prepare, name)
            return found
        mark = fingerprint(name, params)
        place = self.stored.attachment(f"{name}-{mark}")
        if file_size(place, HEAD) < 0:
            sink = ZarrSink.create(
                place,
                n_rows=len(found),
                chunk_rows=max(self.rows.chunk_sizes),
                dtype=dtype,
                mark=mark,
                resume=True,
            )
            with sink.transaction():
                self._map_rows(compute, sink, params, prepare, name)
        read_results(place, found)
        return found

    def _map_rows(
        self, compute: Any, sink: Sink, params: Any, prepare: Callable[[Any], Any], name: str
    ) -> None:
        with self.engine.place(
            self.rows, footprint=ONE_PASS, callbacks=self.callbacks
        ) as placement:
            placement.map_rows(compute, sink, params, prepare=prepare, name=name)
            self.passes += 1
            self.bytes_read += placement.traffic.bytes_read

    def spent(self) -> dict[str, Any]:
        """Return what the work took until now."""
        seconds = time.monotonic() - self.began
        return {"passes": self.passes, "bytes_read": self.bytes_read, "seconds": seconds}


class RowResults:
    """Results of every row of a dataset."""

    dataset: Dataset

    def columns(self) -> dict[str, np.ndarray]:
        """Return the results to save, each of shape (n,), by name."""
        raise NotImplementedError

    def save(
        self,
        url: Any,
        *,
        overwrite: bool = False,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        """Write the `columns` of all rows; the output appears whole.

        Parameters
        ----------
        url : str
            A ``.parquet`` or ``.csv`` file with the ids of the rows, else a Zarr group of arrays.
        overwrite : bool
            Replace an output that exists.
        storage_options : dict, optional

        Raises
        ------
        OutputExistsError, InvalidParameterError, MissingExtraError
        """
        write_columns(
            self.dataset, self.columns(), url, overwrite=overwrite, storage_options=storage_options
        )


def check_work(
    owner: str,
    parameters: Sequence[Parameter],
    given: Mapping[str, Any],
    dataset: Dataset,
    what: str,
) -> None:
    """Refuse arguments outside their ranges, and rows that are sparse or lack values.

    Parameters
    ----------
    owner : str
        Name of the function.
    parameters : sequence of Parameter
        The last one is the seed, which is not checked.
    given : mapping
    dataset : Dataset
    what : str
        Begins the error about sparse rows.
    """
    for parameter in parameters[:-1]:
        check_value(owner, parameter, given[parameter.name])
    if csr_of(dataset) is not None:
        raise InvalidDataError(
            f"{what} dense rows, but these are sparse; reduce them to a few hundred dimensions first, e.g. "
            "with scikit-learn's TruncatedSVD."
        )
    refuse_partial(dataset, owner)
