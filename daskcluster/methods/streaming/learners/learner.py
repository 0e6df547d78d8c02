"""What the loop needs of an algorithm: an empty state, a state that was kept, and its model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pkgutil import resolve_name
from typing import Any, ClassVar

from daskcluster.data.sparse import SparseDataset
from daskcluster.errors import WrongTypeError
from daskcluster.methods.streaming.fold import FoldSettings, StreamFold
from daskcluster.methods.streaming.parameters import DRIFT_THRESHOLD
from daskcluster.methods.streaming.refit import StreamCentres
from daskcluster.methods.streaming.state import fold_of
from daskcluster.methods.streaming.streams import STREAMS
from daskcluster.methods.streaming.tree.forgetting import Forgetting
from daskcluster.models.kinds import Model
from daskcluster.parameters.checks import check_value
from daskcluster.storage.document import Document
from daskcluster.typing import Dataset

_NOT_OF_THE_STATE = ("verbose", "random_state")
"""Parameters on which the result does not depend; the seed is kept in the state."""


class Learner(ABC):
    """An algorithm with its parameters, to be driven by a stream; it keeps nothing of the rows itself.

    Parameters
    ----------
    parameters : mapping
        All that its table in `daskcluster.methods.streaming.streams.STREAMS` has, by name.

    Raises
    ------
    InvalidParameterError, WrongTypeError
    """

    algorithm: ClassVar[str]
    takes_sparse: ClassVar[bool] = True
    fold_class: ClassVar[type[StreamFold]] = StreamFold

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self.parameters = dict(parameters)
        self.forgetting = Forgetting.of(parameters["half_life"], parameters.get("window"))
        check_value(self.algorithm, DRIFT_THRESHOLD, parameters["drift_threshold"])

    @property
    def metric(self) -> str:
        """How rows are compared."""
        return str(self.parameters.get("metric", "euclidean"))

    def facts(self) -> dict[str, Any]:
        """Return what decides the state, but rows and seed, as plain values."""
        return {
            name: value if isinstance(value, (int, float, str, type(None))) else repr(value)
            for name, value in self.parameters.items()
            if name not in _NOT_OF_THE_STATE
        }

    def empty(self, dtype: str, seed: int) -> StreamFold:
        """Return the state of a stream of rows in `dtype` before the first of them."""
        return self.fold_class.empty(self.settings(dtype, seed))

    def restored(self, document: Document, dtype: str, seed: int) -> StreamFold:
        """Return the state that `document` describes.

        Raises
        ------
        ModelFormatError, KeyError
            It does not describe one.
        """
        return fold_of(document, self.settings(dtype, seed), self.fold_class)

    def check_rows(self, dataset: Dataset) -> None:
        """Refuse rows of a kind that the algorithm does not take.

        Raises
        ------
        WrongTypeError
        """
        if isinstance(dataset, SparseDataset) and not self.takes_sparse:
            raise WrongTypeError(
                f"algorithm={self.algorithm!r} takes dense rows, those of the source are sparse; project "
                "them to fewer features first, or take algorithm='streaming'."
            )

    @abstractmethod
    def settings(self, dtype: str, seed: int) -> FoldSettings:
        """Return what decides a stream of rows in `dtype`, but the rows."""

    @abstractmethod
    def model_of(self, fold: StreamFold, n_features: int) -> Model:
        """Return the model of all rows in `fold`, which has centres."""


def remember_the_stream(
    fitted: Any, fold: StreamFold, found: StreamCentres, n_features: int
) -> None:
    """Let an estimator know how it came to what it has learnt from a stream."""
    fitted.stop_reason_, fitted.seeding_ = found.stop_reason, found.seeding
    fitted.history_, fitted.n_rows_ = fold.history, found.n_rows
    fitted.passes_, fitted.bytes_read_, fitted.n_features_in_ = 1, 0, n_features


def make_learner(algorithm: str, given: Mapping[str, Any]) -> Learner:
    """Return the learner called `algorithm` with the parameters that were given, else defaults.

    Raises
    ------
    InvalidParameterError
        There is none of that name, or it has no such parameter, or refuses its value.

    Examples
    --------
    >>> make_learner("mini-batch", {"n_clusters": 3}).parameters["batch_size"]
    1024
    """
    entry = STREAMS.find(algorithm)
    STREAMS.check(algorithm, given)
    defaults = {name: parameter.default for name, parameter in entry.parameters.items()}
    learner: Learner = resolve_name(entry.estimator)({**defaults, **given})
    return learner
