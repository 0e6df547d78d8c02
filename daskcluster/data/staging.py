"""Outputs that are whole or absent: write within ``with Staging.begin(url) as staging``, and commit last.

On a local file system an output grows in a folder beside it (`daskcluster.data.leftovers`), which is
renamed when it is whole; then what killed writers of the same output have left there is removed.
An object store has no rename: there the chunks go to their final place and the metadata, without which
nothing can be opened, is written last; a mark names the half-written output until then.
"""

from __future__ import annotations

import json
import os
import shutil
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import Any, Self

from daskcluster.data import leftovers
from daskcluster.data.nodes import PARTIAL_MARK
from daskcluster.data.patience import patiently, while_others_write
from daskcluster.data.stores import Location, explain, locate
from daskcluster.errors import (
    DaskClusterError,
    DatasetNotFoundError,
    OutputExistsError,
    comes_from_outside,
)

_METADATA = ("zarr.json", ".zarray", ".zgroup")


@dataclass(frozen=True)
class Staging:
    """One output under way; as a context manager it is aborted if the block raises.

    Attributes
    ----------
    target : Location
        Where the output will be.
    work : Location
        Where its chunks are written.
    overwrite : bool
    mark : str
        What a later writer of the same output will know it by; empty if none may go on with it.
    stays : bool
        What was written outlives an error, for that writer.
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
        """Make ready to write to `url`.

        An existing output stays readable until `commit` on a local file system; on an object store it is
        removed here, since its chunks are about to be replaced.

        Parameters
        ----------
        kinds : tuple of {"array", "group"}
            What `overwrite` may replace; anything else that is there is never touched.
        mark : str
            Hexadecimal digits: of all that the output depends on.
        resume : bool
            Go on with what an interrupted writer with the same `mark` has left, and leave what is written
            to the next one if there is an error.

        Raises
        ------
        OutputExistsError
            Something is there, and `overwrite` is False or it is not of these kinds.
        """
        target = locate(url, storage_options)
        if target.is_local:
            return cls._begin_local(target, overwrite, kinds, mark, resume)
        try:
            return cls._begin_remote(target, overwrite, kinds, mark, resume)
        except DaskClusterError:
            raise
        except Exception as error:
            raise explain(error, target, "output") from error

    @classmethod
    def _begin_local(
        cls,
        target: Location,
        overwrite: bool,
        kinds: tuple[str, ...],
        mark: str,
        resume: bool,
    ) -> Staging:
        target = replace(target, url=os.path.realpath(target.url))
        _check_local(target, overwrite, kinds)
        work = replace(target, url=leftovers.new_folder(target.url, mark))
        try:
            if not (resume and mark and leftovers.adopt(target.url, mark, work.url)):
                os.makedirs(work.url)
                leftovers.claim(work.url)
        except OSError as error:
            raise DatasetNotFoundError(
                f"The output {target.url!r} cannot be written ({error}); choose a folder that you may "
                "write to."
            ) from error
        return cls(target, work, overwrite, mark, stays=resume)

    @classmethod
    def _begin_remote(
        cls,
        target: Location,
        overwrite: bool,
        kinds: tuple[str, ...],
        mark: str,
        resume: bool,
    ) -> Staging:
        is_there = _check_remote(target, overwrite, kinds)
        fs, path = target.filesystem()
        note = f"{path}/{PARTIAL_MARK}"
        goes_on = resume and bool(mark) and not is_there and _read(fs, note) == mark.encode()
        if not goes_on:
            # The mark first: whatever stops us from here on, the next writer may take the place. But who
            # it is of is told last: what is there until then is of another output.
            patiently(lambda: fs.pipe_file(note, b""), target)
            patiently(lambda: _remove_all(fs, path, but_the_mark=True), target)
            if mark:
                patiently(lambda: fs.pipe_file(note, mark.encode()), target)
        return cls(target, target, overwrite, mark, stays=resume)

    def commit(self, documents: Mapping[str, bytes]) -> None:
        """Publish the output: `documents` (metadata by relative path) are written last, in order.

        Raises
        ------
        OutputExistsError
            Somebody else wrote there in the meantime.
        """
        if not self.target.is_local:
            self._commit_remote(documents)
            return
        for name, content in documents.items():
            file = os.path.join(self.work.url, name)
            os.makedirs(os.path.dirname(file), exist_ok=True)
            with open(file, "wb") as out:
                out.write(content)
        self._rename()

    def _commit_remote(self, documents: Mapping[str, bytes]) -> None:
        fs, path = self.target.filesystem()
        try:
            for name, content in documents.items():
                patiently(partial(fs.pipe_file, f"{path}/{name}", content), self.target)
            patiently(lambda: _remove_file(fs, f"{path}/{PARTIAL_MARK}"), self.target)
        except DaskClusterError:
            raise
        except Exception as error:
            raise explain(error, self.target, "output") from error
        fs.invalidate_cache()

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
        leftovers.release(target)
        leftovers.remove_abandoned(target)

    def _tell(self, error: BaseException) -> None:
        """Add to an error that what was written stays, if it does and the error comes from outside."""
        if self.stays and self.mark and comes_from_outside(error):
            error.add_note(
                f"The finished rows of {self.target.url!r} are kept: the same call with resume=True "
                "goes on with them."
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self._tell(error)
            self.abort()

    def abort(self) -> None:
        """Remove what has been written, unless it `stays`; the target stays absent, or as it was.

        Never raises: what ended the writing is what its caller should hear of.
        """
        if self.target.is_local:
            (leftovers.release if self.stays else leftovers.remove)(self.work.url)
            return
        if self.stays:
            return
        fs, path = self.target.filesystem()
        try:
            patiently(lambda: _remove_all(fs, path), self.target)
        except Exception as error:
            warnings.warn(
                f"What was written of the output {self.target.url!r} could not be removed "
                f"({error}); it cannot be opened, and the next writer removes it.",
                RuntimeWarning,
                stacklevel=2,
            )


def check_free(
    url: Any,
    *,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    kinds: tuple[str, ...] = ("array",),
) -> None:
    """Refuse now what `Staging.begin` would refuse later; nothing is touched.

    Raises
    ------
    OutputExistsError
        Something is there, and `overwrite` is False or it is not of these kinds.
    """
    target = locate(url, storage_options)
    if target.is_local:
        _check_local(replace(target, url=os.path.realpath(target.url)), overwrite, kinds)
        return
    try:
        _check_remote(target, overwrite, kinds)
    except DaskClusterError:
        raise
    except Exception as error:
        raise explain(error, target, "output") from error


def _remove_all(fs: Any, path: str, *, but_the_mark: bool = False) -> None:
    """Remove an output of an object store: first what makes it readable, last the mark."""
    fs.invalidate_cache()
    names = [str(name) for name in while_others_write(lambda: fs.find(path))]
    heads = [name for name in names if name.removeprefix(f"{path}/") in _METADATA]
    rest = [name for name in names if name not in heads and not name.endswith(PARTIAL_MARK)]
    for part in (heads, rest):
        if part:
            fs.rm(part)
    if not but_the_mark and fs.exists(path):
        fs.rm(path, recursive=True)
    fs.invalidate_cache()


def _remove_file(fs: Any, path: str) -> None:
    if fs.exists(path):  # an earlier try may have got that far
        fs.rm_file(path)


def _check_remote(target: Location, overwrite: bool, kinds: tuple[str, ...]) -> bool:
    """Return True if something readable is there that may be replaced."""
    fs, path = target.filesystem()
    fs.invalidate_cache()
    kind = _kind_of({name: _read(fs, f"{path}/{name}") for name in _METADATA})
    if kind is not None:
        _refuse(target, overwrite, kind in kinds)
    elif not fs.exists(f"{path}/{PARTIAL_MARK}") and fs.exists(path):
        _refuse(target, overwrite, False)
    return kind is not None


def _check_local(target: Location, overwrite: bool, kinds: tuple[str, ...]) -> None:
    path = target.url
    if not os.path.lexists(path) or (os.path.isdir(path) and not os.listdir(path)):
        return
    documents = {}
    for name in _METADATA:
        file = os.path.join(path, name)
        if os.path.isfile(file):
            with open(file, "rb") as stream:
                documents[name] = stream.read()
    _refuse(target, overwrite, _kind_of(documents) in kinds)


def _refuse(target: Location, overwrite: bool, replaceable: bool) -> None:
    if overwrite and replaceable:
        return
    if overwrite:
        raise OutputExistsError(
            f"The output {target.url!r} exists and is not what this would replace, so overwrite=True does "
            "not touch it; choose another name, or remove it yourself."
        )
    raise OutputExistsError(
        f"The output {target.url!r} exists already; pass overwrite=True to replace it, or choose "
        "another name."
    )


def _kind_of(documents: Mapping[str, bytes | None]) -> str | None:
    if documents.get(".zarray") is not None:
        return "array"
    if documents.get(".zgroup") is not None:
        return "group"
    content = documents.get("zarr.json")
    if content is None:
        return None
    try:
        return str(json.loads(content).get("node_type"))
    except ValueError:
        return "array"  # half-written metadata of ours or another's: replaceable as one


def _read(fs: Any, path: str) -> bytes | None:
    try:
        return bytes(fs.cat_file(path))
    except FileNotFoundError:
        return None
