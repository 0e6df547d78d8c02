"""Measurement of all rates of this machine."""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import dataclass

from daskcluster.kernels.jit import tile_name
from tests.benchmarks.scaling.model.engine_rates import engine_rates
from tests.benchmarks.scaling.model.kernel_rates import (
    decode_rate,
    nearest_rate,
    scan_rate,
    together_rate,
    truncated_rate,
)
from tests.benchmarks.scaling.model.rates import Rates


@dataclass(frozen=True)
class Calibration:
    """Rates, and their largest errors over the runs they come from.

    Attributes
    ----------
    rates : Rates
    errors : dict of str to float
        By kind of pass: the largest relative error over the shapes that were measured.
    """

    rates: Rates
    errors: dict[str, float]


def calibrate(say: Callable[[str], None] = lambda text: None) -> Calibration:
    """Measure this machine.

    Parameters
    ----------
    say : callable (str) -> None
        Hears what is measured next.

    Notes
    -----
    Cost: about 40 s, on an idle machine, with two cores at most; 1 GB of memory. Whatever else computes
    meanwhile is measured along.
    """
    errors = {}
    say("passes in which rows meet all centres")
    nearest, errors["nearest"] = nearest_rate()
    say("the same on all cores")
    together = together_rate()
    say("passes of truncated EM")
    truncated, errors["truncated"] = truncated_rate()
    say("passes of coresets")
    scan, errors["scan"] = scan_rate()
    say("reading and decoding")
    decode = decode_rate()
    say("a scheduler and workers")
    engine = engine_rates()
    rates = Rates(
        nearest=nearest,
        truncated=truncated,
        scan=scan,
        decode=decode,
        client=engine.client,
        scheduler=engine.scheduler,
        worker=engine.worker,
        together=together,
        round_trip=engine.round_trip,
        machine=f"{platform.system()} {platform.machine()}, {tile_name()}",
    )
    return Calibration(rates, errors)
