"""A remote store that fails on demand: ``faulty://`` paths, stored in a local folder.

Faults are set on the class, in this process: a name, how often, and on which objects. The store then raises
the exceptions of the cloud clients, or returns damaged bytes.
"""

from __future__ import annotations

import errno
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import fsspec
from fsspec.implementations.local import LocalFileSystem


class ServerError(OSError):
    """A 5xx response, as translated by s3fs."""


class ClientPayloadError(Exception):
    """A response body that ended early; like the error of aiohttp, not an OSError."""


FAULTS: dict[str, Callable[[], Exception]] = {
    "500": lambda: ServerError(errno.EIO, "Internal Server Error (500)"),
    "503": lambda: OSError(errno.EBUSY, "Please reduce your request rate. (SlowDown)"),
    "time-out": lambda: TimeoutError("Read timeout on endpoint"),
    "reset": lambda: ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"),
    "cut body": lambda: ClientPayloadError("Response payload is not completed"),
    "denied": lambda: PermissionError("Access Denied"),
    "expired": lambda: PermissionError("The provided token has expired."),
}


@dataclass
class Fault:
    """A fault of the store.

    Attributes
    ----------
    name : str
        A key of `FAULTS`; or "truncated": half of the bytes arrive, without an error.
    times : int
        How often it happens.
    on : callable (path) -> bool
    verbs : tuple of str
        Of "read", "write", "remove", "list".
    met : Counter
        How often it happened, by verb.
    """

    name: str
    times: int = 10**9
    on: Callable[[str], bool] = lambda path: True
    verbs: tuple[str, ...] = ("read",)
    met: Counter[str] = field(default_factory=Counter)

    def strikes(self, verb: str, path: str) -> bool:
        if verb not in self.verbs or self.met.total() >= self.times or not self.on(path):
            return False
        self.met[verb] += 1
        return True


class FaultyFileSystem(LocalFileSystem):
    """The local folder ``FAULTY_ROOT`` as an unreliable remote store."""

    protocol = "faulty"
    local_file = False
    faults: ClassVar[list[Fault]] = []
    _lock: ClassVar[Any] = threading.Lock()

    def __init__(self, **options: Any) -> None:
        super().__init__(auto_mkdir=True, **options)

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        name = str(path).removeprefix("faulty://").rstrip("/")
        return name if os.path.isabs(name) else os.path.join(os.environ["FAULTY_ROOT"], name)

    def unstrip_protocol(self, name: str) -> str:
        path = self._strip_protocol(name)
        return f"faulty://{os.path.relpath(path, os.environ['FAULTY_ROOT'])}"

    def _meet(self, verb: str, path: str) -> bool:
        """Raise the error of a matching fault; return True if the bytes must be truncated."""
        with self._lock:
            due = next((fault for fault in self.faults if fault.strikes(verb, path)), None)
        if due is None:
            return False
        if due.name == "truncated":
            return True
        raise FAULTS[due.name]()

    def cat_file(self, path: str, start: Any = None, end: Any = None, **options: Any) -> bytes:
        cut = self._meet("read", path)
        with open(self._strip_protocol(path), "rb") as file:
            content = file.read()[start:end]
        return content[: len(content) // 2] if cut else content

    def open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        if "r" in mode:
            self._meet("read", path)
        return super().open(path, mode, **options)

    def pipe_file(self, path: str, value: bytes, **options: Any) -> None:
        cut = self._meet("write", path)
        super().pipe_file(path, value[: len(value) // 2] if cut else value, **options)

    def rm(self, path: Any, **options: Any) -> None:
        for one in path if isinstance(path, list) else [path]:
            self._meet("remove", one)
            super().rm(one, **options)

    def rm_file(self, path: str) -> None:
        self._meet("remove", path)
        super().rm_file(path)

    def find(self, path: str, **options: Any) -> Any:
        self._meet("list", path)
        return super().find(path, **options)


@contextmanager
def failing(*faults: Fault) -> Iterator[None]:
    """Set the faults of the store within the block."""
    FaultyFileSystem.faults[:] = faults
    try:
        yield
    finally:
        FaultyFileSystem.faults.clear()


def register() -> None:
    fsspec.register_implementation("faulty", FaultyFileSystem, clobber=True)
