"""How parameters go to the workers and totals come back: rules of bytes and tasks alone."""

from __future__ import annotations

INLINE_BYTES = 1 << 20
"""An errand up to this size may travel inside every task; a larger one is broadcast once."""
INLINE_TOTAL_BYTES = 16 << 20
"""All that travels inside the tasks of a pass goes through client and scheduler: more is broadcast."""
TREE_BYTES = 256 * 1024**2
"""Totals of a pass up to this size together all come to the driver; more are combined on workers."""
FAN_IN = 8
FETCHED_TOGETHER = 8
"""Outcomes that have arrived and are under way to the driver at the same time: the way from a worker is
longer than what the driver does with one of them."""


def is_inline(size: int, n_tasks: int) -> bool:
    """Whether an errand of `size` bytes travels inside each of `n_tasks` tasks.

    Examples
    --------
    >>> is_inline(500_000, 2), is_inline(500_000, 1000), is_inline(5_000_000, 2)
    (True, False, False)
    """
    return size <= INLINE_BYTES and size * n_tasks <= INLINE_TOTAL_BYTES


def is_heavy(size: int, n_tasks: int) -> bool:
    """Whether totals of `size` bytes from each of `n_tasks` tasks are combined on workers.

    Examples
    --------
    >>> is_heavy(1_000_000, 100), is_heavy(1_000_000, 1000)
    (False, True)
    """
    return size * n_tasks > TREE_BYTES


def through_driver(sent: int, returned: int, n_tasks: int) -> int:
    """Return the bytes that client and scheduler handle for each of `n_tasks` tasks.

    Parameters
    ----------
    sent, returned : int
        Bytes of the errand and of the totals of a task.
    n_tasks : int

    Examples
    --------
    >>> through_driver(500_000, 1_000_000, 10)
    1500000
    >>> through_driver(5_000_000, 1_000_000, 1000)
    0
    """
    out = sent if is_inline(sent, n_tasks) else 0
    return out if is_heavy(returned, n_tasks) else out + returned
