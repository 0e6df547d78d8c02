"""Checkpoints of a fit: a sequence of commits, each written once and never changed.

Layout::

    <url>/<fingerprint>/<number>-<token>/          a sealed document (`daskcluster.storage.document`)
    <url>/<fingerprint>/<part>/<number>-<token>/   a commit of a part of the fit
    <url>/<fingerprint>/<kind>-<number>-<token>/   an attachment, named by commits

The fingerprint covers everything that the result of the fit depends on. A commit is valid once its last
file, which has the checksums, exists; the store only has to write single files atomically. The token
separates two writers of the same number. Attachments are written before the commits that name them (in the
entry ``attached`` of the state), and are removed with the last of those commits.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
import warnings
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskcluster.errors import (
    CheckpointError,
    DatasetNotFoundError,
    ModelFormatError,
    comes_from_outside,
)
from daskcluster.fingerprint import fingerprint
from daskcluster.storage.document import Document, Form, read_body, sealed, unsealed
from daskcluster.storage.files import (
    explained,
    file_size,
    list_names,
    open_file,
    remove_file,
    remove_folder,
    write_file,
)
from daskcluster.storage.location import Location, locate
from daskcluster.storage.process_local import open_once
from daskcluster.storage.zarr_stores import HEAD
from daskcluster.typing import Visibility

_STORED = np.dtype("<i4")
_DIGEST_BYTES = 32
_NAME = re.compile(r"(\d{15})-(\d{15})\.state")
_READERS = 8

Run = tuple[int, int, str]
"""First row, end row (exclusive), and file name."""


@dataclass(frozen=True)
class StateFiles:
    """State of all rows after one pass, with one file per range of rows written together.

    Any number of tasks may write, even the same rows twice or in other ranges, since the values are the
    same. A file holds a SHA-256 digest and the plain numbers; its name gives their count, and reading
    checks both. Picklable, without credentials.

    Attributes
    ----------
    folder : Location
        Folder of these files only; created with the first file.
    width : int
        Numbers per row.
    kept : bool
        The files must outlive the fit: raise errors of the store, and flush files to disk.

    Examples
    --------
    >>> import numpy as np
    >>> from daskcluster.storage.location import locate
    >>> files = StateFiles(locate("memory://state-example"), 2)
    >>> files.write(0, np.arange(6).reshape(3, 2)), files.write(3, np.arange(4).reshape(2, 2))
    (True, True)
    >>> files.read(2, 4).tolist()
    [[4, 5], [0, 1]]
    >>> files.remove()
    """

    folder: Location
    width: int
    kept: bool = False

    def write(self, start: int, values: np.ndarray) -> bool:
        """Write the state of the rows from `start` on, int32 (m, width).

        Returns
        -------
        bool
            False if the store fails.

        Raises
        ------
        OSError
            The store fails and the files are `kept`; or another error of the store's client.
        """
        payload = np.ascontiguousarray(values, _STORED).tobytes()
        name = f"{start:015d}-{start + len(values):015d}.state"
        content = hashlib.sha256(payload).digest() + payload
        try:
            write_file(self.folder, name, content, durable=self.kept)
        except Exception:  # clouds' clients have error classes of their own
            if self.kept:
                raise
            return False
        return True

    def read(self, start: int, stop: int) -> np.ndarray:
        """Return the state of rows `start` to `stop`, int32 (stop - start, width).

        Raises
        ------
        CheckpointError
            Some of them are missing or damaged.
        """
        # Listed once per process.
        parts, at, runs = [], start, open_once(("state files", self), self._runs)
        begin = max(0, bisect_right(runs, start, key=lambda run: run[0]) - 1)
        for index in range(begin, len(runs)):
            first, last, name = runs[index]
            if at >= stop:
                break
            if first <= at < last:
                found = self._content(first, last, name)
                parts.append(found[at - first : min(last, stop) - first])
                at = min(last, stop)
        if at < stop:
            raise CheckpointError(
                f"the saved state of rows {at} to {stop} is not in {self.folder.url!r}, as seen from "
                "this host; keep all workers on the driver's host, or give a checkpoint= URL that all "
                "of them can read."
            )
        return np.array(parts[0]) if len(parts) == 1 else np.concatenate(parts)

    def check(self, n_rows: int, *, whole: bool = True) -> None:
        """Raise if the files do not hold the state of all rows.

        Parameters
        ----------
        n_rows : int
        whole : bool
            Also read all files and check their digests.

        Raises
        ------
        CheckpointError
        """
        at, runs = 0, self._runs()
        for first, last, _ in runs:
            at = last if first <= at else at
        if at < n_rows:
            raise CheckpointError(
                f"the state of rows {at} to {n_rows} that workers have written is not in "
                f"{self.folder.url!r}, as seen from the driver; give a checkpoint= URL that the driver "
                "and all workers can use: a bucket, or a shared folder."
            )
        if whole:
            with ThreadPoolExecutor(_READERS, thread_name_prefix="daskcluster-state") as pool:
                for _ in pool.map(lambda run: self._content(*run) is None, runs):
                    pass

    def remove(self) -> None:
        """Remove the folder and its files; ignore errors."""
        with suppress(Exception):  # clouds' clients have error classes of their own
            remove_folder(self.folder)

    # -- files -------------------------------------------------------------------------------------

    def _content(self, first: int, last: int, name: str) -> np.ndarray:
        expected = _DIGEST_BYTES + (last - first) * self.width * _STORED.itemsize
        # Read one byte more than expected, to detect a file that is too large.
        with explained(self.folder, "saved state"), open_file(self.folder, name) as file:
            content: Any = file.read(expected + 1)
        digest, payload = content[:_DIGEST_BYTES], memoryview(content)[_DIGEST_BYTES:]
        if len(content) != expected or hashlib.sha256(payload).digest() != digest:
            raise CheckpointError(
                f"the saved state of rows {first} to {last} in {self.folder.url!r} is damaged; remove "
                "that checkpoint, or start without resume."
            )
        found = np.frombuffer(payload, _STORED).reshape(-1, self.width)
        return found.astype(np.int32, copy=False)

    def _runs(self) -> list[Run]:
        """Return all files that add rows, sorted by rows."""
        runs, at = list[Run](), 0
        for match in filter(None, map(_NAME.fullmatch, list_names(self.folder))):
            first, last = int(match.group(1)), int(match.group(2))
            if last > at:
                at = last
                runs.append((first, last, match.group(0)))
        return runs


CHECKPOINT = Form("daskcluster-checkpoint", 1, "checkpoint")

KEPT = 2
"""Number of commits to keep: the newest, and the one before it in case the newest is damaged."""

_COMMIT = re.compile(r"(\d{8})-[0-9a-f]{8}")
_ATTACHMENT = re.compile(r"[a-z]{1,16}-(\d{8})-[0-9a-f]{8}")
_FINGERPRINT = re.compile(r"[0-9a-f]{16}")


class CheckpointFolder:
    """The checkpoints of one fit.

    Parameters
    ----------
    url : str, path or Location
        Folder shared by all fits; each fit has a subfolder of its own.
    facts : mapping
        Everything that the result depends on, as plain values.
    part : str, optional
        Name of a part of the fit that has commits of its own.

    Examples
    --------
    >>> import numpy as np
    >>> folder = CheckpointFolder("memory://doctest/checkpoints", {"n_clusters": 3})
    >>> folder.commit(Document("lloyd", {"iteration": 7}, {"centres": np.eye(2)}))
    >>> CheckpointFolder("memory://doctest/checkpoints", {"n_clusters": 3}).latest().body["iteration"]
    7
    >>> folder.clear()
    """

    def __init__(
        self,
        url: Any,
        facts: Mapping[str, Any],
        *,
        part: str = "",
    ) -> None:
        self._top = locate(url)
        self._facts = json.loads(json.dumps(dict(facts)))
        canonical = json.dumps(self._facts, sort_keys=True)
        self._place = self._top.child(hashlib.sha256(canonical.encode()).hexdigest()[:16])
        self._part = part
        if part:
            self._place = self._place.child(part)
        self._next: int | None = None
        self._attached: dict[str, Collection[str]] = {}

    def part(self, name: str) -> CheckpointFolder:
        """Return the subfolder of a part of the fit, which has commits of its own."""
        return CheckpointFolder(self._top, self._facts, part=name)

    def parts(self) -> list[str]:
        """Return the names of what the folder of the fit holds: its parts, commits and attachments."""
        return list_names(self._place)

    @property
    def url(self) -> str:
        """URL of the commits of this fit."""
        return self._place.url

    @property
    def visibility(self) -> Visibility:
        """The processes that can read and write them."""
        return self._place.visibility

    def new_attachment(self, kind: str, *content: Any) -> str:
        """Return the name of a new attachment, for the next commit to name.

        Parameters
        ----------
        kind : str
            Up to 16 lower-case letters.
        *content
            Everything that its content depends on, besides the facts of the fit: a fit that was killed
            while it wrote the attachment continues it. Default: no other fit uses it.
        """
        token = fingerprint(*content) if content else uuid.uuid4().hex
        return f"{kind}-{self._number():08d}-{token[:8]}"

    def attachment(self, name: str) -> Location:
        """Return the location of an attachment."""
        return self._place.child(name)

    def commit(self, state: Document) -> None:
        """Write a commit; remove all older ones but the latest, and their attachments.

        Raises
        ------
        DaskClusterError
            The store cannot be written.

        Notes
        -----
        Cost: writes the bytes of the state, and makes one listing.
        """
        number = self._number()
        name = f"{number:08d}-{uuid.uuid4().hex[:8]}"
        body = {"facts": self._facts, "state": state.body}
        document = Document(state.kind, body, state.arrays)
        with explained(self._place, "checkpoint"):
            for file, content in sealed(CHECKPOINT, document):
                write_file(self._place.child(name), file, content)
        self._next = number + 1
        self._attached[name] = attachments_of(state.body).values()
        self._prune()

    def newest(self) -> int:
        """Return the number of the newest commit; 0 if there is none."""
        return max((number for number, _ in _commits(self._place)), default=0)

    def _number(self) -> int:
        """Return the number of the next commit."""
        if self._next is None:
            self._next = self.newest() + 1
        return self._next

    def latest(self, check: Callable[[Document], None] = lambda state: None) -> Document | None:
        """Return the newest undamaged commit, or None if there are no commits.

        Issues a warning for each damaged commit.

        Parameters
        ----------
        check : callable (state) -> None
            Raises `ModelFormatError` or `CheckpointError` if an attachment of the commit is damaged.

        Raises
        ------
        CheckpointError
            All commits are damaged; or this fit has none, but another fit has.
        """
        commits = _commits(self._place)
        for _, name in commits:
            try:
                found = self._read(self._place.child(name))
                check(found)
                return found
            except (ModelFormatError, CheckpointError, DatasetNotFoundError) as error:
                warnings.warn(
                    f"Skipping a checkpoint and trying the one before it: {error}",
                    RuntimeWarning,
                    stacklevel=4,
                )
        if commits:
            raise CheckpointError(
                f"All {len(commits)} checkpoints at {self.url!r} are damaged; remove them, or start "
                "without resume."
            )
        if not self._part:
            self._refuse_others()
        return None

    def clear(self) -> None:
        """Remove this fit's commits and their attachments."""
        for _, name in _commits(self._place):
            _remove(self._place.child(name))
        _remove(self._place)

    # -- commits in the folder ---------------------------------------------------------------------

    def _read(self, place: Location) -> Document:
        document = unsealed(CHECKPOINT, place)
        facts, state = document.body.get("facts"), document.body.get("state")
        if facts != self._facts or not isinstance(state, dict):
            raise ModelFormatError(
                f"the checkpoint at {place.url!r} does not belong to its folder."
            )
        attachments_of(state)
        return Document(document.kind, state, document.arrays)

    def _prune(self) -> None:
        names = list_names(self._place)
        commits = _commits(self._place, names)
        for _, name in commits[KEPT:]:
            _remove(self._place.child(name))
        attached = [match for match in map(_ATTACHMENT.fullmatch, names) if match]
        if not attached:
            return
        named = {each for _, name in commits[:KEPT] for each in self._named_by(name)}
        # Attachments with later numbers belong to commits that are still being written.
        oldest = min(number for number, _ in commits[:KEPT])
        for match in attached:
            if match.group(0) not in named and int(match.group(1)) < oldest:
                _remove(self._place.child(match.group(0)))

    def _named_by(self, commit: str) -> Collection[str]:
        """Return the names of a commit's attachments; none if it is damaged."""
        if commit not in self._attached:
            try:
                state = read_body(CHECKPOINT, self._place.child(commit)).get("state")
                body = state if isinstance(state, dict) else {}
                self._attached[commit] = attachments_of(body).values()
            except ModelFormatError:
                self._attached[commit] = ()
        return self._attached[commit]

    def _refuse_others(self) -> None:
        """Raise if another fit has checkpoints here; name the differences."""
        for name in list_names(self._top):
            if not _FINGERPRINT.fullmatch(name):
                continue
            other = self._top.child(name)
            for _, commit in _commits(other):
                try:
                    facts = unsealed(CHECKPOINT, other.child(commit)).body.get("facts")
                except ModelFormatError:
                    continue
                if isinstance(facts, dict):
                    raise CheckpointError(
                        f"The checkpoints at {self._top.url!r} are of another fit: "
                        f"{differences(facts, self._facts)}. Give the same data and parameters, or start "
                        "without resume."
                    )


