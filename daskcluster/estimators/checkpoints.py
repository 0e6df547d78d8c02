"""Checkpoints of fits: what is stored, whose it is, and how a fit resumes from it."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from daskcluster.chunkwise.statistics import DataStatistics
from daskcluster.data.identity import data_identity, digest_of
from daskcluster.errors import CheckpointError, InvalidParameterError, ModelFormatError
from daskcluster.events import Callback, Notice, publish
from daskcluster.models.fitted import created_with
from daskcluster.storage.checkpoint import CheckpointFolder, noting_stored_state
from daskcluster.storage.document import (
    Document,
    Shapes,
    document_of,
    read_mapping,
    read_text,
    state_of,
    stored_as,
    stored_kind,
)
from daskcluster.storage.location import Location, locate
from daskcluster.storage.pass_totals import PassTotals
from daskcluster.typing import Dataset

S = TypeVar("S")

_HEADER, _STATE = "frame", "state"
"""The two parts of a document: keys of the body, and prefixes of the arrays' names."""
_WORK = "work"
"""The kind of the commit of work other than a fit."""


@dataclass(frozen=True)
class FitCost:
    """Seed, seeding and costs of a fit so far.

    Attributes
    ----------
    seed : int
    method : str
        Method that chose the first centres.
    passes, bytes_read : int
    seconds : float
    """

    seed: int
    method: str
    passes: int
    bytes_read: int
    seconds: float


@dataclass(frozen=True)
class CheckpointHeader:
    """The part of a checkpoint that is common to all algorithms.

    Attributes
    ----------
    spent : FitCost
    data_statistics : DataStatistics or None
        Data statistics of the first pass, once it is done; the grids of later sums depend on them.
    """

    spent: FitCost
    data_statistics: DataStatistics | None = field(default=None, metadata=stored_as("survey"))

    def around(self, state: Any) -> Document:
        """Return the document of a state (a dataclass) with this header."""
        header, inner = document_of(self), document_of(state)
        arrays = {
            f"{part}_{name}": values
            for part, document in ((_HEADER, header), (_STATE, inner))
            for name, values in document.arrays.items()
        }
        return Document(inner.kind, {_HEADER: header.body, _STATE: inner.body}, arrays)


@dataclass(frozen=True)
class CheckpointDocument:
    """A document made by `CheckpointHeader.around`.

    Parameters
    ----------
    document : Document
    where : str
        Its URL, for errors.
    """

    document: Document
    where: str

    def header(self, n_features: int) -> CheckpointHeader:
        """Return the header of a fit of rows with `n_features` features."""
        names = ("origin", "max_abs", "sums")
        return self._part(
            _HEADER, CheckpointHeader, {f"survey_{name}": (n_features,) for name in names}
        )

    def state(
        self, kind: type[S], shapes: Shapes, check: Callable[[S], None] = lambda state: None
    ) -> S:
        """Return the state, checked by `check`; see `daskcluster.storage.document.state_of`."""
        state = self._part(_STATE, kind, shapes)
        try:
            check(state)
        except ModelFormatError as error:
            raise unfit(self.where, error) from error
        return state

    def _part(self, part: str, kind: type[S], shapes: Shapes) -> S:
        found = self.document
        arrays = {
            name.removeprefix(f"{part}_"): values
            for name, values in found.arrays.items()
            if name.startswith(f"{part}_")
        }
        name = found.kind if part == _STATE else stored_kind(kind)
        try:
            return state_of(kind, Document(name, read_mapping(found.body, part), arrays), shapes)
        except ModelFormatError as error:
            raise unfit(self.where, error) from error


def unfit(where: str, error: ModelFormatError) -> CheckpointError:
    """Return the error for a document that is undamaged but not a state of this kind of fit."""
    return CheckpointError(
        f"Cannot resume from the checkpoint at {where!r}: {error} Remove it, or fit without resume."
    )


if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

EVERY_SECONDS = 30.0

