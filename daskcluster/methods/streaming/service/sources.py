"""Sources of a stream from URLs or iterators: a growing array, a prefix of objects, an iterator."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

from daskcluster.data.nodes import open_node
from daskcluster.data.open import open_source
from daskcluster.data.spec import AS_THEY_ARE, RowsSpec
from daskcluster.errors import DatasetNotFoundError, InvalidParameterError, WrongTypeError
from daskcluster.methods.streaming.service.ledger import Arrival, Source, Taken
from daskcluster.methods.streaming.service.prefix import ORDERS, GrowingArray, Prefix
from daskcluster.storage.location import Location, locate
from daskcluster.typing import Dataset, Range


class Portions:
    """A source of chunks of rows from an iterator.

    Parameters
    ----------
    chunks : iterable
        Chunks of any kind that `open_dataset` takes, or pairs (name, chunk). Chunks without names are
        numbered. A chunk whose name has been folded before, for example after a restart of the program,
        is not folded again.
    most : int
        Maximum number of chunks per cycle.

    Examples
    --------
    >>> import numpy as np
    >>> source = Portions([np.zeros((3, 2)), np.ones((4, 2))])
    >>> [(arrival.name, arrival.n_rows) for arrival in source.look({})]
    [('00000000', 3), ('00000001', 4)]
    >>> source.look({})
    []
    """

    has_times: ClassVar[bool] = False

    def __init__(self, chunks: Iterable[Any], most: int = 64) -> None:
        self._chunks: Iterator[Any] = iter(chunks)
        self._most = most
        self._number = 0
        self._held: dict[str, Dataset] = {}

    def look(self, taken: Mapping[str, Taken]) -> list[Arrival]:
        """Return the next chunks, without those in `taken`, and release the previous ones."""
        self._held.clear()
        found: list[Arrival] = []
        while len(found) < self._most:
            try:
                item = next(self._chunks)
            except StopIteration:
                break
            name, rows = item if _is_named(item) else (f"{self._number:08d}", item)
            self._number += 1
            if name in taken:
                continue
            dataset = open_source(rows)
            self._held[name] = dataset
            digest = hashlib.sha256(f"{name} {dataset.n_rows}".encode()).hexdigest()[:16]
            found.append(Arrival(name, digest, dataset.n_rows))
        return found

    def open(self, arrival: Arrival, span: Range) -> Dataset:
        if arrival.name not in self._held:
            raise DatasetNotFoundError(
                f"the chunk {arrival.name!r} is no longer available; supply it again."
            )
        return self._held[arrival.name]

    def facts(self) -> dict[str, Any]:
        return {"kind": "iterator"}


def _is_named(item: Any) -> bool:
    return isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str)


_WILD = "*?["


def open_stream_source(
    source: Any,
    spec: RowsSpec = AS_THEY_ARE,
    *,
    order: str = "name",
    allow_missing: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    without: tuple[str, ...] = (),
) -> Source:
    """Open a source of a stream.

    Parameters
    ----------
    source : str, path, or iterable
        The URL of a Zarr array that grows; a folder or prefix that receives arrays, groups and Parquet
        files (it need not exist yet), or a pattern such as ``s3://bucket/in/2026-*.zarr``; or an iterator
        of chunks.
    spec : RowsSpec
        How each object is read.
    order : {"name", "time"}
        Order of objects that are available at the same time.
    allow_missing : bool
        Read missing chunks as the fill value.
    storage_options : mapping, optional
    without : tuple of str
        URLs whose contents do not belong to the source.

    Raises
    ------
    InvalidParameterError, WrongTypeError
    """
    if order not in ORDERS:
        raise InvalidParameterError(f"order={order!r} should be one of {', '.join(ORDERS)}.")
    if spec.missing not in (None, "error", "drop"):
        raise InvalidParameterError(
            f"missing={spec.missing!r} needs the means of all rows, which a stream never has; leave rows "
            "out with missing='drop', or fill them in before they are stored."
        )
    if not isinstance(source, (str, os.PathLike)):
        if not hasattr(source, "__iter__") or hasattr(source, "shape"):
            raise WrongTypeError(
                f"the source of a stream should be a URL or an iterator, got {type(source).__name__}."
            )
        return Portions(source)
    text = os.fspath(source)
    head, wild = _parted(text)
    location = locate(head, storage_options)
    for url in without:
        if locate(url, storage_options).holds(location):
            raise InvalidParameterError(
                f"The stream writes to {url!r}, which would replace its source {text!r} or hide it; write "
                "to another URL."
            )
    if not wild and _is_array(location, spec.array):
        spec.refuse_all_but(("array", "decode"), f"{text!r} is a Zarr array")
        return GrowingArray(location, spec, allow_missing)
    return Prefix(
        location,
        spec,
        pattern=wild or "*",
        order=order,
        allow_missing=allow_missing,
        without=tuple(f"{locate(url).url}/" for url in without),
    )


def _parted(url: str) -> tuple[str, str]:
    """Split a URL into a folder without wildcards and the pattern below it."""
    parts = url.split("/")
    for number, part in enumerate(parts):
        if any(sign in part for sign in _WILD):
            return "/".join(parts[:number]) or "/", "/".join(parts[number:])
    return url, ""


def _is_array(location: Location, array: str | None) -> bool:
    """Whether there is an array at the location, or one named `array` in a group there."""
    try:
        node: Any = open_node(location)
    except DatasetNotFoundError:
        return False
    return hasattr(node, "shape") or (array is not None and array in node)
