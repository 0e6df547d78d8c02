"""Recipes: how another process, or this one later, opens the same dataset."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from daskcluster.chunkwise.feature_scaling import FeatureScaling
from daskcluster.errors import InvalidDataError, ReachError
from daskcluster.storage.location import Location, locate
from daskcluster.storage.process_local import ProcessLocal, open_once
from daskcluster.storage.zarr_stores import location_of
from daskcluster.typing import Dataset, Recipe, Visibility

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
        ReachError
            In any other process.
        """
        if self.held.value is None:
            raise ReachError(
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

    @abstractmethod
    def node(self) -> Any:
        """Open the array or group."""

    @abstractmethod
    def digest_of(self, node: Any) -> str:
        """Return a digest of what decides how the rows are read."""

    @abstractmethod
    def dataset(self, node: Any) -> Any:
        """Return what stands for `node` here."""


def reopen(recipe: Any) -> Any:
    """Return what `recipe` opens: what datasets unpickle with."""
    return recipe.open()


def places_behind(rows: Any) -> Iterator[Location]:
    """Yield what a lazy collection or a mapped array reads, as far as it says so; computes nothing.

    Parameters
    ----------
    rows : dask array, dask DataFrame, ndarray or other array
    """
    if hasattr(rows, "expr"):  # a dask DataFrame
        for step in rows.expr.walk():
            for path in np.ravel(getattr(step, "path", None) or []).tolist():
                yield locate(path)
    elif hasattr(rows, "__dask_graph__"):
        for layer in getattr(rows.__dask_graph__(), "layers", {}).values():
            indices = getattr(layer, "indices", None)
            if indices is not None:
                values = [value for value, index in indices if index is None]
            else:
                values = list(layer.values()) if len(layer) == 1 else []
            for value in values:
                yield from _place_of(value)
    else:
        yield from _place_of(rows)


def _place_of(value: Any) -> Iterator[Location]:
    """Yield where an array object lies, under the wrappers of dask, xarray and NumPy."""
    while value is not None:
        module = type(value).__module__.partition(".")[0]
        path = location_of(value) if module == "zarr" else getattr(value, "filename", None)
        path = value.file.filename if module == "h5py" else path
        if isinstance(path, Location):
            yield path
        elif isinstance(path, (str, os.PathLike)):
            yield locate(path)
        inner = (getattr(value, name, None) for name in ("array", "_array", "value", "base"))
        value = next((each for each in inner if each is not None and each is not value), None)


def for_metric(dataset: Dataset, metric: str) -> Dataset:
    """Return the rows as `metric` compares them: under the cosine metric, with rows of length one."""
    return dataset.normalized() if metric == "cosine" else dataset


@dataclass(frozen=True)
class ScaledRecipe:
    """The recipe of rows, and of the scaling that they are given.

    The arrays travel as bytes: what is equal has equal recipes.
    """

    rows: Any
    kind: str
    shift: bytes
    width: bytes
    fill: bytes | None = None

    @classmethod
    def of(cls, rows: Recipe, scaling: FeatureScaling) -> ScaledRecipe:
        """Return the recipe of `rows` under `scaling`."""
        fill = None if scaling.fill is None else scaling.fill.tobytes()
        return cls(rows, scaling.kind, scaling.shift.tobytes(), scaling.width.tobytes(), fill)

    def open(self) -> Any:
        """Open the rows in this process, scaled."""
        dataset: Any = self.rows.open()
        shift, width = np.frombuffer(self.shift), np.frombuffer(self.width)
        fill = None if self.fill is None else np.frombuffer(self.fill)
        if fill is not None and len(fill) > len(shift):
            fill = fill.reshape(-1, len(shift))
        return dataset.with_scaling(FeatureScaling(self.kind, shift, width, fill))


@dataclass(frozen=True)
class NormalizedRecipe:
    """The recipe of rows that are normalized."""

    rows: Any

    def open(self) -> Any:
        """Open the rows in this process, normalized."""
        return self.rows.open().normalized()