_NO_MATTER = frozenset(
    "algorithm bounds bounds_memory callbacks checkpoint checkpoint_every engine max_iter max_time "
    "validation verbose".split()
)
"""Parameters that do not change the state after a given iteration, so that a resuming fit may change
them."""

_ADDED = frozenset(
    "MiniBatchKernelKMeans.heat_time MiniBatchKernelKMeans.n_neighbors adaptive_rate discard_empty guard "
    "n_local_trials replacement".split()
)
"""Parameters younger than some checkpoints, of all estimators or of one. At their defaults, fits are what
they were before, so that they only count otherwise."""

Check = Callable[[Document, Callable[[str], Location]], None]


@dataclass
class Commits:
    """A folder of commits, and a clock that decides when to commit.

    Picklable.

    Parameters
    ----------
    folder : CheckpointFolder
    every : int
        Iterations between two commits.
    totals : PassTotals, optional
        Totals of the passes since the last commit.
    """

    folder: CheckpointFolder
    every: int
    totals: PassTotals | None = None
    _since: int = 0
    _last: float | None = None

    def is_due(self, *, counts: bool = True) -> bool:
        """Return True if the next call of `keep` will commit.

        A commit is due after `every` iterations or half a minute, whichever is first.
        """
        clock = time.monotonic()
        self._last = clock if self._last is None else self._last
        late = clock - self._last >= EVERY_SECONDS
        return (counts and self._since + 1 >= self.every) or late

    def keep(
        self,
        make: Callable[[], Document],
        *,
        now: bool = False,
        counts: bool = True,
        due: bool | None = None,
    ) -> None:
        """Commit ``make()`` if a commit is due, or `now`.

        Parameters
        ----------
        make : callable () -> Document
        now : bool
            Commit now, regardless of `is_due`.
        counts : bool
            Count this call as the end of an iteration.
        due : bool, optional
            Whether to commit, if this was decided at the start of the iteration because other outputs
            depend on it.
        """
        due = now or self.is_due(counts=counts) if due is None else due
        self._since += int(counts)
        if due:
            self.folder.commit(make())
            if self.totals is not None:
                self.totals.clear()
            self._since, self._last = 0, time.monotonic()

    def part(self, name: str) -> Commits:
        """Return the commits of a part of the fit, with their own clock."""
        return Commits(self.folder.part(name), self.every)


class Checkpoints:
    """The checkpoints of one call of `fit`.

    Parameters
    ----------
    estimator : estimator
        With parameters ``checkpoint`` (a URL or None) and ``checkpoint_every``; without them, nothing is
        committed.
    dataset : Dataset
    callbacks : tuple of callables
        Notified when a fit resumes.
    resume : bool
        Resume from the last commit.
    circumstances : mapping, optional
        Plain values that the result depends on besides parameters and rows.
    check : callable (state, place) -> None, optional
        Raises if attachments of a commit are damaged; ``place(name)`` returns the location of one.

    Attributes
    ----------
    found : CheckpointDocument or None
        The state to resume from.
    commits : Commits or None
        The commits, if the estimator has a checkpoint.
    """

    def __init__(
        self,
        estimator: Any,
        dataset: Dataset,
        callbacks: tuple[Callback, ...],
        *,
        resume: bool,
        circumstances: Mapping[str, Any],
        check: Check,
    ) -> None:
        url = getattr(estimator, "checkpoint", None)
        check_resume(url, "fit", resume=resume)
        self.found: CheckpointDocument | None = None
        self.commits: Commits | None = None
        if url is None:
            return
        known = facts(estimator, dataset)
        if circumstances:
            known["circumstances"] = dict(circumstances)
        folder = CheckpointFolder(url, known)
        totals = PassTotals(folder.attachment("passes"), resume=resume)
        self.commits = Commits(folder, int(getattr(estimator, "checkpoint_every", 1)), totals)
        if resume:
            document = folder.latest(lambda state: check(state, folder.attachment))
            if document is not None:
                self.found = CheckpointDocument(document, folder.url)
            is_there = document is not None or bool(totals)
            publish(callbacks, _notice(folder, "fit", is_there=is_there))


