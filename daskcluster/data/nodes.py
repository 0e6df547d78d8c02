"""Open Zarr arrays and groups, with errors that say what was found instead."""

from __future__ import annotations

import hashlib
import json
import math
import os
import warnings
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

import numpy as np
import zarr
from zarr.abc.buffer import BufferPrototype
from zarr.abc.buffer import NDBuffer as AnyNDBuffer
from zarr.buffer.cpu import Buffer, NDBuffer

from daskcluster.data.sources import IN_PLACE, READ_IN_PLACE
from daskcluster.errors import DaskClusterError, DatasetNotFoundError, InvalidDataError
from daskcluster.sparse_rows import owned_rows
from daskcluster.storage.files import file_names, file_size, is_data
from daskcluster.storage.location import Location, explain, hint_of_slashes
from daskcluster.storage.retry import is_passing, retry
from daskcluster.storage.zarr_stores import HEAD, PARTIAL_MARK, open_store
from daskcluster.typing import Visibility

_MOST_LISTED, _MOST_NAMED = 10_000, 20


def open_array(location: Location, name: str = "") -> zarr.Array[Any]:
    """Open a Zarr array (v2 or v3) for reading.

    Parameters
    ----------
    location : Location
        Location of an array, or of the group that holds it.
    name : str
        Path of the array within the group; empty for an array at the location itself.

    Raises
    ------
    DatasetNotFoundError
        Nothing there, no such array in the group, or no permission.
    InvalidDataError
        A group where an array is needed, or damaged metadata.
    """
    node = open_node(location, name)
    if not isinstance(node, zarr.Array):
        raise not_an_array(node, repr(location.url), name)
    return node


def open_node(location: Location, name: str = "") -> zarr.Array[Any] | zarr.Group:
    """Open a Zarr array or group for reading; see `open_array`.

    Raises
    ------
    DatasetNotFoundError, InvalidDataError
        As `open_array` does, but for a group.
    """
    try:
        return node_in(_open_root(location), name, repr(location.url))
    except DaskClusterError:
        raise
    except Exception as error:
        raise explain(error, location) from error


def node_in(root: Any, name: str, where: str) -> zarr.Array[Any] | zarr.Group:
    """Return an array or group in an opened group; without a name, the group itself.

    Parameters
    ----------
    root : zarr.Array or zarr.Group
    name : str
    where : str
        What errors call the root.

    Raises
    ------
    DatasetNotFoundError, InvalidDataError
        As `open_node` does.
    """
    found: Any = root
    if name and isinstance(root, zarr.Array):
        raise InvalidDataError(
            f"array={name!r} was given, but {where} is itself an array; leave array= out."
        )
    if name:
        try:
            found = root.get(name.strip("/"))
        except (ValueError, TypeError) as error:
            raise InvalidDataError(
                f"The metadata of array {name!r} in {where} is damaged ({error}); write it again."
            ) from error
    if not isinstance(found, (zarr.Array, zarr.Group)):
        raise DatasetNotFoundError(f"There is no array {name!r} in {where}. {_arrays_in(root)}")
    return own_metadata(found)


def own_metadata(node: Any) -> Any:
    """Return a group whose arrays are found by their own metadata; other nodes as they are.

    Consolidated metadata keep the old length of an array that was appended to.
    """
    if getattr(node.metadata, "consolidated_metadata", None) is None:
        return node
    return zarr.open_group(node.store, path=node.path, mode="r", use_consolidated=False)


def not_an_array(group: zarr.Group, where: str, name: str = "") -> InvalidDataError:
    """Return the error for a group where rows are needed; it says what the group holds."""
    what = f"array={name!r} in {where}" if name else where
    encoding = group.attrs.get("encoding-type")
    if encoding == "csc_matrix":
        return InvalidDataError(
            f"{what} holds a matrix column by column (encoding-type csc_matrix), rows are needed; write it "
            "as CSR, e.g. with scipy's tocsr()."
        )
    return InvalidDataError(
        f"{what} is a Zarr group, not an array; say which with array=. {_arrays_in(group)}"
    )


def _open_root(location: Location) -> Any:
    if location.is_local and not os.path.exists(location.url):
        raise explain(FileNotFoundError(location.url), location)
    store = open_store(location)
    try:
        with warnings.catch_warnings():
            # Ignore foreign objects next to the metadata.
            warnings.simplefilter("ignore")
            return zarr.open(store=store, mode="r", use_consolidated=False)
    except (FileNotFoundError, zarr.errors.NodeNotFoundError) as error:
        raise _no_metadata(location) from error
    except (KeyError, ValueError, TypeError) as error:
        raise InvalidDataError(
            f"The Zarr metadata at {location.url!r} is damaged or half-written "
            f"({type(error).__name__}: {error}); write the array again."
        ) from error
    except Exception as error:
        raise explain(error, location) from error


