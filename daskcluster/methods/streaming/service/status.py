"""How a stream is, for people and programs that look from outside: one small file beside the state."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from daskcluster.errors import DatasetNotFoundError
from daskcluster.methods.streaming.service.cycle import Cycle
from daskcluster.methods.streaming.service.ledger import Ledger
from daskcluster.storage.fields import plain
from daskcluster.storage.files import read_file
from daskcluster.storage.location import locate

STATUS = "status.json"

_LAST = 10
_MOST_FINDINGS = 50


def status_of(cycle: Cycle, ledger: Ledger) -> dict[str, Any]:
    """Return what there is to say after a cycle, as plain values."""
    rejected = sum(entry.is_rejected for entry in ledger.entries)
    found = cycle.as_dict()
    findings = found.pop("findings")
    counts = Counter(each["what"] for each in findings)
    status: dict[str, Any] = plain(
        {
            **found,
            "updated": time.time(),
            "rejected": rejected,
            "oddities": dict(sorted(counts.items())),
            "findings": findings[:_MOST_FINDINGS],
            "last_objects": [
                {"name": entry.name, "rows": entry.n_rows, "note": entry.note}
                for entry in ledger.entries[-_LAST:]
            ],
        }
    )
    return status


def read_status(url: Any, storage_options: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the status of the stream whose state is at `url`.

    Raises
    ------
    DatasetNotFoundError
        There is none.
    """
    place = locate(url, storage_options)
    content = read_file(place, STATUS)
    if content is None:
        raise DatasetNotFoundError(
            f"There is no state of a stream at {place.url!r}; give the URL that was --state of "
            "daskcluster stream."
        )
    found: dict[str, Any] = json.loads(content)
    return found
