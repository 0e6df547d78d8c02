"""The result of `partition`: the partitions of rows, as files and as index libraries take them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, BinaryIO

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.data.dataset import refuse_replacing
from daskcluster.data.features import FeatureSpec
from daskcluster.data.label_files import write_columns
from daskcluster.data.tables import import_pyarrow
from daskcluster.errors import InvalidParameterError, MissingExtraError
from daskcluster.estimators.opening import open_dataset
from daskcluster.extras import install_command
from daskcluster.methods.partition.model import PartitionModel
from daskcluster.methods.partition.training import Trained
from daskcluster.models.balance import Balance
from daskcluster.models.fitted import created_with
from daskcluster.storage.files import new_file
from daskcluster.storage.location import locate
from daskcluster.storage.staging import check_free
from daskcluster.typing import Dataset


def _write_faiss(found: Partitions, out: BinaryIO) -> None:
    out.write(_import_faiss().serialize_index(found.to_faiss(fill=False)).tobytes())


def _write_parquet(found: Partitions, out: BinaryIO) -> None:
    import_pyarrow()
    from pyarrow import parquet

    parquet.write_table(found.to_vectorchord(), out)


def _import_faiss() -> Any:
    try:
        import faiss
    except ImportError as error:
        raise MissingExtraError(
            f"Faiss is not installed; install it with: {install_command('faiss')}."
        ) from error
    return faiss


_FILES: dict[str, tuple[Callable[[], Any], Callable[[Partitions, BinaryIO], None]]] = {
    ".npy": (lambda: None, lambda found, out: np.save(out, found.centres)),
    ".faiss": (_import_faiss, _write_faiss),
    ".parquet": (import_pyarrow, _write_parquet),
}
"""By ending: what imports the library of a file of centres, and what writes it."""


def centres_writer(url: str) -> Callable[[Partitions, BinaryIO], None]:
    """Return what writes centres to a file with the ending of `url`.

    Raises
    ------
    InvalidParameterError
        There is no such format.
    MissingExtraError
        Its library is not installed.
    """
    ending = PurePosixPath(url).suffix
    if ending not in _FILES:
        raise InvalidParameterError(
            f"Centres are written to {', '.join(_FILES)} files, but the URL is {url!r}; give it such an "
            "ending."
        )
    load, write = _FILES[ending]
    load()
    return write


def _add(faiss: Any, index: Any, found: Partitions, block: Chunk) -> None:
    own = slice(block.start, block.stop)
    rows = np.ascontiguousarray(block.rows, np.float32)
    numbers = np.arange(block.start, block.stop)
    cells = np.column_stack([found.partition[own], found.copies[own]]).astype(np.int64)
    for at in range(cells.shape[1]):
        which = np.flatnonzero(cells[:, at] >= 0)
        if len(which):
            added = [np.ascontiguousarray(each[which]) for each in (rows, numbers, cells[:, at])]
            pointers = [faiss.swig_ptr(each) for each in added]
            index.add_core(len(which), *pointers)


@dataclass(frozen=True, eq=False)
class Partitions:
    """Partitions of an index.

    Attributes
    ----------
    centres : ndarray of shape (k, d)
        Means of the partitions in the sample, which searches compare with queries.
    partition : ndarray of shape (n,), int32
        The partition of each row.
    copies : ndarray of shape (n, spill), int32
        Other partitions that have a copy of a row, the best first; -1 where there is none.
    sizes : ndarray of shape (k,), int64
        Rows of the partitions, without copies.
    assigning : Trained
        Centres and penalties by which rows are assigned.
    metric : str
    seed, passes, bytes_read : int
    seconds : float
    """

    centres: np.ndarray
    partition: np.ndarray
    copies: np.ndarray
    sizes: np.ndarray
    assigning: Trained
    metric: str
    seed: int
    passes: int
    bytes_read: int
    seconds: float
    dataset: Dataset = field(repr=False)

    @property
    def n_partitions(self) -> int:
        return len(self.sizes)

    @property
    def n_copies(self) -> int:
        return int((self.copies >= 0).sum())

    @property
    def balance(self) -> Balance:
        """How even the sizes are: number, mean, largest, variation (standard deviation over mean)."""
        return Balance.of(self.sizes)

    @property
    def largest_over_mean(self) -> float:
        return float(self.sizes.max() / self.sizes.mean())

    def __repr__(self) -> str:
        found = self.balance
        return (
            f"Partitions({found.n_clusters:,} of {found.smallest:,} to {found.largest:,} rows, "
            f"{self.n_copies:,} copies)"
        )

    def rows_of(self, number: int) -> np.ndarray:
        """Return the numbers of the rows of a partition, those copied into it at last, int64 (m,)."""
        copied = np.flatnonzero((self.copies == number).any(axis=1))
        return np.concatenate([np.flatnonzero(self.partition == number), copied])

    def predict(
        self, source: Any, *, engine: Any = None, storage_options: Mapping[str, Any] | None = None
    ) -> np.ndarray:
        """Return the partition of each of other rows, int32 (m,), as `partition` would assign them.

        Of partitions that equal rows were divided among, it is the first.

        Parameters
        ----------
        source : Dataset, or anything `open_dataset` takes
        engine : see `KMeans`
        storage_options : dict, optional

        Raises
        ------
        InvalidDataError
            The rows have another number of features, or NaN or infinity.
        """
        if not isinstance(source, Dataset):
            source = open_dataset(source, storage_options=storage_options)
        return self.to_model().predict(source, engine=engine)

    def save(
        self,
        url: Any,
        *,
        overwrite: bool = False,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        """Write the partition of every row, and those of its copies; the output appears whole.

        Parameters
        ----------
        url : str
            A ``.parquet`` or ``.csv`` file with the ids of the rows, else a Zarr group of arrays:
            ``partition``, ``copy_1`` and so on.
        overwrite : bool
            Replace an output that exists.
        storage_options : dict, optional

        Raises
        ------
        OutputExistsError, InvalidParameterError, MissingExtraError
        """
        columns = {"partition": self.partition}
        columns |= {f"copy_{at + 1}": self.copies[:, at] for at in range(self.copies.shape[1])}
        write_columns(
            self.dataset, columns, url, overwrite=overwrite, storage_options=storage_options
        )

    def to_model(self) -> PartitionModel:
        """Return the partitions without rows.

        Its ``predict`` assigns new rows as these were, and its ``save`` writes it for
        ``daskcluster predict`` and `daskcluster.load_model`.
        """
        known = FeatureSpec.of(self.dataset)
        return PartitionModel(
            self.centres, self.sizes.astype(np.float64), self.sizes, metric=self.metric,
            assigning=self.assigning.centres, penalties=self.assigning.penalties,
            feature_names=known.names, decoded=known.decoded, missing=known.missing,
            n_rows=len(self.partition), passes=self.passes, bytes_read=self.bytes_read,
            parameters={"metric": self.metric, "random_state": self.seed},
            created_with=created_with(),
        )  # fmt: skip

    def save_centres(
        self,
        url: Any,
        *,
        overwrite: bool = False,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        """Write the centres to a file; it appears whole.

        Parameters
        ----------
        url : str
            A file whose ending says what is in it: ``.npy`` the array (k, d), ``.faiss`` the empty index of
            ``to_faiss(fill=False)``, ``.parquet`` the table of `to_vectorchord`.
        overwrite : bool
            Replace a file that exists.
        storage_options : dict, optional

        Raises
        ------
        OutputExistsError, InvalidParameterError, MissingExtraError
        """
        place, write = locate(url, storage_options), centres_writer(str(url))
        refuse_replacing(self.dataset, output=place)
        check_free(url, kinds=("file",), overwrite=overwrite, storage_options=storage_options)
        with new_file(place, overwrite=overwrite) as out:
            write(self, out)

    def to_faiss(self, *, fill: bool = True) -> Any:
        """Return a Faiss ``IndexIVFFlat`` with these partitions.

        Parameters
        ----------
        fill : bool
            Add the rows, with their numbers as ids, to their partitions and those of their copies; a search
            may return a row twice then. Otherwise the index is empty and trained: rows that are added go to
            the nearest centre, which is not always the balanced one.

        Raises
        ------
        MissingExtraError

        Notes
        -----
        Cost: with `fill`, a pass over the rows in this process, and 4 d + 8 bytes for each row and copy.
        """
        faiss = _import_faiss()
        centres = np.ascontiguousarray(self.centres, np.float32)
        k, d = centres.shape
        cosine = self.metric == "cosine"
        # Rows were assigned by distances, also with cosine, since means are not of length one.
        quantizer: Any = faiss.IndexFlatL2(d)
        quantizer.add(centres)
        measure = faiss.METRIC_INNER_PRODUCT if cosine else faiss.METRIC_L2
        index = faiss.IndexIVFFlat(quantizer, d, k, measure)
        index.own_fields = True
        quantizer.this.disown()
        index.is_trained = True
        if fill:
            for chunk in self.dataset.chunks(self.dataset.partitions):
                for block in Chunk(chunk.rows, chunk.start, normalize=cosine).blocks():
                    _add(faiss, index, self, block)
        return index

    def to_lance(self) -> Any:
        """Return the centres as an Arrow array of fixed-size lists, for ``ivf_centroids`` of Lance.

        Raises
        ------
        MissingExtraError
        """
        pa = import_pyarrow()
        values = pa.array(np.ascontiguousarray(self.centres, np.float32).ravel())
        return pa.FixedSizeListArray.from_arrays(values, self.centres.shape[1])

    def to_vectorchord(self) -> Any:
        """Return the centres as an Arrow table for ``[build.external]`` of VectorChord.

        Its columns are ``id`` (int32), ``parent`` (int32, all null: one level) and ``vector``.

        Raises
        ------
        MissingExtraError
        """
        pa = import_pyarrow()
        k = len(self.centres)
        columns = {
            "id": pa.array(np.arange(k, dtype=np.int32)),
            "parent": pa.nulls(k, pa.int32()),
            "vector": self.to_lance(),
        }
        return pa.table(columns)
