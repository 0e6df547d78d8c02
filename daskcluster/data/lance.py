"""Rows of Lance datasets, read in place: one version, by the library of Lance."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from daskcluster.data.arrow import holds_nulls, rows_of_table, weights_of_table
from daskcluster.data.arrow_columns import RowColumns, choose_columns
from daskcluster.data.dataset import RowDataset
from daskcluster.data.partitioned import StoredDataset
from daskcluster.data.partitions import cut_rows
from daskcluster.data.recipes import StoredRecipe
from daskcluster.data.spec import RowsSpec
from daskcluster.data.weighted import array_weights
from daskcluster.errors import (
    DatasetNotFoundError,
    InvalidDataError,
    MissingExtraError,
)
from daskcluster.extras import install_command
from daskcluster.storage.change_guard import ChangeGuard
from daskcluster.storage.location import Location, locate


def import_lance() -> Any:
    """Return the library of Lance.

    Raises
    ------
    MissingExtraError
        It is not installed.
    """
    try:
        import lance
    except ImportError as error:
        raise MissingExtraError(
            f"Lance datasets need pylance. Remedy: {install_command('lance')}."
        ) from error
    return lance


def is_lance(given: Any) -> bool:
    """Return True for a Lance dataset, or the location of one; nothing is imported."""
    if isinstance(given, Location):
        return given.url.lower().endswith(".lance")
    return type(given).__module__.partition(".")[0] == "lance" and hasattr(given, "to_table")


@dataclass(frozen=True)
class LanceRecipe(StoredRecipe):
    """One version of a Lance dataset, which never changes, and the columns of its rows.

    Attributes
    ----------
    version : int
    columns : RowColumns
    """

    version: int = 0
    columns: Any = None

    what = "Lance dataset"

    def node(self) -> Any:
        return _opened(self.location, self.version)

    def digest_of(self, node: Any) -> str:
        return ""

    def dataset(self, node: Any) -> LanceDataset:
        return LanceDataset(node, self)


class LanceDataset(StoredDataset):
    """Rows of a Lance dataset; chunks end where its fragments do.

    Parameters
    ----------
    source : lance.LanceDataset
    recipe : LanceRecipe
    """

    n_readers = 2

    def __init__(self, source: Any, recipe: LanceRecipe) -> None:
        self._source, self._recipe = source, recipe
        columns: RowColumns = recipe.columns
        self._columns = columns
        lengths = [fragment.count_rows() for fragment in source.get_fragments()]
        row_bytes = columns.n_features * np.dtype(columns.dtype).itemsize
        starts = accumulate(lengths, initial=0)
        edges = [start + cut_rows(n, row_bytes) for start, n in zip(starts, lengths, strict=False)]
        super().__init__(
            columns.n_features, columns.dtype, np.unique(np.concatenate(edges)).astype(np.int64)
        )
        self.id_column, self.feature_names = columns.id_column, columns.feature_names

    def table(self, names: tuple[str, ...], start: int, stop: int) -> Any:
        """Return columns of a range of rows."""
        return self._source.to_table(columns=list(names), offset=start, limit=stop - start)

    def fetch(self, start: int, stop: int) -> np.ndarray:
        table = self.table(self._columns.names, start, stop)
        return rows_of_table(table, self._columns, self.source, start)

    def ids(self, start: int, stop: int) -> Any:
        if self.id_column is None:
            return super().ids(start, stop)
        return self.table((self.id_column,), start, stop).column(self.id_column)

    def places(self) -> tuple[Location, ...]:
        return (self._recipe.location,)  # type: ignore[union-attr]

    def change_guard(self) -> ChangeGuard | None:
        """Return None: a version does not change."""
        return None


def _opened(location: Location, version: int | None = None) -> Any:
    lance = import_lance()
    try:
        return lance.dataset(location.url, version=version)
    except (ValueError, OSError) as error:  # what is not there is a ValueError
        raise DatasetNotFoundError(
            f"There is no Lance dataset at {location.url!r} ({error}); check the URL. Lance itself reaches "
            "buckets, with credentials from the environment."
        ) from error


def open_lance(given: Any, spec: RowsSpec) -> RowDataset:
    """Open the latest version of a Lance dataset, or the version that was opened.

    Raises
    ------
    DatasetNotFoundError, InvalidDataError, InvalidParameterError, MissingExtraError

    Notes
    -----
    Cost: no pass, except over columns of integers, which are searched for nulls; the manifest is read,
    and weights are loaded.
    """
    is_url = isinstance(given, Location)
    source = _opened(given) if is_url else given
    location = given if is_url else locate(source.uri)
    what = repr(location.url)
    if not source.count_rows():
        raise InvalidDataError(
            f"Found array with 0 sample(s) while a minimum of 1 is required: {what} has no rows."
        )

    def batches(*names: str) -> Iterator[Any]:
        yield from source.to_batches(columns=list(names))

    chosen = choose_columns(
        source.schema,
        spec,
        what,
        lambda name: (batch.column(name) for batch in batches(name)),
        lambda names: any(holds_nulls(batch, names) for batch in batches(*names)),
    )
    opened = LanceDataset(source, LanceRecipe(location, version=source.version, columns=chosen))
    dataset: RowDataset = opened
    if chosen.weights is not None:
        table = opened.table((chosen.weights,), 0, opened.n_rows)
        weights = weights_of_table(table, chosen.weights, what)
        dataset = dataset.with_weights(array_weights(weights, dataset.n_rows))
        dataset.weights_column = chosen.weights
    return dataset
