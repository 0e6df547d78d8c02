"""The plain table of estimator parameters: flags are made from it, estimators tested against it.

Nothing heavy is imported here, so that ``daskcluster --help`` is instant.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Parameter:
    """One parameter of an estimator that has a plain value.

    Attributes
    ----------
    name : str
    kind : type
        Of a plain value: int, float or str.
    default : object
    help : str
        One sentence, for people who have never seen the algorithm.
    choices : tuple of str
        The names that are allowed; empty if any value of the kind is.
    other : str
        What else is allowed beside `choices`, e.g. a URL; empty if nothing is.
    word : str
        A name that is allowed beside numbers, e.g. ``"auto"``.
    least : float or None
        The smallest number allowed.
    """

    name: str
    kind: type
    default: Any
    help: str
    choices: tuple[str, ...] = ()
    other: str = ""
    word: str = ""
    least: float | None = None

    @property
    def flag(self) -> str:
        """Name on the command line, e.g. ``--n-clusters``."""
        return "--" + self.name.replace("_", "-")


KMEANS = (
    Parameter("n_clusters", int, 8, "Number of clusters.", least=1),
    Parameter(
        "init",
        str,
        "auto",
        "How to choose the first centres. auto: k-means++ in memory, k-means|| elsewhere. "
        "The URL of a saved model is a warm start.",
        choices=("auto", "k-means++", "k-means||", "random"),
        other="the URL of a saved model",
    ),
    Parameter(
        "n_init",
        int,
        "auto",
        "Restarts; the one with the lowest inertia wins. auto: 1, but 10 for random rows in memory.",
        word="auto",
        least=1,
    ),
    Parameter(
        "algorithm",
        str,
        "auto",
        "Which algorithm; all give the same result. auto changes between them as the fit goes on.",
        choices=("auto", "lloyd", "elkan", "hamerly", "yinyang"),
    ),
    Parameter("max_iter", int, 300, "Centre updates at most; 0 keeps the first centres.", least=0),
    Parameter(
        "tol",
        float,
        1e-4,
        "Stop when the centres' squared movement is at most this times the mean feature variance; "
        "0 waits until nothing moves.",
        least=0,
    ),
    Parameter(
        "metric",
        str,
        "euclidean",
        "Distance; cosine is spherical k-means.",
        choices=("euclidean", "cosine"),
    ),
    Parameter(
        "random_state", int, None, "Seed; the same seed gives the same result to the bit.", least=0
    ),
    Parameter("verbose", int, 0, "Above 0: print every iteration as it ends.", least=0),
    Parameter(
        "max_time", float, None, "Seconds; the iteration that exceeds them is the last.", least=0
    ),
    Parameter(
        "bounds_memory",
        int,
        "auto",
        "Bytes that bounds may take; with less, an algorithm with fewer bounds takes over.",
        word="auto",
        least=0,
    ),
)
"""Parameters of `daskcluster.KMeans`, but for ``engine`` and ``callbacks``, which are objects."""
