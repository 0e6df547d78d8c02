"""One parameter of an estimator, declared once.

Checks, flags of the command line and types and defaults in docstrings are made from the declaration.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class Parameter:
    """Type, range, default and meaning of one parameter.

    Attributes
    ----------
    name : str
        The constructor's argument.
    kind : type
        Type of a plain value: int, float, str or bool. ``object``: it has none, so no flag and no check.
    default : object
        None as the default, or `off`, makes None a value.
    help : str
        One sentence, for people who have never seen the algorithm.
    choices : collection of str
        The names that are allowed; empty if any value of the kind is.
    other : str
        Other strings that are allowed in addition to `choices`, e.g. a URL; empty if none are.
    word : str
        A name that is allowed in addition to numbers, e.g. ``"auto"``.
    off : str
        The word of the command line for False, which None stands for as well, e.g. ``"none"``.
    ge, gt, le, lt : float or None
        Numbers are at least, above, at most, below this.
    also : tuple of str
        What else the constructor takes that no flag can say, e.g. ``"callable"``. `checks` knows some of
        these; values of others are checked where they are read.

    Examples
    --------
    >>> size = Parameter("batch_size", int, 1024, "Rows of a batch.", ge=1)
    >>> size.flag, size.limits, size.rule
    ('--batch-size', '>= 1', 'an int >= 1')
    >>> Parameter("decay", float, 0.9, "Share.", gt=0, le=1).limits
    'in (0, 1]'
    """

    name: str
    kind: type
    default: Any
    help: str
    choices: Collection[str] = field(default=(), hash=False)  # others may add to them
    other: str = ""
    word: str = ""
    off: str = ""
    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
    also: tuple[str, ...] = ()

    @property
    def flag(self) -> str:
        """Name on the command line, e.g. ``--n-clusters``."""
        return "--" + self.name.replace("_", "-")

    @property
    def is_plain(self) -> bool:
        """True if values are numbers, strings or bools, which files and command lines can hold."""
        return self.kind is not object

    @property
    def takes_none(self) -> bool:
        return self.default is None or bool(self.off)

    @property
    def limits(self) -> str:
        """The range in few words, e.g. ``">= 1"``; empty if there is none."""
        low, high = _first(self.ge, self.gt), _first(self.le, self.lt)
        if low is not None and high is not None:
            return f"in {'[('[self.ge is None]}{low:g}, {high:g}{'])'[self.le is None]}"
        sides = (">=", self.ge), (">", self.gt), ("<=", self.le), ("<", self.lt)
        return "".join(f"{sign} {edge:g}" for sign, edge in sides if edge is not None)

    @property
    def rule(self) -> str:
        """Description of valid values for errors, e.g. ``"an int >= 1"``."""
        article = "an" if self.kind is int else "a"
        text = f"{article} {self.kind.__name__}"
        if self.choices:
            text += f" among {{{', '.join(map(repr, self.choices))}}}"
        elif self.limits:
            text += f" {self.limits}"
        others = [repr(self.word)] if self.word else []
        others += [*([self.other] if self.other else []), *self.also]
        others += ["None"] if self.takes_none else []
        others += ["False"] if self.off else []
        return " or ".join([text, *others])

    def varied(self, **changes: Any) -> Parameter:
        """Return the same parameter with the changed fields, such as default or help."""
        return replace(self, **changes)


def _first(one: float | None, other: float | None) -> float | None:
    return other if one is None else one