@contextmanager
def noting_stored_state(place: Location | None, what: str = "the fit") -> Iterator[None]:
    """Add to an error or interrupt in the block where the state is stored, if it is.

    Parameters
    ----------
    place : Location or None
        Folder shared by all fits; None if no state is stored.
    what : str
        Owner of the state, for the message.
    """
    try:
        yield
    except BaseException as error:
        if place is not None:
            tell_where(error, place, what)
        raise


def tell_where(
    error: BaseException, place: Location, what: str, again: str = "the same call with resume=True"
) -> None:
    """Add to an error where the state is stored, if the error comes from outside and there is a commit.

    Parameters
    ----------
    error : BaseException
    place : Location
        The folder that fits share.
    what : str
        Owner of the state, for the message.
    again : str
        The command or call that resumes it.
    """
    with suppress(Exception):  # the store itself may have failed; the original error matters more
        if comes_from_outside(error) and any(
            _commits(place.child(name)) for name in list_names(place)
        ):
            error.add_note(
                f"The state of {what} is stored at {place.url!r}: {again} resumes from it."
            )


def attachments_of(body: Mapping[str, Any]) -> dict[str, str]:
    """Return the names of the attachments of the body of a state, by their kind.

    Raises
    ------
    ModelFormatError
        A name is not of the form of `CheckpointFolder.new_attachment`; names become paths.

    Examples
    --------
    >>> attachments_of({"attached": {"sets": "sets-00000003-0123abcd"}})
    {'sets': 'sets-00000003-0123abcd'}
    """
    framed = body.get("state")  # the checkpoint of an estimator wraps the state in a header
    found = (framed if isinstance(framed, dict) else body).get("attached") or {}
    named = {k: v for k, v in found.items() if v is not None} if isinstance(found, dict) else None
    if named is None or not all(
        isinstance(name, str) and _ATTACHMENT.fullmatch(name) for name in named.values()
    ):
        raise ModelFormatError("the attachments named in a checkpoint have invalid names.")
    return named


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Return as text where two mappings differ; nested entries have dotted names.

    Examples
    --------
    >>> differences({"data": {"rows": 3}, "k": 8}, {"data": {"rows": 4}, "k": 8})
    'data.rows was 3 and is 4'
    """
    old, new = _flat(before), _flat(now)
    names = [
        name for name in [*old, *(n for n in new if n not in old)] if old.get(name) != new.get(name)
    ]
    shown = {name: (repr(old.get(name))[:60], repr(new.get(name))[:60]) for name in names}
    return ", ".join(f"{name} was {before} and is {now}" for name, (before, now) in shown.items())


def _flat(facts: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in facts.items():
        inner = _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else None
        found.update({f"{prefix}{name}": value} if inner is None else inner)
    return found


# -- the store -------------------------------------------------------------------------------------


def _commits(place: Location, names: Collection[str] | None = None) -> list[tuple[int, str]]:
    """Return numbers and names of the complete commits of one fit, newest first."""
    found = []
    for name in list_names(place) if names is None else names:
        match = _COMMIT.fullmatch(name)
        if match and file_size(place.child(name), HEAD) >= 0:
            found.append((int(match.group(1)), name))
    return sorted(found, reverse=True)


def _remove(place: Location) -> None:
    """Remove a commit, starting with the file that makes it valid, so that no partial commit remains."""
    remove_file(place, HEAD)
    remove_folder(place)
