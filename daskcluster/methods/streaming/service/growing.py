"""A source that is one Zarr array, which grows along its first axis."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from daskcluster.data.nodes import metadata_digest, open_array
from daskcluster.data.open import open_dataset
from daskcluster.data.presence import last_chunk_start, leading_rows
from daskcluster.methods.streaming.service.ledger import Arrival, Taken
from daskcluster.storage.files import list_files
from daskcluster.storage.location import Location
from daskcluster.typing import Dataset, Range


@dataclass(frozen=True)
class GrowingArray:
    """Rows that are appended to a Zarr array.

    Attributes
    ----------
    location : Location
        Of the array, or of the group that holds it.
    array : str
        Its name in the group; empty if there is none.
    weights : str or None
        An array of the same group, or a URL.
    allow_missing : bool
        Take chunks that are not there as the fill value.
    """

    has_times: ClassVar[bool] = False

    location: Location
    array: str = ""
    weights: Any = None
    allow_missing: bool = False

    @property
    def name(self) -> str:
        return self.array or self.location.url.rsplit("/", 1)[-1]

    @property
    def _place(self) -> Location:
        return self.location.child(self.array) if self.array else self.location

    def look(self, taken: Mapping[str, Taken]) -> list[Arrival]:
        """Return the array, with as many rows as are stored without a gap after those taken."""
        array = open_array(self.location, self.array)
        files = list_files(self._place)
        before = taken.get(self.name)
        first = 0 if before is None else before.stop
        n_rows = int(array.shape[0])
        if not self.allow_missing and n_rows > first:
            n_rows = leading_rows(array, {file.name for file in files}, first)
        problem = ""
        if n_rows < array.shape[0]:
            problem = f"rows {n_rows} to {array.shape[0]} are not stored yet"
        modified = max((file.modified for file in files), default=0.0)
        stamp = array.attrs.get("timestamp")
        return [
            Arrival(
                self.name,
                _kind_of(array),
                n_rows,
                modified if stamp is None else stamp_of(stamp, modified),
                modified,
                problem,
                grows=True,
            )
        ]

    def settled_rows(self, arrival: Arrival) -> int:
        """Return the rows that no writer touches any more: those before the last chunk."""
        return last_chunk_start(open_array(self.location, self.array), arrival.n_rows)

    def open(self, arrival: Arrival, span: Range) -> Dataset:
        """Open the array as it is now; that chunks are missing at its end is known."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The array at .* lacks", UserWarning)
            return self._opened()

    def _opened(self) -> Dataset:
        return open_dataset(
            self.location.url,
            array=self.array or None,
            weights=self.weights,
            storage_options=self.location.storage_options() or None,
        )

    def facts(self) -> dict[str, Any]:
        return {"kind": "growing array", "url": self.location.url, "array": self.array}


def _kind_of(array: Any) -> str:
    """Return a digest of what decides how the array is read, but for its length."""
    facts = [str(array.dtype), *map(str, array.chunks), *map(str, array.shape[1:])]
    return "-".join([*facts, str(array.metadata.zarr_format)]) if facts else metadata_digest(array)


def stamp_of(value: Any, otherwise: float) -> float:
    """Return a time stamp that an object carries, a number or an ISO date, in seconds since 1970.

    Examples
    --------
    >>> stamp_of("1970-01-01T01:00:00+00:00", 0.0), stamp_of(7, 0.0), stamp_of("noon", 5.0)
    (3600.0, 7.0, 5.0)
    """
    from datetime import UTC, datetime

    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    try:
        found = datetime.fromisoformat(str(value).replace("Z", "+00:00"))
    except ValueError:
        return otherwise
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
