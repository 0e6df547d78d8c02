"""Retries of calls to a remote store after transient failures.

Cloud clients retry by themselves for about two seconds. An overloaded server, a token that is being renewed
or a connection cut in the middle of a body can take longer, so such calls are repeated for about ten
seconds. Errors that a retry would raise again are raised at once.
"""

from __future__ import annotations

import gzip
import random
import time
from collections.abc import Callable
from typing import TypeVar

from daskcluster.errors import DaskClusterError
from daskcluster.storage.location import Location
from daskcluster.typing import Visibility

T = TypeVar("T")

PAUSES = (0.2, 0.6, 1.8, 5.4)
"""Seconds before each retry, plus up to half of that at random, so that tasks do not retry together."""

MOST_SECONDS = 60.0
"""A call that failed after longer than this is not repeated: its client has retried long enough."""

_LISTINGS = 100
"""Most attempts to list a store that changes meanwhile."""

_LASTING = (
    DaskClusterError,
    FileNotFoundError,
    FileExistsError,
    PermissionError,
    IsADirectoryError,
    NotADirectoryError,
    ImportError,
    MemoryError,
)


def retry(call: Callable[[], T], location: Location | None, *, damaged: bool = False) -> T:
    """Return ``call()``; repeat it after transient failures of the store at `location`.

    Parameters
    ----------
    call : callable () -> object
        Must be repeatable: it reads, or writes the same again.
    location : Location or None
        Calls are not repeated for local disks, memory or None.
    damaged : bool
        Also repeat the call if the received data cannot be decoded: a body may have been cut short.

    Raises
    ------
    Exception
        The error of the last attempt.

    Examples
    --------
    >>> from daskcluster.storage.location import locate
    >>> retry(lambda: 7, locate("s3://bucket/rows.zarr"))
    7
    """
    if location is None or location.visibility is not Visibility.EVERYONE:
        return call()
    began = time.monotonic()
    for pause in PAUSES:
        try:
            return call()
        except _LASTING:
            raise
        except Exception as error:  # clouds' clients have error classes of their own
            waited = time.monotonic() - began
            if waited > MOST_SECONDS or not (damaged or is_passing(error)):
                raise
        time.sleep(pause * random.uniform(1.0, 1.5))
    return call()


def while_others_write(call: Callable[[], T]) -> T:
    """Return ``call()``, a listing; repeat it if the store changes meanwhile.

    fsspec's in-memory stores are dictionaries, which raise if another thread changes them meanwhile.

    Raises
    ------
    Exception
        Any other error of `call`.

    Examples
    --------
    >>> while_others_write(lambda: ["a.json"])
    ['a.json']
    """
    for _ in range(_LISTINGS):
        try:
            return call()
        except RuntimeError as error:
            if "changed size during iteration" not in str(error):
                raise
    return call()


def is_passing(error: BaseException) -> bool:
    """Return True for errors of the network or a busy server, which a retry may avoid.

    Examples
    --------
    >>> is_passing(TimeoutError()), is_passing(ConnectionResetError()), is_passing(ValueError())
    (True, True, False)
    """
    if isinstance(error, (*_LASTING, gzip.BadGzipFile)):
        return False
    # Errors of aiohttp, botocore and azure are not OSErrors, so go by the names of their classes.
    name = type(error).__name__
    words = "Timeout Connect Payload Disconnected IncompleteRead HttpError HttpResponse".split()
    return isinstance(error, (OSError, EOFError)) or any(word in name for word in words)
