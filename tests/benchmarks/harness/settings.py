"""Settings of a benchmark."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.harness.race import say


@dataclass(frozen=True)
class Settings:
    """How a benchmark runs.

    Attributes
    ----------
    quick : bool
        Use small shapes, to check that it runs; the figures mean nothing.
    data, scratch : Path or None
        Folder of data sets; folder for large files that a benchmark writes.
    threads, repeats : int
        Threads of every program; runs for each median.
    images : Path or None
        Folder for plots, next to the page; None for text only.
    keep : bool
        Keep the files in `scratch` for the next run.
    seeds : int
        Number of random seeds, for benchmarks that average over them.
    sets : tuple of str
        Only these data sets; empty for all.
    peers : tuple of str
        Further libraries as ``NAME=MODULE:FUNCTION``; see `tests.benchmarks.harness.peers`.
    tell : callable
        Called with a line of progress.
    """

    quick: bool = False
    data: Path | None = None
    threads: int = 2
    repeats: int = 5
    scratch: Path | None = None
    images: Path | None = None
    keep: bool = False
    seeds: int = 20
    sets: tuple[str, ...] = ()
    peers: tuple[str, ...] = ()
    tell: Callable[[str], None] = say

    def folder(self, name: str) -> Path:
        """Return the folder `name` for large files."""
        return (self.scratch or Path(tempfile.gettempdir())) / name
