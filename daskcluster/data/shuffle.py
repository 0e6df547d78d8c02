"""Shuffle the rows of a dataset: every permutation equally likely, in bounded memory.

Each row draws a 64-bit key that belongs to its index in the source, and goes to the place of its key
among all keys. Rows that fit in memory are sorted there. Otherwise a first pass scatters them to
buckets of neighbouring keys on scratch disk, and a second one sorts and writes bucket after bucket.

Equal keys keep the order of their rows: among n rows that happens at all with a probability below
n^2 / 2^65, so this is how far the permutation is from uniform.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import zarr

from daskcluster import __version__
from daskcluster.data.dataset import refuse_replacing
from daskcluster.data.identity import data_identity, fingerprint_of_rows
from daskcluster.data.open import open_source
from daskcluster.data.shuffle_passes import (
    ShufflePlan,
    kept_bytes,
    kept_scratch,
    one_pass,
    plan_shuffle,
    scratch_folder,
    scratch_of,
    shuffled_rows,
)
from daskcluster.data.spec import RowsSpec
from daskcluster.data.writer import ROW_KINDS, ROWS, WEIGHTS, RowsWriter, RowWriter
from daskcluster.errors import InvalidParameterError
from daskcluster.events import Callback
from daskcluster.invariance import varies_with
from daskcluster.randomness import Key, as_seed
from daskcluster.storage.location import locate
from daskcluster.storage.staging import Staging, check_free, refuse_overlaps
from daskcluster.typing import Dataset

ZARR_THREADS = 4
"""Threads that encode and decode, unless zarr has started its own already."""

_OF_PLAN = (
    "n_rows n_features dtype chunk_rows shard_rows passes n_buckets bytes_scratch bytes_written"
).split()


@dataclass(frozen=True)
class Shuffled:
    """Record of a shuffle.

    Attributes
    ----------
    url : str
    array, weights : str or None
        Names within the group at `url`; None if the rows are the array at `url` itself.
    index : str or None
        Where the permutation is.
    n_rows, n_features : int
    dtype : str
    chunk_rows : int
    shard_rows : int or None
    random_state : int
        The seed that was used; with it the same rows come in the same order again.
    passes : int
        1: the source was read and written. 2: it went through scratch disk in between.
    n_buckets : int
    bytes_read, bytes_scratch, bytes_written : int
        Decoded bytes fetched from the source, bytes written to scratch and read from it, decoded bytes
        of the outputs.
    seconds : float
    """

    url: str
    array: str | None
    weights: str | None
    index: str | None
    n_rows: int
    n_features: int
    dtype: str
    chunk_rows: int
    shard_rows: int | None
    random_state: int
    passes: int
    n_buckets: int
    bytes_read: int
    bytes_scratch: int
    bytes_written: int
    seconds: float


@varies_with(order="The order of the output is one of row numbers.")
def shuffle(
    source: Any,
    output: Any,
    *,
    random_state: Any = None,
    array: str | None = None,
    weights: Any = None,
    with_index: Any = None,
    chunk_rows: int | None = None,
    shard_rows: int | None = None,
    flatten: bool = False,
    decode: bool | None = None,
    memory_limit: int | None = None,
    scratch: Any = None,
    overwrite: bool = False,
    resume: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    callbacks: Sequence[Callback] = (),
) -> Shuffled:
    """Write the rows of `source` to Zarr in random order, each of the n! orders equally likely.

    The order depends on `random_state` and the number of rows alone, not on chunks, memory or threads.

    Parameters
    ----------
    source : str or array
        Anything that `open_dataset` takes.
    output : str
        Path or URL. An array (n, d) at its root, of the source's dtype; with weights, a group of ``X``
        and ``weights``. Sparse rows stay sparse: a CSR group in place of the array.
    random_state : int, RandomState or Generator, optional
        None draws a seed from the operating system; the result says which.
    array, weights, flatten, decode
        See `open_dataset`.
    with_index : str, optional
        URL of a 1-D int64 Zarr array to write: the source row of every output row. Results for the
        output, such as labels, go back to the source by ``there[index] = here``.
    chunk_rows : int, optional
        Rows of an output chunk; about 8 MB by default, and always for sparse rows.
    shard_rows : int, optional
        Rows of a shard (one object of many chunks), a multiple of `chunk_rows`.
    memory_limit : int, optional
        Bytes of this process, without rows that are in memory already; a quarter of the host's by default.
    scratch : str, optional
        Local folder for rows that do not fit in memory; next to a local output by default, else where the
        system puts temporary files (if that is memory itself, name a disk).
    overwrite : bool, default False
        Replace Zarr outputs that exist.
    resume : bool, default False
        Continue an interrupted call of the same arguments: with the rows that are on scratch disk, and
        after the last whole chunk of the outputs (sparse rows are written anew). What is finished is kept
        if this call fails or dies. Needs `random_state`.
    storage_options : dict, optional
        For all URLs.
    callbacks : sequence of callables, default ()
        Called with `PassStarted`, `PassProgress` and `PassEnded`.

    Returns
    -------
    Shuffled

    Raises
    ------
    CheckpointError
        Rows on scratch disk are those of a call for the same output with other rows or arguments.
    DatasetNotFoundError, InvalidDataError, InvalidParameterError, OutputExistsError
    WrongTypeError
        Rows that are no table of numbers.
    MemoryLimitError
        The limit is too small to shuffle in two passes; about 500 MB are enough for a terabyte.
    DiskSpaceError
        The scratch disk is too small; said before any work.

    Notes
    -----
    Cost: the source is read once and the output written once. Rows that do not fit in memory are
    written to scratch and read from there once in between, with 8 bytes more for each row, 16 with
    weights or an index, 24 with both, and 8 more for a sparse row. Memory is one bucket, the next one read
    ahead, and about five output chunks (or shards); scratch space is given back while the output grows, and
    when the process ends, however it does. With `resume` it is given back at the end, and stays with a
    process that dies; rows on scratch are committed about every minute.

    Examples
    --------
    >>> import numpy as np, zarr
    >>> from daskcluster import open_dataset
    >>> rows = np.arange(10).reshape(5, 2)
    >>> done = shuffle(rows, "memory://shuffled", random_state=0, with_index="memory://index")
    >>> index = zarr.open_array("memory://index", mode="r")[:]
    >>> index.tolist()
    [4, 2, 3, 0, 1]
    >>> bool((open_dataset("memory://shuffled").to_numpy() == rows[index]).all())
    True
    """
    started = time.monotonic()
    if resume and random_state is None:
        raise InvalidParameterError(
            "resume=True needs random_state=, since a fresh seed has another order of rows; give the same "
            "seed to every call."
        )
    key = Key(as_seed(random_state), "shuffle")
    options: dict[str, Any] = {"overwrite": overwrite, "storage_options": storage_options}
    # Freed blocks stay with the thread that decoded or encoded them, so few threads are to do that.
    with zarr.config.set({"threading.max_workers": ZARR_THREADS}):
        dataset, plan = prepare(
            source,
            output,
            array=array,
            weights=weights,
            with_index=with_index,
            chunk_rows=chunk_rows,
            shard_rows=shard_rows,
            flatten=flatten,
            decode=decode,
            memory_limit=memory_limit,
            scratch=scratch,
            resume=resume,
            **options,
        )
        options["resume"] = resume
        bytes_read = write_shuffled(dataset, plan, key, output, with_index, callbacks, **options)
    return Shuffled(
        url=locate(output).url,
        array=ROWS if plan.weighted else None,
        weights=WEIGHTS if plan.weighted else None,
        index=None if with_index is None else locate(with_index).url,
        random_state=key.seed,
        bytes_read=bytes_read,
        seconds=time.monotonic() - started,
        **{name: getattr(plan, name) for name in _OF_PLAN},
    )


def prepare(
    source: Any,
    output: Any,
    *,
    array: str | None = None,
    weights: Any = None,
    with_index: Any = None,
    flatten: bool = False,
    decode: bool | None = None,
    scratch: Any = None,
    overwrite: bool = False,
    resume: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    **sizes: Any,
) -> tuple[Dataset, ShufflePlan]:
    """Open the source and plan its shuffle; refuse what `shuffle` would refuse, and touch nothing.

    Parameters
    ----------
    source, output, ...
        See `shuffle`.
    **sizes : int or None
        ``chunk_rows``, ``shard_rows`` and ``memory_limit``.

    Returns
    -------
    dataset : Dataset
    plan : ShufflePlan
    """
    urls = any(isinstance(place, (str, os.PathLike)) for place in (source, weights))
    dataset = open_source(
        source,
        RowsSpec(array=array, flatten=flatten, decode=decode),
        weights=weights,
        storage_options=storage_options if urls else None,  # else they are the outputs' alone
    )
    places = {"output": locate(output, storage_options)}
    if with_index is not None:
        places["with_index"] = locate(with_index, storage_options)
    refuse_overlaps(places)
    refuse_replacing(dataset, **places)
    for name, place in places.items():
        kinds = ROW_KINDS if name == "output" else ROW_KINDS[:1]
        check_free(place, overwrite=overwrite, kinds=kinds)
    where = scratch_folder(scratch, places["output"])
    there = kept_bytes(scratch_of(where, places["output"].url)) if resume else 0
    return dataset, plan_shuffle(
        dataset,
        indexed=with_index is not None,
        scratch=where,
        there=there,
        **sizes,
    )


def write_shuffled(
    dataset: Dataset,
    plan: ShufflePlan,
    key: Key,
    output: Any,
    index: Any,
    callbacks: Sequence[Callback],
    *,
    resume: bool = False,
    **options: Any,
) -> int:
    """Write rows in the order of `key`, and the permutation; return the bytes read.

    Both outputs are committed at the end, or neither.
    """
    seed = {"shuffled": {"random_state": key.seed}}
    others = {WEIGHTS: np.float64} if plan.weighted else {}
    chunk_rows = plan.chunk_rows if plan.n_entries is None else None
    place = locate(output).url
    if resume:
        mark = fingerprint_of_rows(dataset, place, key.seed, plan.chunk_rows, plan.shard_rows)
        options |= {"mark": mark, "resume": True}
    with ExitStack() as stagings:
        rows = stagings.enter_context(Staging.begin(output, kinds=ROW_KINDS, **options))
        writer = RowsWriter(
            rows,
            plan.shape,
            others,
            chunk_rows=chunk_rows,
            shard_rows=plan.shard_rows,
            attributes=seed,
            group=seed,
        )
        if index is not None:
            numbers = stagings.enter_context(Staging.begin(index, **options))
            array = writer.staged_array(numbers, "", np.int64)
            writer.begin_with(array, numbers)
        done = writer.n_rows
        facts = {
            "random_state": key.seed,
            "memory_limit": f"{plan.n_buckets} buckets",
            "record": str(plan.record.descr),
            "data": data_identity(dataset),
            "daskcluster": __version__,
        }
        keeps = resume and bool(plan.n_buckets)
        folder = plan.scratch or scratch_folder(None, rows.target)
        kept = stagings.enter_context(kept_scratch(folder, place, facts, kept=keeps))
        with ExitStack() as stack:
            stack.enter_context(writer)
            if index is not None:
                index_writer = stack.enter_context(RowWriter(array, done))
            pieces, bytes_read = shuffled_rows(
                dataset, plan, key, callbacks, stack, done=done, kept=kept
            )
            with one_pass("shuffle (write)", plan.n_rows, callbacks) as running:
                running.bytes_read = plan.bytes_scratch
                running.advance(done)
                for piece, weights, row_numbers in pieces:
                    writer.append(piece, *(() if weights is None else (weights,)))
                    if row_numbers is not None and index is not None:
                        index_writer.append(row_numbers)
                    running.advance(len(piece))
        # The rows last: who sees them finds the index too.
        if index is not None:
            numbers.commit(array.document())
            stagings.push(lambda kind, *_: numbers.withdraw() if kind else None)
        rows.commit(writer.documents())
    return bytes_read
