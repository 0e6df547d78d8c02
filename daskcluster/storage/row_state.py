"""Per-row state in a folder of files, to restore rows of lost workers or of a resumed fit."""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_right
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskcluster.errors import CheckpointError
from daskcluster.storage.files import explained, list_names, open_file, remove_folder, write_file
from daskcluster.storage.location import Location
from daskcluster.storage.process_local import open_once

_STORED = np.dtype("<i4")
_DIGEST_BYTES = 32
_NAME = re.compile(r"(\d{15})-(\d{15})\.state")
_READERS = 8

Run = tuple[int, int, str]
"""First row, end row (exclusive), and file name."""


@dataclass(frozen=True)
class StateFiles:
    """State of all rows after one pass, with one file per range of rows written together.

    Any number of tasks may write, even the same rows twice or in other ranges, since the values are the
    same. A file holds a SHA-256 digest and the plain numbers; its name gives their count, and reading
    checks both. Picklable, without credentials.

    Attributes
    ----------
    folder : Location
        Folder of these files only; created with the first file.
    width : int
        Numbers per row.
    kept : bool
        The files must outlive the fit: raise errors of the store, and flush files to disk.

    Examples
    --------
    >>> import numpy as np
    >>> from daskcluster.storage.location import locate
    >>> files = StateFiles(locate("memory://state-example"), 2)
    >>> files.write(0, np.arange(6).reshape(3, 2)), files.write(3, np.arange(4).reshape(2, 2))
    (True, True)
    >>> files.read(2, 4).tolist()
    [[4, 5], [0, 1]]
    >>> files.remove()
    """

    folder: Location
    width: int
    kept: bool = False

    def write(self, start: int, values: np.ndarray) -> bool:
        """Write the state of the rows from `start` on, int32 (m, width).

        Returns
        -------
        bool
            False if the store fails.

        Raises
        ------
        OSError
            The store fails and the files are `kept`; or another error of the store's client.
        """
        payload = np.ascontiguousarray(values, _STORED).tobytes()
        name = f"{start:015d}-{start + len(values):015d}.state"
        content = hashlib.sha256(payload).digest() + payload
        try:
            write_file(self.folder, name, content, durable=self.kept)
        except Exception:  # clouds' clients have error classes of their own
            if self.kept:
                raise
            return False
        return True

    def read(self, start: int, stop: int) -> np.ndarray:
        """Return the state of rows `start` to `stop`, int32 (stop - start, width).

        Raises
        ------
        CheckpointError
            Some of them are missing or damaged.
        """
        # Listed once per process.
        parts, at, runs = [], start, open_once(("state files", self), self._runs)
        begin = max(0, bisect_right(runs, start, key=lambda run: run[0]) - 1)
        for index in range(begin, len(runs)):
            first, last, name = runs[index]
            if at >= stop:
                break
            if first <= at < last:
                found = self._content(first, last, name)
                parts.append(found[at - first : min(last, stop) - first])
                at = min(last, stop)
        if at < stop:
            raise CheckpointError(
                f"the saved state of rows {at} to {stop} is not in {self.folder.url!r}, as seen from "
                "this host; keep all workers on the driver's host, or give a checkpoint= URL that all "
                "of them can read."
            )
        return np.array(parts[0]) if len(parts) == 1 else np.concatenate(parts)

    def check(self, n_rows: int, *, whole: bool = True) -> None:
        """Raise if the files do not hold the state of all rows.

        Parameters
        ----------
        n_rows : int
        whole : bool
            Also read all files and check their digests.

        Raises
        ------
        CheckpointError
        """
        at, runs = 0, self._runs()
        for first, last, _ in runs:
            at = last if first <= at else at
        if at < n_rows:
            raise CheckpointError(
                f"the state of rows {at} to {n_rows} that workers have written is not in "
                f"{self.folder.url!r}, as seen from the driver; give a checkpoint= URL that the driver "
                "and all workers can use: a bucket, or a shared folder."
            )
        if whole:
            with ThreadPoolExecutor(_READERS, thread_name_prefix="daskcluster-state") as pool:
                for _ in pool.map(lambda run: self._content(*run) is None, runs):
                    pass

    def remove(self) -> None:
        """Remove the folder and its files; ignore errors."""
        with suppress(Exception):  # clouds' clients have error classes of their own
            remove_folder(self.folder)

    # -- files -------------------------------------------------------------------------------------

    def _content(self, first: int, last: int, name: str) -> np.ndarray:
        expected = _DIGEST_BYTES + (last - first) * self.width * _STORED.itemsize
        # Read one byte more than expected, to detect a file that is too large.
        with explained(self.folder, "saved state"), open_file(self.folder, name) as file:
            content: Any = file.read(expected + 1)
        digest, payload = content[:_DIGEST_BYTES], memoryview(content)[_DIGEST_BYTES:]
        if len(content) != expected or hashlib.sha256(payload).digest() != digest:
            raise CheckpointError(
                f"the saved state of rows {first} to {last} in {self.folder.url!r} is damaged; remove "
                "that checkpoint, or start without resume."
            )
        found = np.frombuffer(payload, _STORED).reshape(-1, self.width)
        return found.astype(np.int32, copy=False)

    def _runs(self) -> list[Run]:
        """Return all files that add rows, sorted by rows."""
        runs, at = list[Run](), 0
        for match in filter(None, map(_NAME.fullmatch, list_names(self.folder))):
            first, last = int(match.group(1)), int(match.group(2))
            if last > at:
                at = last
                runs.append((first, last, match.group(0)))
        return runs
