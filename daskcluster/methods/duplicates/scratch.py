"""The scratch folder of a search: arrays in files that appear whole, on disk or in a bucket."""

from __future__ import annotations

import json
import math
import mmap
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskcluster.errors import CheckpointError
from daskcluster.storage.files import list_names, read_file, write_file
from daskcluster.storage.location import Location
from daskcluster.typing import Range, Visibility

_ALIGN = 64


@dataclass(frozen=True)
class Scratch:
    """A folder of arrays; picklable, without credentials.

    Attributes
    ----------
    place : Location
    durable : bool
        Files survive a power failure.

    Examples
    --------
    >>> from daskcluster.storage.location import locate
    >>> scratch = Scratch(locate("memory://scratch-example"))
    >>> scratch.write("pairs", 7, np.arange(3))
    >>> scratch.read("pairs", 7)[0].tolist(), scratch.finished("pairs")
    ([0, 1, 2], frozenset({7}))
    """

    place: Location
    durable: bool = False

    @property
    def visibility(self) -> Visibility:
        """The processes that can read and write there."""
        return self.place.visibility

    def write(self, kind: str, number: int, *arrays: np.ndarray) -> None:
        """Write arrays to file `number` of a kind."""
        table = json.dumps([[array.dtype.str, list(array.shape)] for array in arrays]).encode()
        parts: list[Any] = [len(table).to_bytes(_ALIGN, "little"), table]
        parts += [np.ascontiguousarray(array).reshape(-1).view(np.uint8).data for array in arrays]
        # One copy: the parts, each padded.
        content = b"".join(each for part in parts for each in (part, bytes(-len(part) % _ALIGN)))
        write_file(self.place, _name(kind, number), content, durable=self.durable)

    def read(self, kind: str, number: int) -> list[np.ndarray]:
        """Return the arrays of a file, which are read-only.

        Raises
        ------
        CheckpointError
            The file is gone or damaged.
        """
        name = _name(kind, number)
        content: Any = None
        try:
            if self.place.is_local:  # of files on disk, only what is used is read
                with suppress(FileNotFoundError), open(f"{self.place.url}/{name}", "rb") as file:
                    content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            else:
                content = read_file(self.place, name)
            if content is not None:
                return list(_arrays(memoryview(content)))
        except (ValueError, TypeError) as error:
            raise CheckpointError(
                f"The file {name} in {self.place.url!r} is damaged; start again without resume."
            ) from error
        raise CheckpointError(
            f"The file {name} is missing from {self.place.url!r}; was the folder cleaned up? Start again "
            "without resume."
        )

    def finished(self, kind: str) -> frozenset[int]:
        """Return the numbers of the files of a kind."""
        names = list_names(self.place.child(kind))
        return frozenset(int(name[:-5]) for name in names if name[:-5].isdecimal())


@dataclass(frozen=True)
class RowFiles:
    """Results for each row, in files on scratch that outlive the process; a sink of a pass.

    Attributes
    ----------
    scratch : Scratch
    kind : str
        Kind of the files. The number of a file is its first row.
    written : tuple of ranges
        Rows that earlier runs have written, ascending and apart.

    Examples
    --------
    >>> from daskcluster.storage.location import locate
    >>> scratch = Scratch(locate("memory://row-files-example"))
    >>> RowFiles(scratch, "cells").write(2, np.array([7, 8]))
    >>> again = RowFiles.found(scratch, "cells")
    >>> again.has((2, 4)), again.has((0, 4))
    (True, False)
    """

    scratch: Scratch
    kind: str
    written: tuple[Range, ...] = ()

    @classmethod
    def found(cls, scratch: Scratch, kind: str) -> RowFiles:
        """Return the sink of a pass that leaves out the rows of the files that are there."""
        ranges: list[Range] = []
        for first in sorted(scratch.finished(kind)):
            last = first + len(scratch.read(kind, first)[0])
            if ranges and first <= ranges[-1][1]:
                first, last = ranges[-1][0], max(last, ranges.pop()[1])
            ranges.append((first, last))
        return cls(scratch, kind, tuple(ranges))

    @property
    def block_rows(self) -> int:
        return 1

    @property
    def visibility(self) -> Visibility:
        return self.scratch.visibility

    def has(self, span: Range) -> bool:
        """Return whether earlier runs have written all rows of a range."""
        at = bisect_right(self.written, span[0], key=lambda each: each[0]) - 1
        return at >= 0 and span[1] <= self.written[at][1]

    def write(self, start: int, values: np.ndarray) -> None:
        """Write the values of rows from `start` on."""
        self.scratch.write(self.kind, start, values)

    def read(self, out: np.ndarray) -> None:
        """Read the values of all rows; OUT: out (n, ...)."""
        for first in self.scratch.finished(self.kind):
            (values,) = self.scratch.read(self.kind, first)
            out[first : first + len(values)] = values.view(out.dtype)


def _name(kind: str, number: int) -> str:
    return f"{kind}/{number:09d}.rows"


def _arrays(content: memoryview) -> Iterator[np.ndarray]:
    size = int.from_bytes(content[:_ALIGN], "little")
    at = _ALIGN + size + -size % _ALIGN
    for kind, shape in json.loads(bytes(content[_ALIGN : _ALIGN + size])):
        dtype, count = np.dtype(kind), math.prod(shape)
        yield np.frombuffer(content, dtype, count, at).reshape(shape)
        at += dtype.itemsize * count + -dtype.itemsize * count % _ALIGN
