"""Names of the measures that ``score --metrics`` and ``jobs.score(metrics=...)`` accept."""

from __future__ import annotations

from collections.abc import Sequence

from daskcluster.errors import InvalidParameterError

MEASURES = {
    "calinski-harabasz": "scatter between clusters over that within; larger is better; one pass",
    "davies-bouldin": "sizes of clusters over their distances; smaller is better; two passes",
    "silhouette": "of a sample of rows, within it; in [-1, 1]; one pass",
    "simplified-silhouette": "of all rows, by distances to means; in [-1, 1]; two passes",
}


def check_measures(names: Sequence[str]) -> tuple[str, ...]:
    """Return `names` if all are known.

    Raises
    ------
    InvalidParameterError

    Examples
    --------
    >>> check_measures(["silhouette"])
    ('silhouette',)
    """
    given = (names,) if isinstance(names, str) else tuple(names)
    for name in given:
        if name not in MEASURES:
            raise InvalidParameterError(f"metrics={name!r} should be among {', '.join(MEASURES)}.")
    return given
