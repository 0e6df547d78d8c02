"""Exact k-means to the fixed point: algorithms with bounds against plain Lloyd and scikit-learn."""

from __future__ import annotations

import hashlib
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from tests.benchmarks.comparisons.bounds_problems import (
    FEW_REPEATS,
    MOST_REPEATS,
    Problem,
    missing,
    problems,
)
from tests.benchmarks.harness.cells import Cell, Figures, Reading, Records, Target, at_least
from tests.benchmarks.harness.parts import Part, Table, ratio
from tests.benchmarks.harness.peers import fit_ours, scikit_learn
from tests.benchmarks.harness.plots import Curve, Panel, draw
from tests.benchmarks.harness.race import Outcome, race
from tests.benchmarks.harness.rows import MNIST
from tests.benchmarks.harness.settings import Settings

SCRATCH: tuple[str, ...] = ()
BOUNDED = ("hamerly", "yinyang", "elkan")
OTHERS = ("scikit-learn lloyd", "scikit-learn elkan")
MOST_CENTRES_OF_ELKAN = 256
"""With more centres, updating the n x k bounds of Elkan takes longer than they save."""
WARM_UP_ITERATIONS = 4
SAME_QUALITY = 1e-4
"""Relative difference of inertia up to which another library's time is compared."""

AUTO_TARGET, NOISE_TARGET, MNIST_TARGET = 1.10, 1.10, 4.0
LEAST_SHARE = 1e-4
"""Where the logarithmic axes of the plot end."""


@dataclass(frozen=True)
class Fitted:
    """Figures of one of our fits, and a digest of its result."""

    centres: np.ndarray
    inertia: float
    n_iter: int
    digest: str
    touched: np.ndarray
    distances: np.ndarray

    @classmethod
    def of(cls, model: Any) -> Fitted:
        bits = hashlib.sha256()
        for part in (model.cluster_centers_, model.labels_, np.float64(model.inertia_)):
            bits.update(np.ascontiguousarray(part).tobytes())
        n, k = len(model.labels_), len(model.cluster_centers_)
        return cls(
            model.cluster_centers_,
            model.inertia_,
            model.n_iter_,
            bits.hexdigest(),
            np.array([record["n_touched"] / n for record in model.history_]),
            np.array([record["n_distances"] / (n * k) for record in model.history_]),
        )


def cells(settings: Settings) -> Iterator[Cell]:
    """Yield a cell for each problem."""
    for name, make in problems(settings):
        yield Cell(name, partial(measure, make, settings))


def measure(make: Callable[[], Problem], settings: Settings) -> Figures:
    """Return the seconds of all programs on a problem, the comparable ones, and the shares of work."""
    problem = make()
    outcomes = compete(problem, settings)
    check_bits(problem.name, outcomes)
    same, remarks = compare_quality(problem, outcomes)
    return {
        "name": problem.name,
        "shape": problem.shape,
        "n_iter": outcomes["auto"].value.n_iter,
        "seconds": {name: outcome.median for name, outcome in outcomes.items()},
        "same": same,
        "remarks": remarks,
        "noise": problem.without_structure,
        "shares": _shares(outcomes) if problem.plotted else {},
    }


def _shares(outcomes: Mapping[str, Outcome]) -> dict[str, dict[str, list[float]]]:
    found = {name: outcomes[name].value for name in (*BOUNDED, "auto") if name in outcomes}
    return {
        name: {"touched": list(one.touched), "distances": list(one.distances)}
        for name, one in found.items()
    }


def compete(problem: Problem, settings: Settings) -> dict[str, Outcome]:
    """Run all programs on a problem, in turn."""
    few = problem.k <= MOST_CENTRES_OF_ELKAN
    ours = ["lloyd", *(name for name in BOUNDED if few or name != "elkan"), "auto"]
    others = [name for name in OTHERS if few or not name.endswith("elkan")]

    def programs(iterations: int) -> dict[str, Callable[[], Any]]:
        arguments = (problem.rows, problem.centres, iterations, settings.threads)
        return {
            **{name: partial(fit_ours, *arguments, name) for name in ours},
            **{name: partial(scikit_learn, *arguments, name.split()[-1]) for name in others},
        }

    outcomes = race(
        programs(problem.max_iter),
        min(settings.repeats, problem.repeats),
        warm_up=programs(WARM_UP_ITERATIONS),
    )
    for name in ours:
        outcomes[name] = replace(outcomes[name], value=Fitted.of(outcomes[name].value))
    return outcomes


def check_bits(where: str, outcomes: dict[str, Outcome]) -> None:
    """Check that all our fits have the same result, to the bit.

    Raises
    ------
    RuntimeError
        An algorithm has another result than plain Lloyd.
    """
    ours = {name: found.value for name, found in outcomes.items() if _is_ours(name)}
    plain = ours["lloyd"]
    for name, fitted in ours.items():
        if fitted.n_iter != plain.n_iter or fitted.digest != plain.digest:
            raise RuntimeError(
                f"{where}: {name} ended after {fitted.n_iter} iterations with inertia="
                f"{fitted.inertia!r}, lloyd after {plain.n_iter} with {plain.inertia!r}, or their centres "
                "or labels differ; expected them to agree to the bit, so the times cannot be compared."
            )


def _is_ours(name: str) -> bool:
    return name in ("lloyd", *BOUNDED, "auto")


