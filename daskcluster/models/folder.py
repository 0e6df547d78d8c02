"""Reads the files of a model, local or in an object store, never more than they should hold."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from daskcluster.data.patience import patiently
from daskcluster.data.stores import locate
from daskcluster.errors import ModelNotFoundError


class Folder:
    """One folder under a URL.

    Parameters
    ----------
    url : str
        A path or an fsspec URL.
    storage_options : mapping, optional
        Passed to the file system.
    """

    def __init__(self, url: str, storage_options: Mapping[str, Any] | None = None) -> None:
        self._location = locate(url, storage_options)
        self._fs, path = self._location.filesystem()
        self._path = path.rstrip("/")

    @property
    def url(self) -> str:
        return self._location.url

    def read(self, name: str, most: int) -> bytes:
        """Return the content of file `name`; at most `most` bytes and one more are read.

        Raises
        ------
        ModelNotFoundError
            It is not there, or may not be read.
        """
        try:
            self._refuse_special(name)
            content = patiently(lambda: self._content(name, most), self._location)
        except Exception as error:  # clouds' clients have error classes of their own
            raise ModelNotFoundError(
                f"no model can be read at {self.url!r}: {name} is missing or not readable "
                f"({type(error).__name__}); check the URL and the permissions."
            ) from error
        return content

    def _content(self, name: str, most: int) -> bytes:
        with self._fs.open(f"{self._path}/{name}", "rb") as file:
            content: bytes = file.read(most + 1)
        return content

    def size(self, name: str) -> int:
        """Return the size of file `name` in bytes; -1 if it is not there."""
        try:
            self._refuse_special(name)
            path = f"{self._path}/{name}"
            return int(patiently(lambda: self._fs.size(path), self._location) or 0)
        except Exception:  # clouds' clients have error classes of their own
            return -1

    def _refuse_special(self, name: str) -> None:
        # A pipe or a device in a folder from elsewhere would be waited for, or read without end.
        file = f"{self._path}/{name}"
        if self._location.is_local and not os.path.isfile(file):
            raise FileNotFoundError(file)
