"""What the benchmarks here share: their options, and in one place what they take from the package."""

from __future__ import annotations

from dataclasses import dataclass

from daskcluster.bench.machine import cpu_name, machine
from daskcluster.bench.page import write_section
from daskcluster.bench.parts import Figure, Note, Table
from daskcluster.bench.race import REST, Outcome, race, rest, say, turns
from daskcluster.bench.rows import mixture, mnist
from daskcluster.bench.settings import Settings

__all__ = [
    "REST", "Figure", "Note", "Options", "Outcome", "Table", "cpu_name", "machine", "mixture", "mnist",
    "race", "rest", "say", "turns", "write_section",
]  # fmt: skip


@dataclass(frozen=True)
class Options(Settings):
    """What the command line asked for.

    Attributes
    ----------
    seeds : int
        Random beginnings, of benchmarks that average over them.
    sets : tuple of str
        Only these sets, of benchmarks that have several; empty for all.
    """

    seeds: int = 20
    sets: tuple[str, ...] = ()
