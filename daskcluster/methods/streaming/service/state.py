"""Stored state of a stream: commits, the ledger, model versions, and a status file.

Layout below the URL of the state::

    commits/<fingerprint>/<number>-<token>/   states of the stream (`daskcluster.storage.checkpoint`)
    ledger/<first>-<digest>.jsonl             segments of the ledger, which commits name
    models/<rows>/                            a model per version; versions are numbers of rows
    latest.json                               the version of the last commit
    status.json                               the status after the last cycle

A version is the number of rows that the model has seen, so it does not depend on the number of cycles.
Apart from the last two, files are written once and never change. A commit makes the new ledger and the new
version effective together; files that no commit names have no effect.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from daskcluster.errors import CheckpointError, DatasetNotFoundError, ModelFormatError
from daskcluster.methods.streaming.fold import StreamFold
from daskcluster.methods.streaming.service.ledger import Finding, Ledger
from daskcluster.methods.streaming.state import document_of
from daskcluster.methods.streaming.streams import Learner
from daskcluster.models.persist import Model, load_document, save_model
from daskcluster.storage.checkpoint import CheckpointFolder
from daskcluster.storage.document import (
    Document,
    plain,
    read_count,
    read_mapping,
    read_names,
    read_records,
    read_text,
)
from daskcluster.storage.files import list_names, read_file, remove_file, write_file
from daskcluster.storage.location import Location, locate


@dataclass(frozen=True)
class Cycle:
    """The results of one poll of the source.

    Attributes
    ----------
    rows_seen, new_rows, objects, new_objects : int
        Rows and objects of the whole stream, and of this cycle; objects are entries of the ledger.
    model_version : int or None
        Number of rows that the latest model has seen.
    model : str or None
        URL of the latest model.
    findings : tuple of Finding
    drifts : tuple of dict
        Drifts found in this cycle.
    drift : dict
        The error of the last leaf, its baseline, their ratio, and ``counts``, the weight of its rows in
        each cluster.
    remembered : float
        Weight of all rows after forgetting.
    n_clusters : int or None
    algorithm : str
    seconds : float
    """

    rows_seen: int
    new_rows: int
    objects: int
    new_objects: int
    model_version: int | None
    model: str | None
    findings: tuple[Finding, ...]
    drifts: tuple[dict[str, Any], ...]
    drift: dict[str, Any]
    remembered: float
    n_clusters: int | None
    algorithm: str
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """Return the cycle as plain JSON values."""
        values = {name: value for name, value in vars(self).items() if name != "findings"}
        findings = [
            {"what": str(finding.oddity), "name": finding.name, "text": finding.text}
            for finding in self.findings
        ]
        return {**values, "drifts": list(self.drifts), "findings": findings}


STATUS = "status.json"

_LAST = 10
_MOST_FINDINGS = 50


def status_of(cycle: Cycle, ledger: Ledger) -> dict[str, Any]:
    """Return the status of a stream after a cycle, as plain values."""
    rejected = sum(entry.is_rejected for entry in ledger.entries)
    found = cycle.as_dict()
    findings = found.pop("findings")
    counts = Counter(each["what"] for each in findings)
    status: dict[str, Any] = plain(
        {
            **found,
            "updated": time.time(),
            "rejected": rejected,
            "oddities": dict(sorted(counts.items())),
            "findings": findings[:_MOST_FINDINGS],
            "last_objects": [
                {"name": entry.name, "rows": entry.n_rows, "note": entry.note}
                for entry in ledger.entries[-_LAST:]
            ],
        }
    )
    return status


def read_status(url: Any, storage_options: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the status of the stream whose state is at `url`.

    Raises
    ------
    DatasetNotFoundError
        There is no state at `url`.
    """
    place = locate(url, storage_options)
    content = read_file(place, STATUS)
    if content is None:
        raise DatasetNotFoundError(
            f"There is no state of a stream at {place.url!r}; pass the URL given as --state to "
            "daskcluster stream."
        )
    found: dict[str, Any] = json.loads(content)
    return found


LATEST = "latest.json"


@dataclass
class StreamState:
    """Current state of a stream.

    Attributes
    ----------
    ledger : Ledger
    fold : StreamFold or None
        None before the first rows.
    seed : int
    n_features : int
    feature_names : tuple of str or None
        Those of the first rows, if they have names.
    version : int or None
        Version of the model; None before there is one.
    n_commits : int
    decoded : bool or None
        See `daskcluster.data.features.FeatureSpec`.
    """

    ledger: Ledger
    fold: StreamFold | None
    seed: int
    n_features: int = 0
    version: int | None = None
    n_commits: int = 0
    feature_names: tuple[str, ...] | None = None
    decoded: bool | None = True

    @property
    def rows_seen(self) -> int:
        return 0 if self.fold is None else self.fold.n_rows