def _no_metadata(location: Location) -> DatasetNotFoundError:
    folder, _, name = location.url.rpartition("/")
    is_file = location.is_local and not os.path.isdir(location.url)
    if is_file or file_size(replace(location, url=folder), name) > 0:
        if name.lower().endswith(IN_PLACE):
            return DatasetNotFoundError(
                f"{location.url!r} is a file, where a Zarr array is needed. Weights may also be in a .npy "
                "file, or in a column of the rows."
            )
        return DatasetNotFoundError(
            f"{location.url!r} is a file that is not read in place, as Zarr folders and files that end in "
            f"{READ_IN_PLACE} are. Unpack it, save its rows in one of these formats, or load it in "
            "Python and pass the array."
        )
    if file_size(location, PARTIAL_MARK) >= 0:  # no error here may hide the one it is a hint for
        return DatasetNotFoundError(
            f"The dataset at {location.url!r} is half-written: its writer has not finished or was "
            "stopped. Wait for it, or write it again with overwrite."
        )
    where = "the folder exists" if location.is_local else "nothing is stored there"
    return DatasetNotFoundError(
        f"There is no Zarr array at {location.url!r}: {where}"
        f"{f', but has neither {HEAD} nor .zarray' if location.is_local else ''}. "
        f"{hint_of_slashes(location)}Check the spelling; "
        "if a writer was stopped half-way, run it again."
    )


def list_arrays(group: Any, max_depth: int | None = 0) -> dict[str, str]:
    """Return shape and dtype of the arrays, and of the CSR groups, in a Zarr group, by name.

    Examples
    --------
    >>> group = zarr.open_group("memory://listed", mode="w")
    >>> added = group.create_array("X", data=np.zeros((5, 2), np.float32))
    >>> list_arrays(group)
    {'X': '5 x 2 float32'}
    """
    members = _members(group, max_depth)
    if not members:
        with suppress(
            Exception
        ):  # where a store cannot be listed, consolidated metadata may name them
            members = _members(zarr.open_consolidated(group.store, path=group.path), max_depth)
    found = {}
    for name, node in members:
        shape = node.attrs.get("shape", ()) if is_csr(node) else getattr(node, "shape", None)
        if shape is not None:
            found[name] = f"{' x '.join(map(str, shape))} {getattr(node, 'dtype', 'CSR')}"
    return found


def _members(group: Any, max_depth: int | None) -> list[tuple[str, Any]]:
    return sorted(group.members(max_depth=max_depth), key=lambda member: str(member[0]))


def is_csr(node: Any) -> bool:
    """Return True for a Zarr group that holds CSR rows."""
    return getattr(node, "attrs", {}).get("encoding-type") == "csr_matrix"


def _arrays_in(group: Any) -> str:
    try:
        found = list_arrays(group) or list_arrays(group, None)
    except Exception:  # some stores cannot be listed; the error at hand matters more
        return "Its arrays could not be listed."
    names = [f"{name} ({what})" for name, what in found.items()]
    more = f", and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return (
        f"Arrays there: {', '.join(names[:_MOST_NAMED])}{more}." if names else "It holds no arrays."
    )


def metadata_digest(array: zarr.Array[Any], *but: str) -> str:
    """Return a digest of what decides how an array is decoded: shape, chunks, dtype, codecs.

    Attributes are left out: a note added to an array does not make it another one. So is what `but` names.
    """
    facts = dict(array.metadata.to_dict())
    for name in ("attributes", *but):
        facts.pop(name, None)
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()[:16]


def is_longer(before: zarr.Array[Any], now: zarr.Array[Any]) -> bool:
    """Return True if an array is another one only in that rows were appended."""
    same = metadata_digest(before, "shape") == metadata_digest(now, "shape")
    return same and before.shape[1:] == now.shape[1:] and before.shape[0] < now.shape[0]


def check_current(node: Any, location: Location) -> None:
    """Refuse an opened array, or CSR rows, whose length is not the one that is stored.

    An object that was opened before rows were appended has the old length, and so has one of a group whose
    metadata were consolidated before that.

    Raises
    ------
    InvalidDataError
    """
    held, stored = _shape_of(node), _shape_of(open_node(location))
    if held is not None and held != stored:
        raise InvalidDataError(
            f"source is a zarr {type(node).__name__} of shape {held}, and {location.url!r} has shape "
            f"{stored} now; open it again, e.g. by its URL. If it was opened just now, the metadata of its "
            "group are consolidated and out of date: open the group with use_consolidated=False, or "
            "call zarr.consolidate_metadata."
        )


