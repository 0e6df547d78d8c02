"""Per-row state in a folder of files: what a fit may begin again from."""

from __future__ import annotations

import os
import shutil
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from daskcluster.errors import ReachError

_SUFFIX = ".npy"


@dataclass(frozen=True)
class StateFiles:
    """State of all rows after one pass, in a file for each run of rows that was written at once.

    Any number of tasks write, also the same rows twice or cut differently: the values are the same then.

    Attributes
    ----------
    folder : str
        Its own; made when the first rows are written.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> files = StateFiles(tempfile.mkdtemp())
    >>> files.write(0, np.arange(3)), files.write(3, np.arange(3, 5))
    (True, True)
    >>> files.read(2, 5).tolist()
    [2, 3, 4]
    """

    folder: str

    def write(self, start: int, values: np.ndarray) -> bool:
        """Write the state of the rows from `start` on; False if the disk does not take it."""
        folder = Path(self.folder)
        name = f"{start:015d}-{start + len(values):015d}"
        part = folder / f"{name}.{os.getpid()}-{threading.get_ident()}.part"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with part.open("wb") as file:
                np.save(file, values, allow_pickle=False)
            part.replace(folder / f"{name}{_SUFFIX}")
        except OSError:
            with suppress(OSError):
                part.unlink()
            return False
        return True

    def read(self, start: int, stop: int) -> np.ndarray:
        """Return the state of rows `start` to `stop`.

        Raises
        ------
        ReachError
            Some of them cannot be read here.
        """
        parts, at = [], start
        for first, last, path in self._runs():
            if first <= at < last and at < stop:
                found = np.load(path, mmap_mode="r", allow_pickle=False)
                parts.append(np.array(found[at - first : min(last, stop) - first]))
                at = min(last, stop)
        if at < stop:
            raise ReachError(
                f"the saved state of rows {at} to {stop} is not in {self.folder!r} on this host; keep all "
                "workers on the host of the driver while the fit runs, or start it again."
            )
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def remove(self) -> None:
        """Remove the folder and what is in it."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _runs(self) -> list[tuple[int, int, Path]]:
        paths = sorted(Path(self.folder).glob(f"*{_SUFFIX}"))
        return [(*map(int, path.stem.split("-")), path) for path in paths]  # type: ignore[misc]
