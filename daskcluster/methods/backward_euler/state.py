"""Checkpoints of independent starts; each start commits its own state."""

from __future__ import annotations

from dataclasses import dataclass

from daskcluster.errors import ModelFormatError
from daskcluster.estimators.checkpoints import Commits, unfit
from daskcluster.methods.backward_euler.algorithm import DescentState
from daskcluster.storage.document import Document
from daskcluster.storage.state import document_of, state_of


@dataclass(frozen=True)
class StartsState:
    """State that the fit commits once: the name under which its starts commit theirs.

    Attributes
    ----------
    token : str
        Drawn by the fit, so that starts of an earlier fit are not resumed.
    """

    token: str


@dataclass(frozen=True)
class StartState:
    """State of a start between two outer steps.

    Attributes
    ----------
    token : str
        Of the fit.
    number : int
    descent : DescentState
    bytes_read : int
        Decoded bytes fetched from the store so far.
    """

    token: str
    number: int
    descent: DescentState
    bytes_read: int


@dataclass(frozen=True)
class StartCommits:
    """Place where starts commit their state; sent to workers.

    Attributes
    ----------
    commits : Commits
        Of the fit; a start has a part of it.
    token : str
    """

    commits: Commits
    token: str

    def of(self, number: int) -> Commits:
        """Return the commits of one start, with a clock of their own."""
        return self.commits.part(f"start-{number:05d}")

    def latest(self, number: int, n_clusters: int, n_features: int) -> StartState | None:
        """Return the state of an interrupted start; None for a new one.

        Raises
        ------
        CheckpointError
            The stored state is damaged or of another kind.
        """
        folder = self.of(number).folder
        document = folder.latest()
        if document is None:
            return None
        centres = (n_clusters, n_features)
        shapes: dict[str, tuple[int, ...]] = {"centres": centres, "first_centres": centres}
        shapes |= {"start_means": centres, "start_weights": (n_clusters,)}
        try:
            found = state_of(
                StartState, document, {f"descent_{name}": shape for name, shape in shapes.items()}
            )
        except ModelFormatError as error:
            raise unfit(folder.url, error) from error
        return found if (found.token, found.number) == (self.token, number) else None

    def document(self, number: int, descent: DescentState, bytes_read: int) -> Document:
        """Return the document that a start commits."""
        return document_of(StartState(self.token, number, descent, bytes_read))
