"""Output of commands: a short table or one JSON object on stdout, progress on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import click

from daskcluster.events import Callback
from daskcluster.kernels.compiling import watched

QUIET = "daskcluster.quiet"
"""Key of ``--quiet`` in the context of a command."""


def _is_quiet() -> bool:
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(QUIET))


def emit(record: dict[str, Any], rows: Sequence[tuple[str, str]], *, as_json: bool) -> None:
    """Write `rows` as a table, or `record` as JSON in the last line of stdout."""
    if as_json:
        click.echo(json.dumps(record, allow_nan=False))
        return
    if _is_quiet():
        return
    width = max((len(name) for name, _ in rows), default=0)
    for name, value in rows:
        click.echo(f"{name:<{width}}  {value}")


@contextmanager
def watching(progress: bool | None) -> Iterator[tuple[Callback, ...]]:
    """Yield the callbacks that show progress on stderr, if enabled."""
    terminal = sys.stderr.isatty()
    if _is_quiet():
        yield ()
        return
    if not (terminal if progress is None else progress):
        yield ()
        return
    if not terminal:
        from daskcluster.reports.progress import ProgressLines

        yield (ProgressLines(_to_stderr),)
    else:
        from daskcluster.reports.progress import ProgressDisplay

        with ProgressDisplay() as display, watched(display.compiling):
            yield (display,)
    _tell_of_compiling()


def _tell_of_compiling() -> None:
    """Report the kernels compiled in this process, which explain a slow first run."""
    # Commands without kernels do not import numba.
    if "daskcluster.kernels.jit" not in sys.modules:
        return
    from daskcluster.kernels.jit import compilations

    _, compiled = compilations()
    if compiled:
        _to_stderr(f"{compiled} kernels were compiled for this machine; later runs reuse them")


@dataclass(frozen=True)
class Console:
    """The values of ``--json`` and ``--progress``."""

    as_json: bool = False
    progress: bool | None = None

    def emit(self, record: dict[str, Any], rows: Sequence[tuple[str, str]]) -> None:
        """Write the result; see `emit`."""
        emit(record, rows, as_json=self.as_json)

    def watching(self) -> AbstractContextManager[tuple[Callback, ...]]:
        """Return a context manager of the command's callbacks; see `watching`."""
        return watching(self.progress)


def _to_stderr(text: str) -> None:
    click.echo(text, err=True)


Write = Callable[[str], None]
