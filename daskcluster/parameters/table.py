"""What is known of one parameter without its estimator."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Parameter:
    """One parameter of an estimator that has a plain value.

    Attributes
    ----------
    name : str
        On the command line and in jobs; `Algorithm.rename` says where a constructor's name differs.
    kind : type
        Of a plain value: int, float, str or bool.
    default : object
    help : str
        One sentence, for people who have never seen the algorithm.
    choices : tuple of str
        The names that are allowed; empty if any value of the kind is.
    other : str
        What else is allowed beside `choices`, e.g. a URL; empty if nothing is.
    word : str
        A name that is allowed beside numbers, e.g. ``"auto"``.
    off : str
        The word of the command line that stands for False beside names or numbers, e.g. ``"none"``.
    least : float or None
        The smallest number allowed.

    Examples
    --------
    >>> Parameter("batch_size", int, 1024, "Rows of a batch.", least=1).flag
    '--batch-size'
    """

    name: str
    kind: type
    default: Any
    help: str
    choices: tuple[str, ...] = ()
    other: str = ""
    word: str = ""
    off: str = ""
    least: float | None = None

    @property
    def flag(self) -> str:
        """Name on the command line, e.g. ``--n-clusters``."""
        return "--" + self.name.replace("_", "-")

    def varied(self, **changes: Any) -> Parameter:
        """Return the same parameter with another default, help or whatever else `changes` names."""
        return replace(self, **changes)
