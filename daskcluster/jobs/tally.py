"""What a job counts while it runs."""

from __future__ import annotations

import time
from typing import Any

from daskcluster.events import Event, PassEnded
from daskcluster.models.versions import created_with
from daskcluster.typing import Dataset


class Tally:
    """Counts passes and bytes from the events of a job."""

    def __init__(self) -> None:
        self.passes = 0
        self.bytes_read = 0
        self._began = time.perf_counter()

    def __call__(self, event: Event) -> None:
        if isinstance(event, PassEnded):
            self.passes += 1
            self.bytes_read += event.bytes_read

    def at_least(self, passes: int, bytes_read: int) -> None:
        """Count what a fit that was resumed had done before."""
        self.passes = max(self.passes, passes)
        self.bytes_read = max(self.bytes_read, bytes_read)

    def common(self, dataset: Dataset) -> dict[str, Any]:
        """Return the fields that all records share."""
        return {
            "n_rows": dataset.n_rows,
            "n_features": dataset.n_features,
            "passes": self.passes,
            "bytes_read": self.bytes_read,
            "seconds": time.perf_counter() - self._began,
            "versions": created_with(),
        }
