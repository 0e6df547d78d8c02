"""What was asked of a benchmark."""

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
        Small shapes, to see that it runs; the figures say nothing.
    data, scratch : Path or None
        Folder of data sets; folder for large files that a benchmark writes.
    threads, repeats : int
        Of every program; runs of which the median counts.
    images : Path or None
        Folder for plots, next to the page that gets the section; None where only text is wanted.
    keep : bool
        Leave what was written to `scratch` for the next run.
    seeds : int
        Random beginnings, of benchmarks that average over them.
    sets : tuple of str
        Only these sets, of benchmarks that have several; empty for all.
    peers : tuple of str
        Further libraries as ``NAME=MODULE:FUNCTION``; see `tests.benchmarks.harness.peers`.
    tell : callable
        Takes a line about what is continuing.
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
