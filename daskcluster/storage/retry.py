"""Retries of calls to a remote store after transient failures.

The clients of the clouds retry by themselves, for about two seconds. Servers that are overloaded, a
token that is being renewed, a connection that is cut in the middle of a body take longer; here such
calls are made again for about ten seconds. What a second try would meet again is raised at once.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from daskcluster.errors import DaskClusterError
from daskcluster.storage.location import Location
from daskcluster.typing import Visibility

T = TypeVar("T")

PAUSES = (0.2, 0.6, 1.8, 5.4)
"""Seconds before the second try, the third and so on; each up to half longer, so that many tasks part."""

MOST_SECONDS = 60.0
"""Calls of a client that retries by itself are not repeated."""

_LISTINGS = 100
"""A store that changes in all of these is not read by chance at a bad moment."""

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
    """Return what `call` returns, made again when the store at `location` fails for a moment.

    Parameters
    ----------
    call : callable () -> object
        May be made several times: it reads, or writes the same again.
    location : Location or None
        What is on a local disk or in memory is not tried again, nor what has no URL.
    damaged : bool
        Also make it again where what arrived cannot be decoded: a body may have been cut short.

    Raises
    ------
    Exception
        What the last try raised.

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
    """Return what `call` lists, made again if that changes meanwhile.

    The stores that fsspec keeps in memory are dictionaries, which another thread may write to meanwhile.

    Raises
    ------
    Exception
        What `call` raised.

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
    """Return True for an error of the network or of a busy server, which may be gone in a second.

    Examples
    --------
    >>> is_passing(TimeoutError()), is_passing(ConnectionResetError()), is_passing(ValueError())
    (True, True, False)
    """
    if isinstance(error, _LASTING):
        return False
    # aiohttp's, botocore's and azure's errors are no OSError; all say in their names what they are.
    name = type(error).__name__
    words = (
        "Timeout",
        "Connect",
        "Payload",
        "Disconnected",
        "IncompleteRead",
        "HttpError",
        "HttpResponse",
    )
    return isinstance(error, (OSError, EOFError)) or any(word in name for word in words)
