"""``python -m tests.benchmarks NAME``: comparisons, figures of papers, and the scaling model.

``compare`` measures other libraries and saves each cell, and the name of a comparison is short for
``compare --only NAME``; every other name writes one section.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from daskcluster.cli.main import Commands
from tests.benchmarks.harness.catalogue import COMPARISONS
from tests.benchmarks.harness.machine import facts
from tests.benchmarks.harness.page import Run
from tests.benchmarks.harness.race import say
from tests.benchmarks.harness.settings import Settings

BENCHMARKS = {
    "bounds-ooc": "tests.benchmarks.bench_bounds_ooc",
    "nested-digits": "tests.benchmarks.nested_digits",
    "stream": "tests.benchmarks.bench_stream",
    "stream-drift": "tests.benchmarks.bench_stream_drift",
    "kernel-rows": "tests.benchmarks.bench_kernel_rows",
    "scaling": "tests.benchmarks.scaling",
    "hierarchical": "tests.benchmarks.hierarchical",
    "balanced-sample": "tests.benchmarks.balanced_sample",
    "allocator": "tests.benchmarks.bench_allocator",
    "parquet": "tests.benchmarks.bench_parquet",
    "near-duplicates": "tests.benchmarks.near_duplicates",
    "index-partitions": "tests.benchmarks.index_partitions",
}
"""Measurements of this library alone."""
REPRODUCTIONS = {
    "backward-euler": "tests.benchmarks.backward_euler",
    "figure2": "tests.benchmarks.figure2",
    "figure3": "tests.benchmarks.figure3",
    "kernel": "tests.benchmarks.kernel_kmeans",
    "table1": "tests.benchmarks.table1",
    "vc-gmm": "tests.benchmarks.vc_gmm",
    "vrkm": "tests.benchmarks.vrkm",
    "vrkm-rates": "tests.benchmarks.vrkm.rates",
}
"""Figures and tables of papers, on stand-ins for their data; they take hours and are not part of `all`."""
GROUPS = {"all": list(BENCHMARKS), "reproduction": list(REPRODUCTIONS)}
COMMANDS = {
    "compare": "tests.benchmarks.harness.compare",
    "size": "tests.benchmarks.scaling.size",
    "calibrate": "tests.benchmarks.scaling.calibrate",
    "speed": "tests.benchmarks.harness.speed",
}
"""Commands with their own options; each module has a ``command``."""

SEEDED = (
    "nested-digits", "figure2", "figure3", "vc-gmm", "vrkm", "backward-euler",
    "kernel", "stream",
)  # fmt: skip
"""Benchmarks that average over seeds."""
SEEDS = 20
"""Default number of seeds of modules without a ``SEEDS``."""


class Benchmarks(Commands):
    """One command for each benchmark; its module is imported when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*COMMANDS, *BENCHMARKS, "all", *REPRODUCTIONS, "reproduction"]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in COMMANDS:
            return importlib.import_module(COMMANDS[cmd_name]).command
        if cmd_name in self.list_commands(ctx):
            return section_command(cmd_name)
        return None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        # The name of a comparison is short for `compare --only NAME`.
        only = ["compare", "--only"] if args[0] in COMPARISONS else []
        return click.Group.resolve_command(self, ctx, [*only, *args])

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        click.Group.format_commands(self, ctx, formatter)


@click.group("python -m tests.benchmarks", cls=Benchmarks)
def main() -> None:
    """Compare with other libraries, reproduce the figures of papers, and size clusters."""


def section_command(name: str) -> click.Command:
    """Return the command that writes the section `name`, or all those of a group."""
    many = name in GROUPS
    about = (
        f"Write the sections {', '.join(GROUPS[name])}." if many else f"Write the section {name}."
    )
    folder = click.Path(file_okay=False, path_type=Path)
    options = [
        click.Option(["--quick"], is_flag=True, help="Use small shapes, to check that it runs."),
        click.Option(
            ["--data"],
            type=folder,
            envvar="DASKCLUSTER_DATA",
            metavar="DIR",
            help="Folder with mnist.npz, birch2.npz, worms_2.npz, cifar10_test10k.npz, "
            "kddcup99_10pct.npz, text_la1.npz, cod_rna.npz. Default: $DASKCLUSTER_DATA. Missing "
            "sets are generated or left out, with a note.",
        ),
        click.Option(["--threads"], type=int, default=min(2, os.cpu_count() or 1)),
        click.Option(["--repeats"], type=int, default=5, help="Number of runs; medians are shown."),
        click.Option(
            ["--output"],
            type=click.Path(dir_okay=False, path_type=Path),
            metavar="FILE.md",
            help="Replace the section in this file; plots and tables go to images/ and results/.",
        ),
        click.Option(
            ["--scratch"],
            type=folder,
            metavar="DIR",
            help="Folder for large files. Default: the system's temporary folder.",
        ),
        click.Option(["--keep"], is_flag=True, help="Keep these files for the next run."),
        click.Option(
            ["--seeds"],
            type=int,
            help="Number of random seeds, for benchmarks that average over them. "
            f"Default: {SEEDS}, or the default of the benchmark; figure2, figure3, kernel, vc-gmm and "
            "vrkm show their saved fits with 0.",
        ),
        click.Option(
            ["--sets"],
            callback=lambda ctx, option, text: tuple(text.split(",")) if text else (),
            metavar="NAME,...",
            help="Only these data sets, for benchmarks that have several.",
        ),
    ]

    if name == "reproduction":
        about_claims = "Print what the published results say of each claim, and run nothing."
        options.append(click.Option(["--verdicts"], is_flag=True, help=about_claims))

    def write(*, verdicts: bool = False, **asked: Any) -> None:
        if verdicts:
            write_verdicts(asked["output"])
        else:
            write_sections(GROUPS.get(name, [name]), **asked)

    return click.Command(name, callback=write, params=options, help=about, short_help=about)


def write_sections(
    names: list[str], *, output: Path | None, seeds: int | None, **asked: Any
) -> None:
    """Run benchmarks; print each section and write it into `output`."""
    settings = Settings(images=None if output is None else output.parent / "images", **asked)
    for name in names:
        benchmark = importlib.import_module((BENCHMARKS | REPRODUCTIONS)[name])
        many = getattr(benchmark, "SEEDS", SEEDS) if seeds is None else seeds
        settings = replace(settings, seeds=many)
        say(f"{name}: takes {benchmark.TAKES}")
        where, begin = facts(), time.perf_counter()
        parts = benchmark.run(settings)
        seconds = time.perf_counter() - begin
        run = Run(name, benchmark.ABOUT, command(name, settings), seconds, where, parts)
        sys.stdout.write(run.markdown())
        if output is not None:
            tables = output.parent / "results" / "tables"
            run.write_tables(tables)
            run.write_section(output, tables)


def write_verdicts(output: Path | None) -> None:
    """Print the claims of the papers with our findings, and write them into `output`."""
    from tests.benchmarks import verdicts

    sys.stdout.write("\n".join(table.markdown() for _, table in verdicts.tables()))
    if output is not None:
        verdicts.write(output)


def command(name: str, settings: Settings) -> str:
    """Return the command that repeats this run, without paths of this machine."""
    words = ["python -m tests.benchmarks", name]
    words += ["--quick"] if settings.quick else []
    words += ["--data DIR"] if settings.data is not None else []
    words += [f"--sets {','.join(settings.sets)}"] if settings.sets else []
    words += [f"--seeds {settings.seeds}"] if name in SEEDED else []
    words += [f"--threads {settings.threads}", f"--repeats {settings.repeats}"]
    return " ".join(words)


if __name__ == "__main__":
    main()
