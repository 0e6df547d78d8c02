"""Labels of all rows that may not fit in memory; computed on first access."""

from __future__ import annotations

from collections.abc import Iterator
from pickle import PicklingError
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from daskcluster.chunkwise.assign import RowFunction
from daskcluster.data.label_files import mask_of_source, spread
from daskcluster.engine.choose import choose_engine
from daskcluster.estimators.rows import (
    lazy_rows,
    map_lazily,
    map_rows,
    save_rows,
    source_chunks,
)
from daskcluster.typing import Dataset, Visibility


class Labels(NDArrayOperatorsMixin):
    """Lazy labels of all rows of a dataset, so that `fit` needs no extra pass for them.

    They are used like an array: what needs their values, such as indexing, iterating, comparing or an
    attribute of arrays, computes them once. `save` writes them to Zarr chunk by chunk without holding
    them, and `to_dask` returns a lazy dask array with the rows' chunks.

    Parameters
    ----------
    dataset : Dataset
    function : RowFunction
        The function that labels rows.
    engine : Engine, or anything that estimators take as ``engine``
    computed : ndarray of shape (n,), int32, optional
        The labels, where a pass had them.

    Notes
    -----
    Cost: one pass for all labels, and 4 bytes per row once they are computed; no pass until then. `save` is
    one pass, and holds no more than the blocks that are being written; no pass if they are computed.
    """

    def __init__(
        self,
        dataset: Dataset,
        function: RowFunction,
        engine: Any,
        *,
        computed: np.ndarray | None = None,
    ) -> None:
        self._dataset, self._function, self._engine = dataset, function, engine
        self._array = None if computed is None else spread(mask_of_source(dataset), computed)

    __hash__ = None  # type: ignore[assignment]
    ndim = 1

    def __len__(self) -> int:
        mask = mask_of_source(self._dataset)
        return self._dataset.n_rows if mask is None else len(mask)

    def __repr__(self) -> str:
        return (
            f"<Labels of {len(self)} rows, int32; numpy.asarray(...) or .save(url) computes them>"
        )

    @property
    def is_computed(self) -> bool:
        """Whether they are computed and in memory."""
        return self._array is not None

    @property
    def shape(self) -> tuple[int]:
        return (len(self),)

    @property
    def size(self) -> int:
        return len(self)

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.int32)

    @property
    def travels(self) -> bool:
        """Whether a pickle has them: where other processes can read the rows, or once they are computed."""
        return self._array is not None or self._dataset.visibility is not Visibility.PROCESS

    def __reduce__(self) -> tuple[Any, ...]:
        dataset: Any = self._dataset
        if dataset.visibility is not Visibility.PROCESS:
            return _reopened, (dataset, getattr(dataset, "grid", None), self._function)
        if self._array is not None:
            return np.asarray, (self._array,)
        raise PicklingError(
            "labels_ cannot be pickled before they are computed, since no other process can read these "
            "rows; call numpy.asarray(labels_) first."
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> Labels:
        return self

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if self._array is None:
            self._array = map_rows(
                self._dataset, self._function, choose_engine(self._engine, self._dataset)
            )
        if copy is False and dtype is not None and np.dtype(dtype) != self.dtype:
            raise ValueError(f"Labels are int32, and cannot be {np.dtype(dtype)} without a copy.")
        array = self._array if dtype is None else self._array.astype(dtype, copy=False)
        return array.copy() if copy else array

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if options.get("out") is not None:
            raise TypeError("labels_ cannot be changed in place; change a copy: np.array(labels_).")
        plain = [np.asarray(each) if isinstance(each, Labels) else each for each in inputs]
        return getattr(ufunc, method)(*plain, **options)

    def __getitem__(self, rows: Any) -> Any:
        return np.asarray(self)[rows]

    def __iter__(self) -> Iterator[Any]:
        return iter(np.asarray(self))

    def __bool__(self) -> bool:
        return bool(np.asarray(self))

    def __getattr__(self, name: str) -> Any:
        # The methods and attributes of arrays; others, and protocols such as that of pickle, are missing.
        if name.startswith("_") or not hasattr(np.ndarray, name):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(np.asarray(self), name)

    def save(
        self,
        url: str,
        *,
        overwrite: bool = False,
        storage_options: Any = None,
        resume: bool = False,
    ) -> None:
        """Write the labels to `url`: a 1-D int32 Zarr array with the chunks of the rows.

        For the cells of a grid (`open_grid`), a Zarr group that `xarray.open_zarr` opens, with an array
        ``label`` in the shape of the grid, its coordinates, and -1 where there are no data. A file with the
        ids of the rows if it ends in .parquet, .csv or .npy (labels alone).

        With `resume`, an interrupted call continues.
        """
        options = {"overwrite": overwrite, "storage_options": storage_options, "resume": resume}
        self.write(url, **options)

    def write(self, url: str, **options: Any) -> None:
        """Write the labels as `save` does; `options` are those of `save_rows`."""
        dataset, mask = self._dataset, mask_of_source(self._dataset)
        computed = self._array if self._array is None or mask is None else self._array[mask]
        engine = choose_engine(self._engine, dataset)
        save_rows(dataset, self._function, engine, url, computed=computed, **options)

    def like_rows(self) -> Any:
        """Return ``labels_``: an array for a dask array, a Series for a dask frame, else these labels."""
        if getattr(self._dataset, "frame", None) is not None:
            rows: Any = self._dataset
            return map_lazily(rows.frame, lambda _: self._function, rows.scaling)
        is_dask = hasattr(getattr(self._dataset, "array", None), "__dask_graph__")
        return self.to_dask() if is_dask else self

    def to_dask(self) -> Any:
        """Return a lazy dask array, int32 (n,), with the rows' chunks."""
        if self._array is not None:
            import dask.array as da

            rows = getattr(self._dataset, "array", None)
            chunks = getattr(rows, "chunks", None) if hasattr(rows, "__dask_graph__") else None
            sizes = (chunks or [source_chunks(self._dataset)])[:1]
            return da.from_array(self._array, chunks=tuple(map(tuple, sizes)))
        return lazy_rows(self._dataset, self._function)


def _reopened(dataset: Any, grid: Any, function: RowFunction) -> Labels:
    """Return pickled labels; the pickle of a dataset does not have its grid."""
    return Labels(dataset if grid is None else dataset.with_facts(grid=grid), function, None)
