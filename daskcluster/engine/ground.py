"""Ranges of rows on the workers of a cluster, and how data of the driver gets there."""

from __future__ import annotations

import time
import uuid
from collections.abc import Container, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from daskcluster.engine.homes import Homes
from daskcluster.engine.worker import Rows
from daskcluster.errors import EngineError
from daskcluster.typing import Dataset, Range

if TYPE_CHECKING:
    from distributed import Client, Future

_SCATTERS = 10
_PAUSE_SECONDS = 0.2


class Ground:
    """Ranges of rows on the workers: their homes, and the rows themselves where those travel.

    Parameters
    ----------
    client : Client
    dataset : Dataset
    spans : sequence of (start, stop)
    travels : bool
        Workers cannot read the rows; they are sent, once, to their homes.

    Attributes
    ----------
    name : str
        That no other has.
    """

    def __init__(
        self, client: Client, dataset: Dataset, spans: Sequence[Range], *, travels: bool
    ) -> None:
        self.spans = spans
        self.name = uuid.uuid4().hex
        self.homes = Homes([stop - start for start, stop in spans])
        self._client = client
        self._dataset = dataset
        self._travels = travels
        self._rows: dict[int, Future] = {}

    def settle(self, threads: Mapping[str, int]) -> None:
        """Give every range a home on the workers that are there; see `Homes.settle`."""
        self.homes.settle(threads)
        self.renew(threads)

    def renew(self, workers: Container[str]) -> None:
        """Send rows that no worker has to their homes, or anywhere if those have gone."""
        if not self._travels:
            return
        for worker, indices in self.homes.by_worker().items():
            missing = [i for i in indices if not self._is_there(i)]
            if missing:
                self._send(missing, [worker] if worker in workers else None)

    def rows(self, indices: Sequence[int]) -> list[Future] | None:
        """Return the rows of ranges, for the arguments of a task; None where workers read them."""
        return [self._rows[index] for index in indices] if self._travels else None

    def close(self) -> None:
        """Let Dask free the rows."""
        self._rows.clear()

    def _is_there(self, index: int) -> bool:
        return index in self._rows and self._rows[index].status == "finished"

    def _send(self, indices: Sequence[int], workers: list[str] | None) -> None:
        parts: list[Rows] = []
        for index in indices:
            chunk = self._dataset.load(self.spans[index])
            parts.append((chunk.rows, chunk.weights))
        futures = scattered(self._client, parts, workers=workers)
        self._rows.update(zip(indices, futures, strict=True))


def scattered(client: Client, data: Any, *, workers: list[str] | None = None) -> Any:
    """Scatter one copy, whichever workers leave meanwhile; who needs it fetches it from who has it.

    Never with ``broadcast``: Dask then tries for ever to copy to a worker that has died under it.
    """
    for _ in range(_SCATTERS):
        try:
            return client.scatter(data, workers=workers, hash=False)
        except (KeyError, OSError, ValueError, TimeoutError):
            # Dask's errors for a worker that has just left. Where the copy is is no matter.
            workers = None
            time.sleep(_PAUSE_SECONDS)
    raise EngineError(
        "data could not be sent to the workers, because they keep leaving; start workers that stay."
    )
