"""How old rows of a stream lose their weight: by half-life, or all at once when they leave a window.

Age is measured on a clock that belongs to the rows: their number in the stream, or the time stamp of
the object that they came in. The machine's clock plays no part, so a stream that is read later, or
twice, forgets the same rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskcluster.elementary import exp2
from daskcluster.errors import InvalidParameterError, WrongTypeError
from daskcluster.parameters.checks import seconds_of

NODE_SHARE = 8
"""No node spans more than this part of the window: what leaves it, leaves it in steps so fine. Nor does one
span more than two half-lives: it would consist of rows without weight for the most part."""


@dataclass(frozen=True)
class Forgetting:
    """What weight rows have left.

    Attributes
    ----------
    half_life : float or None
        A row weighs half as much when it is so old.
    window : float or None
        A row weighs nothing when it is so old.
    by_time : bool
        Ages are seconds between time stamps, not numbers of rows.

    Examples
    --------
    >>> float(Forgetting.of("2h", None).left(0.0, now=7200.0))
    0.5
    >>> Forgetting.of(None, 1000).left(np.array([0.0, 600.0]), now=1500.0)
    array([0., 1.])
    """

    half_life: float | None = None
    window: float | None = None
    by_time: bool = False

    @classmethod
    def of(cls, half_life: Any, window: Any) -> Forgetting:
        """Return what the parameters of those names say.

        Raises
        ------
        InvalidParameterError
            Both are given, or one is neither a number of rows > 0 nor a time.
        """
        if half_life is not None and window is not None:
            raise InvalidParameterError(
                f"half_life={half_life!r} and window={window!r} were both given; a stream forgets in one "
                "way: give one of the two."
            )
        name, given = ("half_life", half_life) if window is None else ("window", window)
        if given is None:
            return cls()
        length, by_time = _length(name, given)
        return cls(**{name: length}, by_time=by_time)

    @property
    def forgets(self) -> bool:
        return self.half_life is not None or self.window is not None

    @property
    def most_span(self) -> float:
        """The longest span of the clock that the rows of one node may come from."""
        if self.half_life is not None:
            return 2.0 * self.half_life
        return math.inf if self.window is None else self.window / NODE_SHARE

    def left(self, tick: Any, *, now: float) -> Any:
        """Return the share of its weight that a row of `tick` has left at `now`.

        Parameters
        ----------
        tick : float or ndarray
            On the stream's clock; one that is later than `now` counts as `now`.
        now : float
        """
        age = np.maximum(0.0, now - np.asarray(tick, np.float64))
        if self.half_life is not None:
            return exp2(-age / self.half_life)
        if self.window is not None:
            return np.where(age < self.window, 1.0, 0.0)
        return np.ones_like(age)

    def left_of_span(self, oldest: float, newest: float, *, now: float) -> float:
        """Return the share of their weight that rows have left together.

        Weights of rows with a half-life are those at `newest` already. Of rows in a window, those that are
        still inside count, as if they were spread evenly from `oldest` to `newest`.
        """
        if self.half_life is not None:
            return float(self.left(newest, now=now))
        if self.window is None:
            return 1.0
        edge = now - self.window
        if oldest > edge or newest <= edge:
            return 1.0 if oldest > edge else 0.0
        return (newest - edge) / (newest - oldest)


def _length(name: str, given: Any) -> tuple[float, bool]:
    text = f"{name}={given!r} should be a number of rows > 0, or a time such as '90s', '10m', '6h' or '7d'."
    if isinstance(given, (bool, np.bool_)) or not isinstance(given, (int, float, np.number, str)):
        raise WrongTypeError(text)
    seconds = seconds_of(given) if isinstance(given, str) else None
    try:
        length = float(given) if seconds is None else seconds
    except ValueError as error:
        raise InvalidParameterError(text) from error
    if not (math.isfinite(length) and length > 0.0):
        raise InvalidParameterError(text)
    return length, seconds is not None
