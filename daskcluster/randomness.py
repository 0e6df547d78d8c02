"""Counter-based random numbers: a function of seed, purpose and row.

A counter-based generator (Philox 4x64-10; Salmon et al. 2011) is keyed by (seed, stage, iteration)
and its counter is the global row index. The number of a row therefore depends on neither
chunks nor workers nor the order in which rows are seen.
"""

from __future__ import annotations

import numbers
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskcluster.errors import WrongTypeError

_PER_COUNTER = 4  # a Philox counter yields four 64-bit words


@dataclass(frozen=True)
class Key:
    """Names one stream of random numbers."""

    seed: int
    stage: str
    iteration: int = 0

    def philox(self) -> np.random.Philox:
        words = [self.seed, zlib.crc32(self.stage.encode()), self.iteration]
        return np.random.Philox(np.random.SeedSequence(words))

    def generator(self) -> np.random.Generator:
        """Return a sequential generator, for draws that no row owns."""
        return np.random.Generator(self.philox())

    def derived_seed(self) -> int:
        """Return one whole number, as the seed of further streams."""
        return int(self.generator().integers(2**63 - 1))

    def uniforms(self, start: int, stop: int) -> np.ndarray:
        """Return the numbers in [0, 1) of rows `start` to `stop`.

        Examples
        --------
        >>> from daskcluster.randomness import Key
        >>> key = Key(seed=0, stage="example")
        >>> bool((key.uniforms(0, 10)[3:7] == key.uniforms(3, 7)).all())
        True
        """
        skipped = start % _PER_COUNTER
        philox = self.philox().advance(start // _PER_COUNTER)
        return np.random.Generator(philox).random(stop - start + skipped)[skipped:]

    def words(self, start: int, stop: int) -> np.ndarray:
        """Return 64 random bits (uint64) for each of the rows `start` to `stop`."""
        skipped = start % _PER_COUNTER
        philox = self.philox().advance(start // _PER_COUNTER)
        return philox.random_raw(stop - start + skipped)[skipped:]


def as_seed(random_state: Any) -> int:
    """Turn scikit-learn's `random_state` into one whole number.

    None draws a fresh one from the operating system; a RandomState or Generator is asked for its
    next number, so that repeated fits with it differ, as they do in scikit-learn.
    """
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(1, np.uint64)[0])
    if isinstance(random_state, numbers.Integral) and int(random_state) >= 0:
        return int(random_state)
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**63 - 1))
    if random_state is np.random:
        return int(np.random.randint(2**31 - 1))  # noqa: NPY002  (what the caller asked for)
    raise WrongTypeError(
        f"random_state={random_state!r} should be None, a whole number >= 0, a numpy RandomState or "
        "a numpy Generator."
    )
