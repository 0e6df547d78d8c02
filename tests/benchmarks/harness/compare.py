"""``python -m tests.benchmarks compare``: compare with other libraries on this machine."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from daskcluster.cli.console import Console
from daskcluster.cli.options import OUTPUT, SHOWN, SectionedCommand, option, output_options
from daskcluster.errors import InvalidParameterError

MEASURED = "What is measured"


@click.command("compare", cls=SectionedCommand)
@option(
    "--only",
    section=MEASURED,
    multiple=True,
    metavar="NAME[/TEXT]",
    help="Run this comparison, or its cells whose names contain TEXT; repeatable. Default: all.",
)
@option(
    "--list", "listed", section=SHOWN, is_flag=True, help="List the comparisons and their times."
)
@option("--quick", section=MEASURED, is_flag=True, help="Use small shapes, to check that it runs.")
@option(
    "--peer",
    "peers",
    section=MEASURED,
    multiple=True,
    metavar="NAME=MODULE:FUNCTION",
    help="Compare Lloyd iterations with another library, too: a function (rows, centres, iterations, "
    "threads) -> (centres, iterations); repeatable.",
)
@option(
    "--data",
    section=MEASURED,
    type=click.Path(file_okay=False, exists=True, path_type=Path),
    envvar="DASKCLUSTER_DATA",
    metavar="DIR",
    help="Folder with mnist.npz, birch2.npz, worms_2.npz. Default: $DASKCLUSTER_DATA. Missing sets are "
    "generated or left out, with a note.",
)
@option(
    "--threads",
    section=MEASURED,
    type=click.IntRange(min=1),
    default=min(2, os.cpu_count() or 1),
    show_default=True,
    help="Threads of every program.",
)
@option(
    "--repeats",
    section=MEASURED,
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    help="Number of runs; medians are compared.",
)
@option(
    "--without-avx512",
    section=MEASURED,
    is_flag=True,
    help="Restrict all programs to AVX2, as on a CPU without AVX-512; fills the column of the summary.",
)
@option(
    "--seeds",
    section=MEASURED,
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    help="Number of random seeds for nested mini-batches.",
)
@option(
    "--output",
    section=OUTPUT,
    default="daskcluster-compare",
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Folder for benchmarks.md, images/ and results/, where each cell is saved at once.",
)
@option("--again", section=OUTPUT, is_flag=True, help="Measure all cells again, also saved ones.")
@option(
    "--render",
    section=OUTPUT,
    is_flag=True,
    help="Write the page from saved cells, without measuring.",
)
@option(
    "--scratch",
    section=OUTPUT,
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Folder for temporary stores. Default: the system's temporary folder.",
)
@option("--keep", section=OUTPUT, is_flag=True, help="Keep these stores for the next run.")
@output_options
def command(
    only: tuple[str, ...],
    listed: bool,
    output: Path,
    again: bool,
    render: bool,
    without_avx512: bool,
    as_json: bool,
    progress: bool | None,
    quiet: bool,
    **settings: Any,
) -> None:
    """Compare with scikit-learn, its extension for Intel, Faiss and dask-ml on this machine.

    Programs take turns, and medians are compared if the results are equally good. Libraries that are not
    installed are left out: pip install "daskcluster[benchmark]". An interrupted run resumes.
    """
    from tests.benchmarks.harness import mask
    from tests.benchmarks.harness.catalogue import COMPARISONS
    from tests.benchmarks.harness.peers import adapter
    from tests.benchmarks.harness.run import Bench, Choice
    from tests.benchmarks.harness.settings import Settings

    if listed:
        for name, entry in COMPARISONS.items():
            click.echo(f"{name}: {entry.what}; {entry.takes}")
        return
    if without_avx512 and not mask.is_masked():
        # Libraries read these variables when they are loaded, so start the process again.
        words = [sys.executable, "-m", "tests.benchmarks", *sys.argv[1:]]
        os.execve(sys.executable, words, mask.without_avx512(os.environ))
    if quiet or progress is False:
        settings["tell"] = lambda text: None
    try:
        choices = [Choice.of(word) for word in only or COMPARISONS]
        for peer in settings["peers"]:
            adapter(peer)
        bench = Bench(Settings(**settings), output, again=again)
        bench.check(choices)
    except InvalidParameterError as error:
        raise click.UsageError(str(error)) from error
    for text in bench.render(choices) if render else bench.run(choices):
        if not as_json:
            click.echo(text)
    rows = [("page", str(bench.page)), ("measured", f"{bench.measured} cells, {bench.kept} kept")]
    Console(as_json, quiet=quiet).emit(_record(bench), rows)


def _record(bench: Any) -> dict[str, Any]:
    return {
        "page": str(bench.page),
        "results": str(bench.results.folder),
        "measured": bench.measured,
        "kept": bench.kept,
        "targets": bench.results.read("targets"),
    }
