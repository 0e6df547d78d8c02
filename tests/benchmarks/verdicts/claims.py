"""A claim of a paper, and what the kept results say of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tests.published import first_number

ABOVE = 0.01
"""Energies, losses and agreements that differ by no more than this count as equal."""


@dataclass(frozen=True)
class Finding:
    """What was measured: in words, whether the claim holds in each case, and from how many seeds."""

    words: str
    holds: tuple[bool, ...]
    seeds: str

    @property
    def verdict(self) -> str:
        """Return whether the results agree with the claim.

        Examples
        --------
        >>> Finding("", (True, True, False), "1").verdict
        'agrees in 2 of 3 cases'
        >>> Finding("", (False,), "1").verdict
        'differs'
        """
        if all(self.holds) or not any(self.holds):
            return "agrees" if all(self.holds) else "differs"
        return f"agrees in {sum(self.holds)} of {len(self.holds)} cases"


@dataclass(frozen=True)
class Claim:
    """A sentence of a paper, and what finds it in the results; or why it is not tested."""

    words: str
    find: Callable[[], Finding] | str
    remark: str = ""
    """What limits the verdict, such as other settings than the paper's."""

    def row(self) -> list[str]:
        """Return the line of the table: claim, finding, verdict and seeds."""
        if isinstance(self.find, str):
            return [self.words, "-", f"untested: {self.find}", "-"]
        found = self.find()
        verdict = "; ".join(filter(None, (found.verdict, self.remark)))
        return [self.words, found.words, verdict, found.seeds]


def span(seeds: Sequence[float]) -> str:
    """Return the least and the largest number of seeds.

    Examples
    --------
    >>> span([2.0, 10.0, 3.0]), span([4.0])
    ('2 to 10', '4')
    """
    return " to ".join(dict.fromkeys(f"{one:.0f}" for one in (min(seeds), max(seeds))))


def listed(pairs: Mapping[str, str]) -> str:
    """Return names, each with its text.

    Examples
    --------
    >>> listed({"digits": "0.3", "words": "0.4"})
    'digits 0.3, words 0.4'
    """
    return ", ".join(f"{name} {text}" for name, text in pairs.items())


def mean_and_error(text: str, seeds: int) -> tuple[float, float]:
    """Return the mean of "mean ± deviation" over so many seeds, and its standard error.

    Examples
    --------
    >>> mean_and_error("0.9980 ± 0.0004", 4)
    (0.998, 0.0002)
    >>> mean_and_error("1.0015", 1)
    (1.0015, inf)
    """
    mean, _, deviation = text.partition(" ± ")
    return float(mean), float(deviation) / math.sqrt(seeds) if deviation else math.inf


def share(text: str) -> float:
    """Return the first number of a text in percent, as a share."""
    return first_number(text) / 100
