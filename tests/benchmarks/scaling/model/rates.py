"""Costs of single steps on one machine, in seconds of one core, as measured by `calibrate`."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from daskcluster.errors import InvalidDataError

FORMAT = "daskcluster-rates"
VERSION = 1


@dataclass(frozen=True)
class KernelRate:
    """One kind of pass over rows in memory, on one thread.

    Attributes
    ----------
    product : float
        Seconds for one product of a feature of a row and of a centre.
    value, row : float
        Seconds for each feature of a row, and for each row, in addition to the products.

    Examples
    --------
    >>> KernelRate(product=2e-11, value=3e-10, row=4e-9).seconds(1e12, 1e9, 1e7)
    20.34
    """

    product: float
    value: float
    row: float

    def seconds(self, products: float, values: float, rows: float) -> float:
        """Return the seconds of a pass."""
        return self.product * products + self.value * values + self.row * rows


@dataclass(frozen=True)
class RoleRate:
    """CPU time of one process for a pass in addition to its rows: client, scheduler, or worker.

    Attributes
    ----------
    a_pass, a_task : float
        Seconds for each pass, and for each task of it.
    a_handle : float
        Seconds for each partition cached between passes, on which tasks depend.
    a_worker : float
        Seconds for each worker, to check it before a pass.
    a_byte : float
        Seconds for each byte received or sent.
    """

    a_pass: float
    a_task: float
    a_handle: float
    a_worker: float
    a_byte: float

    def seconds(self, n_tasks: float, n_handles: float, n_workers: float) -> float:
        """Return the seconds of a pass, without its bytes."""
        counted = self.a_task * n_tasks + self.a_handle * n_handles + self.a_worker * n_workers
        return self.a_pass + counted


@dataclass(frozen=True)
class Rates:
    """All rates of a machine.

    Attributes
    ----------
    nearest, truncated, scan : KernelRate
        Distances of rows to all centres, to those of their neighbourhood, or to one point.
    decode : float
        Seconds for a byte that is read from a local store and decoded (blosc-zstd, bits shuffled).
    client, scheduler, worker : RoleRate
        For a worker, `a_pass` and `a_worker` are zero.
    together : float
        Slow-down of a core when all cores of its machine are busy, >= 1: they share caches, memory and
        power, and may be two threads of one core.
    round_trip : float
        Seconds for a task and its result between idle processes of one machine, without their CPU
        time.
    machine : str
        Description of the machine.

    Examples
    --------
    >>> from dataclasses import replace
    >>> replace(REFERENCE, decode=2e-9).decode
    2e-09
    """

    nearest: KernelRate
    truncated: KernelRate
    scan: KernelRate
    decode: float
    client: RoleRate
    scheduler: RoleRate
    worker: RoleRate
    together: float
    round_trip: float
    machine: str = ""

    def kernel(self, name: str) -> KernelRate:
        """Return the rate of a kind of pass, as `daskcluster.estimators.plan.KERNELS` has it."""
        found: KernelRate = getattr(self, name)
        return found


REFERENCE = Rates(
    nearest=KernelRate(1.9e-11, 1e-10, 3.7e-09),
    truncated=KernelRate(0.0, 1.8e-09, 1.3e-07),
    scan=KernelRate(0.0, 3.2e-10, 2.4e-09),
    decode=6.6e-10,
    client=RoleRate(0.0042, 0.001, 1.3e-05, 2.5e-05, 7.5e-10),
    scheduler=RoleRate(0.0038, 0.0015, 2.1e-05, 2.5e-05, 1.2e-09),
    worker=RoleRate(0.0, 0.0034, 4e-05, 0.0, 1e-09),
    together=1.05,
    round_trip=0.0042,
    machine="a core of an AMD EPYC with AVX-512",
)
"""Default rates, rounded, from one machine; docs/results/scaling.json has all digits."""


def save_rates(rates: Rates, path: str | Path) -> None:
    """Write rates as JSON; an older file is replaced."""
    document = {"format": FORMAT, "version": VERSION, "rates": asdict(rates)}
    Path(path).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def load_rates(path: str | Path) -> Rates:
    """Read a file of `save_rates`.

    Raises
    ------
    InvalidDataError
        The file is not such JSON, or a rate is missing or not a number >= 0.
    OSError
        There is no such file.
    """
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
        if document["format"] != FORMAT or document["version"] != VERSION:
            raise KeyError("format")
        found = document["rates"]
        return Rates(**{part.name: _value(part.name, found[part.name]) for part in fields(Rates)})
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidDataError(
            f"{path} should be a file of `calibrate` in format version {VERSION} "
            f"({type(error).__name__}: {error}); measure the rates of the machine again."
        ) from error


def _value(name: str, found: Any) -> Any:
    if name == "machine":
        return str(found)
    if isinstance(found, Mapping):
        kind = RoleRate if name in ("client", "scheduler", "worker") else KernelRate
        return kind(**{part.name: _number(part.name, found[part.name]) for part in fields(kind)})
    return _number(name, found)


def _number(name: str, found: Any) -> float:
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        raise TypeError(f"{name}={found!r} should be a number")
    if not (math.isfinite(found) and found >= 0):
        raise ValueError(f"{name}={found!r} should be a finite number >= 0")
    return float(found)