def _shape_of(node: Any) -> tuple[int, ...] | None:
    found = node.attrs.get("shape") if is_csr(node) else getattr(node, "shape", None)
    return None if found is None else tuple(map(int, found))


def read_chunk(
    array: zarr.Array[Any], index: Any, where: str, location: Location | None = None
) -> Any:
    """Return ``array[index]``, with an error that names the place of a chunk that cannot be read.

    It is read-only where it is one chunk, as that was decoded.

    Parameters
    ----------
    array : zarr.Array
    index : slice, or tuple of slices and int
    where : str
        For messages.
    location : Location, optional
        Location of the array, if it has one: where that is a remote store, a read that fails is made
        again.
    """
    try:
        return retry(lambda: read_zero_copy(array, index), location, damaged=True)
    except (DaskClusterError, MemoryError, KeyboardInterrupt):
        raise
    except OSError as error:
        if location is None or location.is_local:
            raise
        raise explain(error, location) from error
    except Exception as error:
        if location is not None and is_passing(error):
            raise explain(error, location) from error
        raise InvalidDataError(
            f"Rows {index} of {where} cannot be read ({type(error).__name__}: {error}); unless the "
            "store failed, a chunk is damaged or half-written: write it again."
        ) from error


class ZeroCopyBuffer(NDBuffer):
    """Buffer of a selection: takes over a decoded chunk that is all of it.

    Zarr copies each decoded chunk to its place, in the one thread of its event loop. Until then a chunk
    takes its memory twice, and chunks that are decoded wait for each other.
    """

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(value, AnyNDBuffer):
            decoded = value.as_numpy_array()
            if self._is_all(decoded):
                super().__init__(cast("Any", decoded))
                return
        super().__setitem__(key, value)

    def _is_all(self, decoded: np.ndarray) -> bool:
        # The last chunk is stored whole: its rows alone are copied, for they are to keep no more alive.
        return (
            decoded.shape == self.shape
            and decoded.dtype == self.dtype
            and decoded.flags.c_contiguous
            and owned_rows(decoded) is decoded
        )


_ZERO_COPY = BufferPrototype(buffer=Buffer, nd_buffer=ZeroCopyBuffer)


def read_zero_copy(array: zarr.Array[Any], index: Any) -> np.ndarray:
    """Return ``array[index]`` for slices and numbers; read-only where it is one chunk as decoded.

    Parameters
    ----------
    array : zarr.Array
    index : slice, or tuple of slices and int

    Examples
    --------
    >>> import zarr
    >>> rows = zarr.array(np.arange(6.0).reshape(3, 2), chunks=(2, 2))
    >>> read_zero_copy(rows, slice(0, 2)).tolist(), read_zero_copy(rows, slice(1, 3)).tolist()
    ([[0.0, 1.0], [2.0, 3.0]], [[2.0, 3.0], [4.0, 5.0]])
    """
    if array.shards is not None:  # Zarr knows no prototype within shards
        return np.asarray(array[index])
    return np.asarray(array.get_basic_selection(index, prototype=_ZERO_COPY))


def warn_of_missing_chunks(array: zarr.Array[Any], location: Location) -> None:
    """Refuse an array without a single chunk; warn of one that lacks some.

    Zarr reads a chunk that is not there as the fill value, which is how a writer that died looks like
    rows of zeros. A large remote array is not listed for that.

    Raises
    ------
    InvalidDataError
        No chunk was ever written.
    """
    stored = array.shards or array.chunks
    expected = math.prod(
        -(-length // step) for length, step in zip(array.shape, stored, strict=True)
    )
    if location.visibility == Visibility.EVERYONE and expected > _MOST_LISTED:
        return
    present = _count_objects(location)
    if present is None or present >= expected:
        return
    unit = "shards" if array.shards else "chunks"
    if present == 0:
        raise InvalidDataError(
            f"The array at {location.url!r} has none of its {expected} {unit}: it was created but not "
            "written. Run its writer to the end."
        )
    warnings.warn(
        f"The array at {location.url!r} lacks {expected - present} of {expected} {unit}, which read as its "
        f"fill value {array.fill_value}. If its writer was stopped, write it again.",
        UserWarning,
        stacklevel=7,
    )


def _count_objects(location: Location) -> int | None:
    """Return how many chunks (or shards) are stored; None if the store cannot be listed."""
    try:
        return sum(map(is_data, file_names(location)))
    except Exception:  # listing needs a permission that reading does not
        return None
