"""``daskcluster warm-up``."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import click

from daskcluster.cli.execution import Console
from daskcluster.cli.options import SectionedCommand, takes_console

_FOLDER = click.Path(file_okay=False, path_type=Path)


@click.command("warm-up", cls=SectionedCommand)
@click.option(
    "--output",
    metavar="FOLDER",
    type=_FOLDER,
    help="Write kernels to one subfolder per CPU, for shipping. Default: fill this machine's own cache.",
)
@click.option(
    "--cpu",
    "cpus",
    metavar="NAME",
    multiple=True,
    help="With --output: x86-64-v3, x86-64-v4 or neoverse-n1; repeatable. This machine must be able to run "
    "its code. Default: all of them that it can run.",
)
@click.option(
    "--take",
    metavar="FOLDER",
    type=_FOLDER,
    help="Copy kernels that were shipped in FOLDER to NUMBA_CACHE_DIR, if they suit this machine and this "
    "version, and print shell commands that set the variables numba needs.",
)
@takes_console
def warm_up(
    output: Path | None, cpus: tuple[str, ...], take: Path | None, console: Console
) -> None:
    """Compile kernels before the first fit needs them; a minute or two for each CPU."""
    if (cpus and output is None) or (take and output):
        raise click.UsageError(
            "--cpu needs --output, and --take works with neither; give --output FOLDER with --cpu."
        )
    if take is not None:
        cache = os.environ.get("NUMBA_CACHE_DIR")
        if not cache:
            raise click.UsageError(
                "--take copies to NUMBA_CACHE_DIR, which is not set; set it to a folder."
            )
        from daskcluster.jobs.kernel_cache import settings
        from daskcluster.jobs.kernel_cache import take as take_shipped
        from daskcluster.kernels.jit import sources_digest

        cpu = take_shipped(take, Path(cache), sources_digest())
        for name, value in settings(cpu).items() if cpu else ():
            click.echo(f"export {name}={shlex.quote(value)}")
    elif output is not None:
        _ship(output, cpus, console)
    else:
        from daskcluster.jobs.kernel_cache import fill

        with console.watching():
            compiled = fill()
        console.emit({"compiled": compiled}, [("compiled", f"{compiled} kernels")])


def _ship(output: Path, cpus: tuple[str, ...], console: Console) -> None:
    from daskcluster.jobs.kernel_cache import CPUS, runnable, ship

    known = runnable()
    if not known:
        raise click.UsageError(
            f"--output fills folders for {', '.join(CPUS)}, and this machine can run code for none of "
            "them; fill them on a machine that can, or let the first fit on each machine compile its "
            "kernels."
        )
    for cpu in cpus:
        if cpu not in known:
            raise click.UsageError(
                f"--cpu {cpu}: this machine can run code for {', '.join(known)}; fill the folder on a "
                "machine with the features of that CPU."
            )
    filled = list(cpus) or known
    for cpu in filled:
        ship(cpu, output)
    console.emit(
        {"output": str(output), "cpus": filled},
        [("output", str(output)), ("CPUs", ", ".join(filled))],
    )