def compare_quality(
    problem: Problem, outcomes: dict[str, Outcome]
) -> tuple[dict[str, bool], list[str]]:
    """Return whether each other program reached our inertia, and remarks on differences."""
    from daskcluster import quantization_error

    mine, same, remarks = outcomes["auto"].value, {}, []
    for name in (name for name in OTHERS if name in outcomes):
        centres, n_iter = outcomes[name].value
        inertia = quantization_error(problem.rows, centres.astype(np.float32))
        difference = inertia / mine.inertia - 1
        same[name] = abs(difference) <= SAME_QUALITY
        if not same[name]:
            remarks.append(
                f"{problem.name} ({problem.shape}): {name} ended elsewhere after {n_iter} iterations "
                f"(relative difference of inertia: {difference:+.1e}), so its time is not compared."
            )
        elif n_iter != mine.n_iter:
            remarks.append(
                f"{problem.name} ({problem.shape}): {name} took {n_iter} iterations, ours "
                f"{mine.n_iter} (relative difference of inertia: {difference:+.1e})."
            )
    return same, remarks


def show(records: Records, settings: Settings) -> list[Part]:
    """Return the table of seconds, the table of ratios, and the plot."""
    seconds = Table(
        f"Seconds of whole fits, {settings.threads} threads, float32, same first centres, tol=0",
        ["data", "n, d, k", "iterations", "lloyd", *BOUNDED, "auto", *OTHERS],
        [_seconds(one) for one in records.values()],
        [
            *missing(records),
            f"Medians of {min(settings.repeats, MOST_REPEATS)} fits (mixtures: "
            f"{min(settings.repeats, FEW_REPEATS)}). elkan is run for k up to {MOST_CENTRES_OF_ELKAN}.",
            "lloyd, hamerly, yinyang, elkan and auto give the same centres, labels, inertia and number "
            "of iterations, to the bit.",
        ],
    )
    ratios = Table(
        "Ratios of these times",
        ["data", "n, d, k", "lloyd / auto", "auto / best fixed", "target", "scikit-learn lloyd / auto",
         "target", "auto / lloyd on noise", "target"],
        [_ratios(one) for one in records.values()],
    )  # fmt: skip
    found = [_against_best(one)[0] for one in records.values()]
    ratios.notes.append(
        f"auto / best fixed algorithm: median {statistics.median(found):.2f}, worst {max(found):.2f}."
    )
    text = (
        "Share of the rows that are checked, and of the n k distances, in each iteration; smaller "
        f"shares are drawn at {LEAST_SHARE:g}"
    )
    panels = [panel for one in records.values() if one["shares"] for panel in _panels(one)]
    plot = draw("bounds_touched.svg", text, panels, settings.images, logarithmic=True)
    remarks = [[remark] for one in records.values() for remark in one["remarks"]]
    others = Table(
        "Where scikit-learn ends elsewhere, or after other iterations", ["remark"], remarks
    )
    return [seconds, ratios, *([others] if remarks else []), *([plot] if panels else [])]


def _seconds(one: Figures) -> list[Any]:
    medians = [one["seconds"].get(name) for name in ("lloyd", *BOUNDED, "auto", *OTHERS)]
    return [one["name"], one["shape"], one["n_iter"], *medians]


def _against_best(one: Figures) -> tuple[float, str]:
    """Return the seconds of auto over those of the best fixed choice, and its name."""
    seconds = one["seconds"]
    best = min((name for name in ("lloyd", *BOUNDED) if name in seconds), key=seconds.__getitem__)
    return seconds["auto"] / seconds[best], best


def _against_scikit_learn(one: Figures) -> float | None:
    peer = "scikit-learn lloyd"
    return one["seconds"][peer] / one["seconds"]["auto"] if one["same"].get(peer) else None


def _ratios(one: Figures) -> list[Any]:
    seconds, (against, best) = one["seconds"], _against_best(one)
    return [
        one["name"],
        one["shape"],
        ratio(seconds["lloyd"], seconds["auto"]),
        f"{against:.2f} ({best})",
        f"<= {AUTO_TARGET:.2f}",
        ratio(_against_scikit_learn(one), 1.0),
        f">= {MNIST_TARGET:g}" if one["name"] == MNIST else None,
        ratio(seconds["auto"], seconds["lloyd"]) if one["noise"] else None,
        f"<= {NOISE_TARGET:.2f}" if one["noise"] else None,
    ]


def _panels(one: Figures) -> Sequence[Panel]:
    title = f"{one['name']}, k = {one['shape'].split(', ')[-1]}"
    return [
        Panel(
            title,
            what,
            [
                Curve(name, np.maximum(shares[field], LEAST_SHARE))
                for name, shares in one["shares"].items()
            ],
        )
        for what, field in (("rows checked / n", "touched"), ("distances / (n k)", "distances"))
    ]


def _read_mnist(records: Records) -> Reading | None:
    one = records.get("MNIST")
    if one is None or one["name"] != MNIST:
        return None
    found = _against_scikit_learn(one)
    return None if found is None else at_least(found, MNIST_TARGET)


TARGETS: tuple[Target, ...] = (
    Target(
        "exact-mnist",
        "Exact k-means to convergence, MNIST, k = 50: speed-up over scikit-learn's lloyd (eakmeans: "
        "at best 1.7)",
        f">= {MNIST_TARGET:g}",
        _read_mnist,
    ),
)
