"""Callbacks for the compilation of kernels, for progress messages.

Imports nothing, so that a command can use it before it needs numba.
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
        Gets the number of kernels that this process has started to compile. Called in the thread that waits
        for the kernel.
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
