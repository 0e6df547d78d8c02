"""Recipes: how another process, or this one later, opens the same dataset."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar

import numpy as np

from daskcluster.chunkwise.feature_scaling import FeatureScaling
from daskcluster.data.nodes import metadata_digest, open_array
from daskcluster.errors import DataNotReachableError, InvalidDataError, InvalidParameterError
from daskcluster.storage.location import Location, locate
from daskcluster.storage.process_local import ProcessLocal, open_once
from daskcluster.storage.zarr_stores import location_of
from daskcluster.typing import Dataset, Visibility

ELSEWHERE = "write it to Zarr on a disk or bucket that the workers see and open it by URL"


@dataclass(frozen=True)
class HeldRecipe:
    """Finds again what only one process can read: an array in its memory, a store without a URL.

    Attributes
    ----------
    held : ProcessLocal
    build : callable (value, recipe=HeldRecipe) -> dataset or weights
        Travels by its name.
    remedy : str
        What to do where the value is not.
    """

    held: ProcessLocal[Any]
    build: Callable[..., Any]
    remedy: str = ELSEWHERE

    @classmethod
    def of(cls, value: Any, what: str, build: Callable[..., Any], **more: str) -> HeldRecipe:
        """Return a recipe of `value`, which messages call `what`."""
        return cls(ProcessLocal(value, what), build, **more)

    @property
    def visibility(self) -> Visibility:
        return Visibility.PROCESS

    @property
    def source(self) -> str:
        return self.held.what

    def open(self) -> Any:
        """Return the dataset in the process that holds it.

        Raises
        ------
        DataNotReachableError
            In any other process.
        """
        if self.held.value is None:
            raise DataNotReachableError(
                f"The {self.held.what} belongs to another process and cannot be read here; {self.remedy}, "
                "or run locally."
            )
        return self.build(self.held.value, recipe=self)


@dataclass(frozen=True)
class StoredRecipe(ABC):
    """Recipe of stored data: URL, options that are no secrets, digest of the metadata.

    A digest tells what was written anew under the same URL from what was there before.
    """

    what: ClassVar[str]
    """Name of such data in messages."""

    location: Location
    name: str = ""
    digest: str = ""

    @property
    def visibility(self) -> Visibility:
        return self.location.visibility

    @property
    def source(self) -> str:
        return f"{self.location!r}, array={self.name!r}" if self.name else repr(self.location)

    @property
    def place(self) -> Location:
        """Location of the array or group itself."""
        return self.location.child(self.name) if self.name else self.location

    def open(self) -> Any:
        """Open the dataset in this process (once).

        Raises
        ------
        DatasetNotFoundError
            It cannot be reached from here.
        InvalidDataError
            It was replaced since the recipe was made.
        """
        return open_once(self, self._open)

    def _open(self) -> Any:
        node = self.node()
        if self.digest_of(node) != self.digest:
            raise InvalidDataError(
                f"The {self.what} at {self.source} was replaced since the dataset was opened; open it "
                "again and restart."
            )
        return self.dataset(node)

    def node(self) -> Any:
        """Open the array or group."""
        return open_array(self.location, self.name)

    def digest_of(self, node: Any) -> str:
        """Return a digest of what decides how the rows are read."""
        return metadata_digest(node)

    @abstractmethod
    def dataset(self, node: Any) -> Any:
        """Return what stands for `node` here."""


def reopen(recipe: Any, facts: Mapping[str, Any] | None = None) -> Any:
    """Return what `recipe` opens, with more attributes: what datasets and weights unpickle with."""
    found = recipe.open()
    return found.with_facts(**facts) if facts else found


def places_behind(rows: Any) -> Iterator[Location]:
    """Yield what a lazy collection or a mapped array reads, as far as it says so; computes nothing.

    Parameters
    ----------
    rows : dask array, dask DataFrame, ndarray or other array
    """
    waiting: deque[Any] = deque()
    if hasattr(rows, "expr") and hasattr(rows, "columns"):  # a dask DataFrame
        waiting.extend(operand for step in rows.expr.walk() for operand in step.operands)
    elif hasattr(rows, "__dask_graph__"):
        for layer in getattr(rows.__dask_graph__(), "layers", {}).values():
            indices = getattr(layer, "indices", None)  # of a layer whose tasks are not made yet
            if indices is not None:
                waiting.extend(value for value, index in indices if index is None)
            else:
                waiting.extend(islice(layer.values(), _MOST_LOOKED_AT))
    else:
        waiting.append(rows)
    for _ in range(_MOST_LOOKED_AT):
        if not waiting:
            return
        value = waiting.popleft()
        if isinstance(value, Mapping):
            waiting.extend(value.values())
        elif isinstance(value, list | tuple):
            waiting.extend(value)
        else:
            with suppress(InvalidParameterError):  # no URL after all
                yield from _places_of(value)
            # What tasks, partial functions and the wrappers of dask, xarray and NumPy hold.
            if type(value).__module__.partition(".")[0] != "pandas":
                inner = (getattr(value, name, None) for name in _HOLDS)
                waiting.extend(each for each in inner if each is not None and each is not value)


_HOLDS = ("args", "kwargs", "keywords", "array", "_array", "value", "base")
_MOST_LOOKED_AT = 20_000


def _places_of(value: Any) -> Iterator[Location]:
    """Yield where an array, an open file or a path lies."""
    module = type(value).__module__.partition(".")[0]
    if isinstance(value, str | os.PathLike):
        if "://" in str(value) or (len(str(value)) < _LONGEST_PATH and os.path.exists(value)):
            yield locate(value)
    elif module == "zarr" and hasattr(value, "store"):
        place = location_of(value)
        if place is not None:
            yield place
    elif module == "h5py":
        yield locate(value.file.filename)
    elif hasattr(value, "fs") and isinstance(getattr(value, "path", None), str):
        yield locate(value.fs.unstrip_protocol(value.path))
    elif isinstance(getattr(value, "filename", None), str | os.PathLike):
        yield locate(value.filename)


_LONGEST_PATH = 4096


def for_metric(dataset: Dataset, metric: str) -> Dataset:
    """Return the rows as `metric` compares them: under the cosine metric, with rows of length one."""
    return dataset.normalized() if metric == "cosine" else dataset


@dataclass(frozen=True)
class DerivedRecipe:
    """The recipe of what a function makes of what another recipe opens.

    Attributes
    ----------
    build : callable (opened, ...) -> dataset or weights
        Travels by its name.
    base : Recipe
    arguments : tuple
        Further arguments of `build`.
    once : bool
        Whether the result is kept in the process. Not where it costs nothing to make: rows in memory would
        be kept alive.
    """

    build: Callable[..., Any]
    base: Any
    arguments: tuple[Any, ...] = ()
    once: bool = True

    def open(self) -> Any:
        """Open the base in this process, and return what is made of it."""
        if not self.once:
            return self.build(self.base.open(), *self.arguments)
        return open_once(self, lambda: self.build(self.base.open(), *self.arguments))


def weighted(rows: Any, weights: Any) -> Any:
    """Return rows with the weights that a recipe opens."""
    return rows.with_weights(weights.open())


def normalized(rows: Any) -> Any:
    """Return rows for the cosine metric."""
    return rows.normalized()


def scaled(rows: Any, kind: str, *arrays: bytes) -> Any:
    """Return rows with a scaling whose arrays travel as bytes: what is equal has equal recipes."""
    shift, width, *fills = map(np.frombuffer, arrays)
    fill = fills[0].reshape(-1, len(shift)) if fills else None
    if fill is not None and len(fill) == 1:
        fill = fill[0]
    return rows.with_scaling(FeatureScaling(kind, shift, width, fill))