def check_resume(checkpoint: Any, what: str, *, resume: bool) -> None:
    """Refuse to resume without a checkpoint; `what` completes "the earlier"."""
    if resume and checkpoint is None:
        raise InvalidParameterError(
            f"resume=True needs checkpoint=, the URL at which the earlier {what} saved its state."
        )


def _notice(folder: CheckpointFolder, what: str, *, is_there: bool) -> Notice:
    if is_there:
        return Notice(f"The {what} resumes from its checkpoint at {folder.url!r}.")
    return Notice(f"There is no checkpoint at {folder.url!r} yet; the {what} starts from scratch.")


@dataclass(frozen=True)
class StoredWork:
    """What work other than a fit has finished, so that it resumes: parts of it, and totals of passes.

    Attributes
    ----------
    folder : CheckpointFolder
        Its one commit says whose it is; finished work is in its parts and attachments.
    seed : int
        The seed of the first run.
    resumes : bool
        Whether there is finished work of an earlier run.
    """

    folder: CheckpointFolder
    seed: int
    resumes: bool

    @classmethod
    @contextmanager
    def begin(
        cls,
        url: Any,
        what: str,
        parameters: Mapping[str, Any],
        dataset: Dataset,
        *,
        seed: int = 0,
        resume: bool = False,
        callbacks: Sequence[Callback] = (),
    ) -> Iterator[StoredWork | None]:
        """Yield the work that is stored at `url`; None without a URL.

        Without `resume`, what an earlier run of the same work has left is removed. An error in the block
        says where the work is stored, unless `url` is a location: then its owner says so.

        Parameters
        ----------
        url : str, path, Location or None
        what : str
            The work, for messages: completes "the".
        parameters : mapping
            Everything that the result depends on, besides the rows.
        dataset : Dataset
        seed : int
            The seed of a first run.
        resume : bool
        callbacks : sequence of callables

        Raises
        ------
        CheckpointError
            The work that is stored at `url` is other work, or is damaged.
        InvalidParameterError
            There is no URL to resume from.
        """
        check_resume(url, what, resume=resume)
        if url is None:
            yield None
            return
        place = locate(url)
        known = {name: _plain(value) for name, value in parameters.items()}
        version = created_with()["daskcluster"]
        facts = {"work": what, "parameters": known, "data": data_identity(dataset)}
        folder = CheckpointFolder(place, facts | {"daskcluster": version})
        with noting_stored_state(None if place is url else place, f"the {what}"):
            document = folder.latest() if resume else None
            if resume:
                publish(callbacks, _notice(folder, what, is_there=document is not None))
            if document is None:
                folder.clear()
                folder.commit(Document(_WORK, {"seed": str(seed)}, {}))
            else:
                seed = int(read_text(document.body, "seed"))
            yield cls(folder, seed, document is not None)

    def totals(self, name: str = "passes") -> PassTotals:
        """Return where long passes keep their totals; those over other rows have another name."""
        return PassTotals(self.folder.attachment(name), resume=self.resumes)


def facts(estimator: BaseEstimator, dataset: Dataset) -> dict[str, Any]:
    """Return everything that the result of a fit depends on, as plain values."""
    given = estimator.get_params(deep=False).items()
    defaults = inspect.signature(type(estimator)).parameters
    kind = type(estimator).__name__
    ignored = _NO_MATTER | {
        name
        for name, value in given
        if {name, f"{kind}.{name}"} & _ADDED and value == defaults[name].default
    }
    versions = created_with()
    return {
        "estimator": kind,
        "parameters": {name: _plain(value) for name, value in given if name not in ignored},
        "data": data_identity(dataset),
        "daskcluster": versions["daskcluster"],
    }


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Location):
        return value.url
    if isinstance(value, Mapping):
        return {str(name): _plain(entry) for name, entry in value.items()}
    centres = getattr(value, "cluster_centers_", getattr(value, "means_", value))
    if isinstance(centres, (np.ndarray, list, tuple)):
        return digest_of(np.ascontiguousarray(centres))
    return f"<{getattr(value, '__qualname__', type(value).__name__)}>"