class StateStore:
    """Loads and commits the state of one stream.

    Parameters
    ----------
    url : str or path
    facts : mapping
        Settings that identify the stream, as plain values.
    storage_options : mapping, optional
    """

    def __init__(
        self, url: Any, facts: Mapping[str, Any], storage_options: Mapping[str, Any] | None = None
    ) -> None:
        self.place = locate(url, storage_options)
        self._facts = dict(facts)
        self._commits = CheckpointFolder(self.place.child("commits"), facts)
        self._number = 0
        self._ledger = self.place.child("ledger")
        self._named: set[str] = set()

    def load(self, learner: Learner, seed: int) -> StreamState:
        """Return the state of the last commit, or an empty one with `seed`.

        Raises
        ------
        CheckpointError
            The state belongs to another stream or other parameters, or is damaged.
        """
        self._commits = CheckpointFolder(self.place.child("commits"), self._facts)
        found = self._commits.latest()
        self._number = self._commits.newest()
        if found is None:
            return StreamState(Ledger(), None, seed)
        body = found.body
        ledger = Ledger.read(self._ledger, read_records(body, "ledger"))
        self._named = {str(segment["name"]) for segment in ledger.segments}
        seed = int(read_text(body, "seed"))
        fold = None
        if "fold" in body:
            document = Document(found.kind, read_mapping(body, "fold"), found.arrays)
            try:
                fold = learner.restored(document, read_text(body, "dtype"), seed)
            except (KeyError, ModelFormatError) as error:
                raise CheckpointError(
                    f"The state at {self.place.url!r} cannot be resumed ({error}); it may be from "
                    "another release: start a new state."
                ) from error
        version = body.get("version")
        state = StreamState(
            ledger,
            fold,
            seed,
            read_count(body, "n_features"),
            None if version is None else int(version),
            read_count(body, "n_commits"),
            read_names(body, "feature_names") if "feature_names" in body else None,
            body.get("decoded"),
        )
        self.point(state)  # in case a run was stopped between its commit and this
        return state

    def commit(self, state: StreamState, learner: Learner) -> None:
        """Commit a state with its ledger and its model.

        Raises
        ------
        CheckpointError
            Another loop has committed since this state was loaded.

        Notes
        -----
        Cost: the bytes of the summary, of the model, and of the new entries of the ledger.
        """
        if self._commits.newest() != self._number:
            raise CheckpointError(
                f"The state at {self.place.url!r} was committed by another loop in the meantime; run only "
                "one loop per state."
            )
        state.version = self._save_model(state, learner)
        segments = state.ledger.write(self._ledger)
        body: dict[str, Any] = {
            "ledger": segments,
            "seed": str(state.seed),
            "n_features": state.n_features,
            "feature_names": None if state.feature_names is None else list(state.feature_names),
            "decoded": state.decoded,
            "version": state.version,
            "n_commits": state.n_commits + 1,
        }
        arrays, kind = {}, "stream"
        if state.fold is not None:
            document = document_of(state.fold)
            body |= {"fold": document.body, "dtype": state.fold.settings.leaf.dtype}
            arrays, kind = document.arrays, document.kind
        self._commits.commit(Document(kind, body, arrays))
        state.n_commits += 1
        self._number = self._commits.newest()
        self.point(state)
        # Remove segments that neither this commit nor the previous one names.
        before, self._named = self._named, {str(segment["name"]) for segment in segments}
        if before and not before <= self._named:
            for name in list_names(self._ledger):
                if name not in self._named and name not in before:
                    remove_file(self._ledger, name)

    def _save_model(self, state: StreamState, learner: Learner) -> int | None:
        """Save the model of a state, unless it exists already; return its version."""
        if state.fold is None or state.fold.current() is None:
            return None
        version = state.rows_seen
        place = self.model(version)
        try:
            load_document(place.url, place.storage_options())
        except ModelFormatError:
            found: Any = learner.model_of(state.fold, state.n_features, state.feature_names)
            model: Model = replace(found, decoded=state.decoded)
            options = place.storage_options() or None
            save_model(model, place.url, overwrite=True, storage_options=options)
        return version

    def model(self, version: int) -> Location:
        """Return the location of the model of a version."""
        return self.place.child("models").child(f"{version:012d}")

    def point(self, state: StreamState) -> None:
        """Update ``latest.json`` to the version of a state."""
        facts = {
            "model_version": state.version,
            "model": None if state.version is None else f"models/{state.version:012d}",
            "rows_seen": state.rows_seen,
        }
        content = json.dumps(facts).encode()
        if read_file(self.place, LATEST) != content:
            write_file(self.place, LATEST, content)

    def show(self, status: Mapping[str, Any]) -> None:
        """Write the status file of the stream."""
        write_file(self.place, STATUS, json.dumps(status).encode())
