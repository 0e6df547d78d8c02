"""A table on the terminal that is drawn anew in its place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.table import Table


@contextmanager
def live_table(
    title: str, console: Console | None = None
) -> Iterator[Callable[[Sequence[tuple[str, str]]], None]]:
    """Yield a function that shows names and values in place of those before."""
    with Live(console=console, auto_refresh=False) as live:

        def show(rows: Sequence[tuple[str, str]]) -> None:
            table = Table(title=title, show_header=False)
            for name, value in rows:
                table.add_row(name, value)
            live.update(table, refresh=True)

        yield show
