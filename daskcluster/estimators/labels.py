"""Per-row results, such as labels, that may not fit in memory; computed on first access."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.assign import RowParams, label_rows, prepare_rows
from daskcluster.data.dataset import refuse_replacing
from daskcluster.data.grid_files import GRID_KINDS, write_grid
from daskcluster.data.label_files import is_file_output, rows_of, write_label_file
from daskcluster.data.sink import ArraySink, GroupSink, ZarrSink
from daskcluster.engine.engine import Engine, Placement
from daskcluster.engine.memory import ONE_PASS
from daskcluster.engine.operations import output_blocks
from daskcluster.estimators.checkpoint_header import fingerprint_of_rows
from daskcluster.events import Callback
from daskcluster.storage.disk_space import check_space
from daskcluster.storage.location import Location, locate
from daskcluster.storage.staging import check_free
from daskcluster.typing import Dataset


def results_of_rows(
    placement: Placement,
    fn: Callable[[Chunk, Any], np.ndarray],
    params: Any,
    dtype: Any,
    width: int = 0,
    *,
    name: str = "rows",
) -> np.ndarray:
    """Return ``fn(chunk, prepared)`` of all rows, shape (n,) or (n, width). One pass.

    Parameters
    ----------
    placement : Placement
    fn : callable
        A module-level function, e.g. `daskcluster.chunkwise.assign.label_rows`.
    params : RowParams, or another argument of `prepare_rows`
    dtype : dtype
    width : int
        Columns of the result; 0 makes it 1-D.
    name : str
        Name of the pass in events.
    """
    n_rows = placement.dataset.n_rows
    sink = ArraySink(np.empty((n_rows, width) if width else (n_rows,), dtype))
    placement.map_rows(fn, sink, params, prepare=prepare_rows, name=name)
    return sink.array


LabelRows = Callable[[Chunk, Any], np.ndarray]
"""(chunk, prepared) -> int32 labels, like `label_rows`; a module-level function."""


class Labels(NDArrayOperatorsMixin):
    """Lazy labels of all rows of a dataset, so that `fit` needs no extra pass for them.

    They are used like an array: what needs their values, such as indexing, iterating, comparing or an
    attribute of arrays, computes them once. `save` writes them to Zarr chunk by chunk without holding
    them, and `to_dask` returns a lazy dask array with the rows' chunks.

    Parameters
    ----------
    dataset : Dataset
    params : RowParams
        Parameters of `fn`.
    engine : Engine
    fn : LabelRows
        Function that labels rows.
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
        params: RowParams,
        engine: Engine,
        *,
        fn: LabelRows = label_rows,
        computed: np.ndarray | None = None,
    ) -> None:
        self._dataset = dataset
        self._params = params
        self._fn = fn
        self._engine = engine
        self._array = computed

    __hash__ = None  # type: ignore[assignment]
    ndim = 1

    def __len__(self) -> int:
        return self._dataset.n_rows

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

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if self._array is None:
            with self._engine.place(self._dataset, footprint=ONE_PASS) as placement:
                self._array = results_of_rows(
                    placement, self._fn, self._params, np.int32, name="labels"
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

        Of the cells of a grid (`open_grid`), a Zarr group that `xarray.open_zarr` opens, with an array
        ``label`` in the shape of the grid, its coordinates, and -1 where there are no data. A file with the
        ids of the rows if it ends in .parquet, .csv or .npy (labels alone).

        With `resume`, an interrupted call continues.
        """
        save_rows(
            self._dataset,
            self._engine,
            self._params,
            url,
            overwrite=overwrite,
            storage_options=storage_options,
            fn=self._fn,
            resume=resume,
            computed=self._array,
        )

    def like_rows(self) -> Any:
        """Return ``labels_``: an array for a dask array, a Series for a dask frame, else these labels."""
        if getattr(self._dataset, "frame", None) is not None:
            from daskcluster.estimators.lazy import map_frame

            rows: Any = self._dataset
            more = {"normalize": rows.normalize, "scaling": rows.scaling}
            return map_frame(rows.frame, self._fn, self._params, np.dtype(np.int32), **more)
        is_dask = hasattr(getattr(self._dataset, "array", None), "__dask_graph__")
        return self.to_dask() if is_dask else self

    def to_dask(self) -> Any:
        """Return a lazy dask array, int32 (n,), with the rows' chunks."""
        if self._array is not None:
            import dask.array as da

            rows = getattr(self._dataset, "array", None)
            chunks = getattr(rows, "chunks", None) if hasattr(rows, "__dask_graph__") else None
            return da.from_array(self._array, chunks=(chunks or [self._dataset.chunk_sizes])[:1])
        from daskcluster.estimators.lazy import lazy_rows

        return lazy_rows(self._dataset, self._fn, self._params, np.dtype(np.int32))


def save_rows(
    dataset: Dataset,
    engine: Engine,
    params: RowParams,
    url: str,
    *,
    overwrite: bool = False,
    storage_options: Any = None,
    callbacks: Sequence[Callback] = (),
    fn: LabelRows = label_rows,
    dtype: Any = np.int32,
    width: int = 0,
    resume: bool = False,
    before_end: Callable[[], None] = lambda: None,
    computed: np.ndarray | None = None,
) -> None:
    """Stream the labels of `dataset` to `url`; nothing is left of a failed try.

    A Zarr array, or a file with the ids of the rows if `url` ends in .parquet, .csv or .npy; of the cells
    of a grid, a Zarr group with an array ``label`` in the shape of the grid.

    Parameters
    ----------
    dataset, engine, params, url, overwrite, storage_options, callbacks, fn
        As of `Labels`, and its `save`.
    dtype : dtype
        Of what `fn` returns: int32, or structured (label, distance): a Zarr group of two arrays then.
    width : int
        Values a row; 0 for one.
    resume : bool
        Resume an interrupted call for the same labels. Finished chunks of a failed call are kept for the
        next one.
    before_end : callable () -> None
        Called when all labels are written, before they become visible.
    computed : ndarray of shape (n,), optional
        The labels, where they are known: rows are not read then.
    """
    dtype, url_given = np.dtype(dtype), url
    options: dict[str, Any] = {"overwrite": overwrite, "storage_options": storage_options}
    target, is_file = locate(url, storage_options), is_file_output(str(url))
    refuse_replacing(dataset, output=target)
    grid: Any = getattr(dataset, "grid", None)
    n_bytes = dataset.n_rows * max(1, width) * dtype.itemsize
    check_space(url, n_bytes, storage_options=storage_options)
    if is_file or grid is not None:
        check_free(url, kinds=("file",) if is_file else GRID_KINDS, **options)
        # The labels grow next to the file, chunk by chunk and from any worker.
        options["overwrite"] = False
        url = _unfinished(target).url
    kind: Any = ZarrSink if dtype.names is None else GroupSink
    sink = kind.create(
        url,
        n_rows=dataset.n_rows,
        chunk_rows=max(dataset.chunk_sizes),
        dtype=dtype,
        width=width,
        mark=fingerprint_of_rows(dataset, params, fn),
        resume=resume,
        **options,
    )
    with sink.staging:
        if computed is None:
            with engine.place(dataset, callbacks=callbacks, footprint=ONE_PASS) as placement:
                placement.map_rows(fn, sink, params, prepare=prepare_rows, name="labels")
        else:
            for first, last in output_blocks(dataset, sink.block_rows):
                if not sink.has((first, last)):
                    sink.write(first, computed[first:last])
        if not is_file and grid is None:
            before_end()
            sink.commit()
            return
        arrays = {each.name or "label": each.open() for each in sink.arrays}
        values = {name: partial(rows_of, array) for name, array in arrays.items()}
        if is_file:
            write_label_file(target, dataset, values, overwrite=overwrite, before_end=before_end)
        else:
            more = {"overwrite": overwrite, "storage_options": storage_options}
            write_grid(url_given, grid, values, before_end=before_end, **more)
    sink.staging.discard()


def _unfinished(target: Location) -> Location:
    """Return where labels are collected that become a file."""
    folder, _, name = target.url.rpartition("/")
    return replace(target, url=f"{folder}/.{name}.unfinished.zarr")
