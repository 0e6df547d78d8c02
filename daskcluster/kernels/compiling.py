"""Callbacks for the compilation of kernels, for progress messages.

Imports nothing, so that a command can ask before it needs numba.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Tell = Callable[[int], None]

_watchers: list[Tell] = []


@contextmanager
def watched(tell: Tell) -> Iterator[None]:
    """While this is open, call `tell` before each kernel is compiled.

    Parameters
    ----------
    tell : callable (number) -> None
        The kernel is the number-th that this process compiles. Called in the thread that waits for it.
    """
    _watchers.append(tell)
    try:
        yield
    finally:
        _watchers.remove(tell)


def announce(number: int) -> None:
    """Call all callbacks."""
    for tell in list(_watchers):
        tell(number)
