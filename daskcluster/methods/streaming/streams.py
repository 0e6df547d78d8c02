"""What a stream may be clustered with: the names that ``stream --algorithm NAME`` and `jobs.stream` accept.

The names are those of the catalogue of fits. An algorithm has fewer parameters here: a stream has no end to
stop at, and is committed by its own rules.
"""

from __future__ import annotations

from daskcluster.methods.minibatch.parameters import MINI_BATCH
from daskcluster.methods.mixture.parameters import MIXTURE
from daskcluster.methods.streaming.parameters import (
    DRIFT_THRESHOLD,
    HALF_LIFE,
    STREAMING,
    SUMMARY_SIZE,
    WINDOW,
)
from daskcluster.parameters.algorithm import Algorithm, Catalogue
from daskcluster.parameters.parameter import Parameter


def _without(table: tuple[Parameter, ...], *names: str) -> tuple[Parameter, ...]:
    return tuple(parameter for parameter in table if parameter.name not in names)


_STOPS = ("verbose", "max_time", "checkpoint", "checkpoint_every")
_OF_PASSES = ("max_iter", "max_no_improvement", "tol", "init_size", "validation")

STREAMS = Catalogue(
    {
        "streaming": Algorithm(
            "daskcluster.methods.streaming.learners.kmeans:KMeansLearner",
            STREAMING,
            about="k-means of a summary of all rows, which may forget old ones; centres keep their numbers",
        ),
        "mini-batch": Algorithm(
            "daskcluster.methods.streaming.learners.minibatch:MiniBatchLearner",
            (*_without(MINI_BATCH, *_STOPS, *_OF_PASSES), HALF_LIFE, DRIFT_THRESHOLD),
            about="centres moved by each row once; nothing else is kept",
        ),
        "vc-gmm": Algorithm(
            "daskcluster.methods.streaming.learners.mixture:MixtureLearner",
            (
                *_without(MIXTURE, *_STOPS, "coreset_size"),
                SUMMARY_SIZE,
                HALF_LIFE,
                WINDOW,
                DRIFT_THRESHOLD,
            ),
            about="a Gaussian mixture of the same summary, by truncated EM",
            rename={"n_clusters": "n_components"},
        ),
    }
)
"""From names to what learns (`daskcluster.methods.streaming.learners`). The first is the default."""
