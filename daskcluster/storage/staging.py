"""Staged outputs, which appear complete or not at all: write within ``Staging.begin(url)``, then commit.

On a local file system, an output is written to a temporary folder next to it,
``<target>.partial-<mark>-<token>``, and renamed when complete. A writer claims its folder with a lock
(flock(2)) that the kernel releases when the process ends, however it ends. So the writer of an unclaimed
folder is dead: who completes the output removes such folders, and who resumes it takes one over.

An object store has no rename: the chunks go to their final place, and the metadata, without which the
output cannot be opened, is written last. Until then, a mark object identifies the partial output.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import uuid
import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Self

from daskcluster.errors import (
    DatasetNotFoundError,
    DiskSpaceError,
    InvalidParameterError,
    OutputExistsError,
    comes_from_outside,
)
from daskcluster.storage.files import (
    explained,
    full_disk,
    is_full_disk,
    list_names,
    read_file,
    remove_file,
    remove_files,
    remove_folder,
    write_file,
)
from daskcluster.storage.location import Location, locate
from daskcluster.storage.retry import retry, while_others_write
from daskcluster.storage.zarr_stores import HEAD, METADATA, MODEL_FORMAT, PARTIAL_MARK


@dataclass(frozen=True)
class Staging:
    """An output that is being written; as a context manager, aborts if the block raises.

    Attributes
    ----------
    target : Location
        Final location of the output.
    work : Location
        Location to which its chunks are written.
    overwrite : bool
    mark : str
        Identifies the output for a writer that resumes it; empty if none may.
    stays : bool
        Whether partial output is kept after an error, for such a writer.
    """

    target: Location
    work: Location
    overwrite: bool
    mark: str = ""
    stays: bool = False

    @classmethod
    def begin(
        cls,
        url: Any,
        *,
        overwrite: bool = False,
        storage_options: Mapping[str, Any] | None = None,
        kinds: tuple[str, ...] = ("array",),
        mark: str = "",
        resume: bool = False,
    ) -> Staging:
        """Prepare to write to `url`.

        On a local file system, an existing output stays readable until `commit`. On an object store it is
        removed here, since its chunks are about to be replaced.

        Parameters
        ----------
        kinds : tuple of {"array", "group"}
            Kinds of existing outputs that `overwrite` may replace; anything else is never touched.
        mark : str
            Hexadecimal digest of everything that the output depends on.
        resume : bool
            Continue the partial output of an interrupted writer with the same `mark`, and keep partial
            output for the next one if there is an error.

        Raises
        ------
        OutputExistsError
            Something is there, and `overwrite` is False or it is not of these kinds.
        """
        target, is_there = check_free(
            url, overwrite=overwrite, storage_options=storage_options, kinds=kinds
        )
        if target.is_local:
            ending = "-".join(filter(None, ["partial", mark, uuid.uuid4().hex[:8]]))
            work = replace(target, url=f"{target.url}.{ending}")
            try:
                if not (resume and mark and _adopt(target.url, mark, work.url)):
                    os.makedirs(work.url)
                    _claim(work.url)
            except OSError as error:
                raise DatasetNotFoundError(
                    f"The output {target.url!r} cannot be written ({error}); choose a folder in which "
                    "you may write."
                ) from error
            return cls(target, work, overwrite, mark, stays=resume)
        staging = cls(target, target, overwrite, mark, stays=resume)
        with explained(target, "output"):
            resumes = resume and bool(mark) and not is_there
            if not (resumes and read_file(target, PARTIAL_MARK) == mark.encode()):
                staging._clear()
        return staging

    def _clear(self) -> None:
        """Mark an output of an object store as partial, and remove what is there."""
        target, marked = self.target, False
        try:
            # First an empty mark: if this process dies now, the next writer may replace the output.
            # The identity of the output follows last: until then, chunks of another one may remain.
            write_file(target, PARTIAL_MARK, b"")
            marked = True
            retry(lambda: _remove_all(target, but_the_mark=True), target)
            if self.mark:
                write_file(target, PARTIAL_MARK, self.mark.encode())
        except BaseException:
            if marked:
                self.discard()
            else:  # an earlier output is whole, but the request that failed may have left a mark
                with suppress(Exception):
                    remove_file(target, PARTIAL_MARK)
            raise

    def commit(self, documents: Mapping[str, bytes]) -> None:
        """Publish the output: write `documents` (metadata by relative path) in order, after all chunks.

        Raises
        ------
        OutputExistsError
            Another process wrote an output there in the meantime.
        """
        if self.target.is_local:
            self._write(documents)
            self._rename()
            return
        with explained(self.target, "output"):
            self._write(documents)
            retry(lambda: remove_file(self.target, PARTIAL_MARK), self.target)
        self.target.filesystem()[0].invalidate_cache()

    def _write(self, documents: Mapping[str, bytes]) -> None:
        try:
            for name, content in documents.items():
                write_file(self.work, name, content, durable=False)
        except DiskSpaceError as error:
            raise full_disk(self.target) from error

    def _rename(self) -> None:
        target, work = self.target.url, self.work.url
        replaced = f"{work}.replaced"
        if self.overwrite and os.path.isdir(target):
            os.rename(target, replaced)
        try:
            os.rename(work, target)
        except OSError as error:
            raise OutputExistsError(
                f"The output {target!r} appeared while it was being written ({error}); nothing was "
                "replaced. Choose another name or pass overwrite=True."
            ) from error
        shutil.rmtree(replaced, ignore_errors=True)
        _release(target)
        for path, _ in _temporaries_of(target):
            if _claim(path):  # its writer was killed
                _release(path, remove=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if error is None:
            return
        full = None
        if self.target.is_local and is_full_disk(error):
            full = full_disk(self.target)  # which says how much is free before the rest is removed
        if self.stays and self.mark and comes_from_outside(full or error):
            (full or error).add_note(
                f"The finished rows of {self.target.url!r} are kept: the same call with resume=True "
                "continues with them."
            )
        self.abort()
        if full is not None:
            raise full from error

    def withdraw(self) -> None:
        """Remove the committed output, because another one that belongs to it failed."""
        retry(lambda: _remove_all(self.target), self.target)

    def discard(self) -> None:
        """Remove what has been written, also what would stay for another writer."""
        replace(self, stays=False).abort()

    def abort(self) -> None:
        """Remove the partial output, unless it `stays`; the target does not change.

        Never raises, so that the original error reaches the caller.
        """
        if self.target.is_local:
            _release(self.work.url, remove=not self.stays)
            return
        if self.stays:
            return
        try:
            retry(lambda: _remove_all(self.target), self.target)
        except Exception as error:
            warnings.warn(
                f"The partial output {self.target.url!r} could not be removed ({error}); it cannot be "
                "opened, and the next writer removes it.",
                RuntimeWarning,
                stacklevel=2,
            )


def check_free(
    url: Any,
    *,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    kinds: tuple[str, ...] = ("array",),
) -> tuple[Location, bool]:
    """Return the location of an output, and whether one is there that will be replaced.

    Changes nothing. The kind of an output that is a file is "file".

    Raises
    ------
    OutputExistsError
        Something is there, and `overwrite` is False or it is not of these kinds.
    """
    target = locate(url, storage_options)
    if "file" not in kinds:
        refuse_file_ending(target)
    if target.is_local:
        target = replace(target, url=os.path.realpath(target.url))
    with explained(target, "output"):
        fs, path = target.filesystem()
        fs.invalidate_cache()
        _refuse_part_of_model(target)
        kind = _kind_of({name: read_file(target, name) for name in METADATA})
        replaceable, is_there = kind in kinds, kind is not None
        if not is_there and fs.isfile(path):
            replaceable, is_there = "file" in kinds, True
        elif not is_there and target.is_local:
            is_there = bool(list_names(target))  # an empty folder is free
        elif not is_there:
            is_there = fs.exists(path) and read_file(target, PARTIAL_MARK) is None
        if is_there and not (overwrite and replaceable):
            problem = (
                "and is not of a kind that overwrite=True replaces; choose another name, or remove it "
                "yourself."
                if overwrite
                else "already; pass overwrite=True to replace it, or choose another name."
            )
            raise OutputExistsError(f"The output {target.url!r} exists {problem}")
        return target, is_there


def refuse_sources(outputs: Mapping[str, Location], sources: Collection[Location]) -> None:
    """Raise if writing an output would replace what it is made from, or write into it.

    Parameters
    ----------
    outputs : mapping of str to Location
        By the names of the arguments that gave them.
    sources : collection of Location
        Arrays and files that are read; see `daskcluster.data.dataset.RowDataset.stored_at`.

    Raises
    ------
    InvalidParameterError
        Naming both.

    Examples
    --------
    >>> refuse_sources({"output": locate("memory://x.zarr")}, [locate("memory://y.zarr")])
    """
    for name, output in outputs.items():
        for source in sources:
            if output.holds(source) or source.holds(output):
                real = output.resolved() if output.is_local else output.url
                also = f" (that is {real!r})" if real != output.url else ""
                raise InvalidParameterError(
                    f"{name}={output.url!r}{also} would replace the source {source.url!r}, from which it "
                    "is made; write to another URL."
                )


def refuse_overlaps(outputs: Mapping[str, Location]) -> None:
    """Raise if two outputs are the same place, or if one lies within the other.

    Raises
    ------
    InvalidParameterError
    """
    for (one, place), (two, other) in combinations(outputs.items(), 2):
        if place.holds(other) or other.holds(place):
            raise InvalidParameterError(
                f"{one} and {two} should be written to different URLs, next to each other; they are "
                f"{place.url!r} and {other.url!r}."
            )


FILE_ENDINGS = (
    ".arrow", ".avro", ".csv", ".feather", ".gz", ".h5", ".h5ad", ".hdf5", ".ipc", ".joblib", ".json",
    ".jsonl", ".loom", ".ndjson", ".npy", ".npz", ".onnx", ".orc", ".parquet", ".pickle", ".pkl", ".pq",
    ".tsv", ".txt", ".xlsx",
    ".tif", ".tiff", ".gtiff", ".geotiff", ".cog", ".nc", ".nc3", ".nc4", ".netcdf", ".cdf", ".hdf", ".he5",
    ".img", ".vrt", ".jp2", ".j2k", ".grib", ".grib2", ".grb", ".grb2", ".asc", ".bil", ".bip", ".bsq",
    ".png", ".jpg", ".jpeg", ".gpkg", ".geojson", ".shp",
)  # fmt: skip
"""Endings that promise a file, of any format; in the second part those of maps."""


def refuse_file_ending(target: Location) -> None:
    """Raise if the name of an output that is a folder of Zarr promises a file.

    Raises
    ------
    InvalidParameterError
    """
    stem, ending = os.path.splitext(target.url.rstrip("/"))
    if ending.lower() in FILE_ENDINGS:
        raise InvalidParameterError(
            f"The output {target.url!r} is written as Zarr, a folder; give it another ending, such as "
            f"{os.path.basename(stem) + '.zarr'!r}."
        )


def _remove_all(target: Location, *, but_the_mark: bool = False) -> None:
    """Remove an output of an object store: its metadata first, its mark last."""
    fs, path = target.filesystem()
    fs.invalidate_cache()
    names = [str(name) for name in while_others_write(lambda: fs.find(path))]
    heads = [name for name in names if name.removeprefix(f"{path}/") in METADATA]
    rest = [name for name in names if name not in heads and not name.endswith(PARTIAL_MARK)]
    for part in (heads, rest):
        remove_files(target, part)
    if not but_the_mark:
        remove_folder(target)
    fs.invalidate_cache()


def _refuse_part_of_model(target: Location) -> None:
    folder = replace(target, url=target.url.rstrip("/").rpartition("/")[0])
    if folder.url.strip("/") and MODEL_FORMAT.encode() in (read_file(folder, HEAD) or b""):
        raise OutputExistsError(
            f"The output {target.url!r} would lie in the saved model {folder.url!r}, and might replace a "
            "part of it; write to another URL."
        )


def _kind_of(documents: Mapping[str, bytes | None]) -> str | None:
    if documents.get(".zarray") is not None:
        return "array"
    if documents.get(".zgroup") is not None:
        return "group"
    content = documents.get(HEAD)
    if content is None:
        return None
    if MODEL_FORMAT.encode() in content:
        return "model"  # nothing but another model replaces it
    try:
        return str(json.loads(content).get("node_type"))
    except ValueError:
        return "array"  # partial metadata, of this package or not: may be replaced


# -- temporary folders of local outputs ----------------------------------------------------------------

_ENDING = re.compile(r"\.partial-(?:(?P<mark>[0-9a-f]+)-)?[0-9a-f]{8}(?:\.replaced)?")

_claimed: dict[tuple[int, int], int] = {}
"""File handles of claimed folders by device and inode, which do not change in a rename."""


@contextmanager
def claimed(folder: str) -> Iterator[None]:
    """Claim a folder for this process within the block.

    Raises
    ------
    OutputExistsError
        A live process has claimed it.
    """
    if _claim(folder) is False:
        raise OutputExistsError(
            f"Another process works in {folder!r}; run only one at a time, or wait for its end."
        )
    try:
        yield
    finally:
        _release(folder)


def _claim(folder: str) -> bool | None:
    """Claim a folder for this process, until it is released or the process ends.

    Returns
    -------
    bool or None
        False if a live writer has claimed it; None if the file system cannot tell.
    """
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        return False if isinstance(error, BlockingIOError) else None
    found = os.fstat(handle)
    _claimed[found.st_dev, found.st_ino] = handle
    return True


def _release(folder: str, *, remove: bool = False) -> None:
    """Give up a claim, if there is one; remove the folder first, so that no other writer takes it over."""
    handle = None
    with suppress(OSError):
        found = os.stat(folder)
        handle = _claimed.pop((found.st_dev, found.st_ino), None)
    if remove:
        shutil.rmtree(folder, ignore_errors=True)
    if handle is not None:
        os.close(handle)


def _adopt(target: str, mark: str, folder: str) -> bool:
    """Rename the partial output of another writer with `mark`, the one with most files, to `folder`.

    The other writer may still be alive if a job was wrongly taken for dead; then it can publish nothing.

    Returns
    -------
    bool
        False if there is no such partial output.

    Warns
    -----
    RuntimeWarning
        The other writer still seems to be alive.
    """
    left = [
        path
        for path, its in _temporaries_of(target)
        if its == mark and not path.endswith(".replaced")
    ]
    n_files = {path: sum(len(files) for _, _, files in os.walk(path)) for path in left}
    for path in sorted(left, key=n_files.__getitem__, reverse=True):
        try:
            os.rename(path, folder)
        except FileNotFoundError:
            continue  # another process was faster
        if _claim(folder) is False:
            warnings.warn(
                f"Another process still writes {target!r}. This process continues with the finished "
                "parts, and the other one will fail; run only one at a time.",
                RuntimeWarning,
                stacklevel=3,
            )
        return True
    return False


def _temporaries_of(target: str) -> Iterator[tuple[str, str]]:
    """Yield the temporary folders of an output with their marks."""
    parent, name = os.path.split(target)
    try:
        entries = sorted(os.listdir(parent))
    except OSError:
        return
    for entry in entries:
        found = _ENDING.fullmatch(entry[len(name) :]) if entry.startswith(name) else None
        path = os.path.join(parent, entry)
        if found and os.path.isdir(path) and not os.path.islink(path):
            yield path, found["mark"] or ""
