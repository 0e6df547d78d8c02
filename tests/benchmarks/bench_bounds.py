"""Exact accelerations of k-means: whole fits to the fixed point, against plain Lloyd and scikit-learn."""

from __future__ import annotations

import hashlib
import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from tests.benchmarks.bounds_problems import FEW_REPEATS, MOST_REPEATS, Problem, missing, problems
from tests.benchmarks.harness import Figure, Note, Options, Outcome, Table, race, say
from tests.benchmarks.peers import fit_ours, scikit_learn
from tests.benchmarks.plots import Curve, Panel, draw

TAKES = "about an hour on 2 cores (--quick: a minute)"

BOUNDED = ("hamerly", "yinyang", "elkan")
OTHERS = ("scikit-learn lloyd", "scikit-learn elkan")
MOST_CENTRES_OF_ELKAN = 256
"""Beyond it the n x k bounds of Elkan take longer to keep than they save."""
WARM_UP_ITERATIONS = 4
SAME_QUALITY = 1e-4
"""Relative difference of inertia up to which another library's time is compared."""

AUTO_TARGET, NOISE_TARGET, MNIST_TARGET = 1.10, 1.10, 4.0
LEAST_SHARE = 1e-4
"""Where the logarithmic axes of the plot end."""


@dataclass(frozen=True)
class Fitted:
    """What is kept of a fit of ours: figures, and the bits of its result as a digest."""

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


def run(options: Options) -> list[Table | Figure | Note]:
    """Return the seconds, the ratios that have a target, and the plot."""
    seconds = Table(
        f"Whole fits on {options.threads} threads, float32, from the same centres, tol=0: seconds",
        ["data", "n, d, k", "iterations", "lloyd", *BOUNDED, "auto", *OTHERS],
        notes=missing(options),
    )
    ratios = Table(
        "The same as ratios",
        ["data", "n, d, k", "lloyd / auto", "auto / best fixed", "target", "scikit-learn lloyd / auto",
         "target", "auto / lloyd on noise", "target"],
    )  # fmt: skip
    panels: list[Panel] = []
    for problem in problems(options):
        outcomes = compete(problem, options)
        check_bits(problem.name, outcomes)
        seconds.rows.append(_seconds(problem, outcomes))
        quality, remarks = compare_quality(problem, outcomes)
        ratios.rows.append(_ratios(problem, outcomes, quality))
        ratios.notes += remarks
        if problem.plotted:
            panels += _panels(problem, outcomes)
    seconds.notes += [
        f"Medians of {min(options.repeats, MOST_REPEATS)} fits, of mixtures of "
        f"{min(options.repeats, FEW_REPEATS)}; elkan runs up to k = {MOST_CENTRES_OF_ELKAN}.",
        "lloyd, hamerly, yinyang, elkan and auto gave the same centres, labels, inertia and number of "
        "iterations, to the bit.",
    ]
    ratios.notes.append(_summary(ratios))
    return [seconds, ratios, _figure(panels, options)]


def compete(problem: Problem, options: Options) -> dict[str, Outcome]:
    """Run all programs on a problem, in turn."""
    say(f"  {problem.name}: n, d, k = {problem.shape}")
    few = problem.k <= MOST_CENTRES_OF_ELKAN
    ours = ["lloyd", *(name for name in BOUNDED if few or name != "elkan"), "auto"]
    others = [name for name in OTHERS if few or not name.endswith("elkan")]

    def programs(iterations: int) -> dict[str, Callable[[], Any]]:
        arguments = (problem.rows, problem.centres, iterations, options.threads)
        return {
            **{name: partial(fit_ours, *arguments, name) for name in ours},
            **{name: partial(scikit_learn, *arguments, name.split()[-1]) for name in others},
        }

    outcomes = race(
        programs(problem.max_iter),
        min(options.repeats, problem.repeats),
        warm_up=programs(WARM_UP_ITERATIONS),
    )
    for name in ours:
        outcomes[name] = replace(outcomes[name], value=Fitted.of(outcomes[name].value))
    return outcomes


def check_bits(where: str, outcomes: dict[str, Outcome]) -> None:
    """Refuse to compare times of fits that differ in a bit.

    Raises
    ------
    RuntimeError
        An acceleration did not give what plain Lloyd gives.
    """
    ours = {name: found.value for name, found in outcomes.items() if _is_ours(name)}
    plain = ours["lloyd"]
    for name, fitted in ours.items():
        if fitted.n_iter != plain.n_iter or fitted.digest != plain.digest:
            raise RuntimeError(
                f"{where}: {name} ended after {fitted.n_iter} iterations with inertia="
                f"{fitted.inertia!r}, lloyd after {plain.n_iter} with {plain.inertia!r}, or their centres "
                "or labels differ; they should agree to the bit, so their times say nothing."
            )


def _is_ours(name: str) -> bool:
    return name in ("lloyd", *BOUNDED, "auto")


def compare_quality(
    problem: Problem, outcomes: dict[str, Outcome]
) -> tuple[dict[str, bool], list[str]]:
    """Return which other programs reached our inertia, and remarks on those that did not."""
    from daskcluster import quantization_error

    mine, same, remarks = outcomes["auto"].value, {}, []
    for name in (name for name in OTHERS if name in outcomes):
        centres, n_iter = outcomes[name].value
        inertia = quantization_error(problem.rows, centres.astype(np.float32))
        difference = inertia / mine.inertia - 1
        same[name] = abs(difference) <= SAME_QUALITY
        if not same[name]:
            remarks.append(
                f"{problem.name} ({problem.shape}): {name} ended elsewhere after {n_iter} iterations, "
                f"inertia {difference:+.1e} of ours, so its time is not compared."
            )
        elif n_iter != mine.n_iter:
            remarks.append(
                f"{problem.name} ({problem.shape}): {name} took {n_iter} iterations, ours "
                f"{mine.n_iter}; inertia {difference:+.1e} of ours."
            )
    return same, remarks


def _seconds(problem: Problem, outcomes: dict[str, Outcome]) -> list[Any]:
    medians = [
        outcomes[name].median if name in outcomes else None
        for name in ("lloyd", *BOUNDED, "auto", *OTHERS)
    ]
    return [problem.name, problem.shape, outcomes["auto"].value.n_iter, *medians]


def _ratios(problem: Problem, outcomes: dict[str, Outcome], same: dict[str, bool]) -> list[Any]:
    auto, plain = outcomes["auto"].median, outcomes["lloyd"].median
    fixed = {name: outcomes[name].median for name in ("lloyd", *BOUNDED) if name in outcomes}
    best = min(fixed, key=lambda name: fixed[name])
    peer, noise = "scikit-learn lloyd", problem.without_structure
    return [
        problem.name,
        problem.shape,
        f"{plain / auto:.2f}",
        f"{auto / fixed[best]:.2f} ({best})",
        f"<= {AUTO_TARGET:.2f}",
        f"{outcomes[peer].median / auto:.2f}" if same.get(peer) else None,
        f">= {MNIST_TARGET:g}" if problem.name == "MNIST" else None,
        f"{auto / plain:.2f}" if noise else None,
        f"<= {NOISE_TARGET:.2f}" if noise else None,
    ]


def _summary(ratios: Table) -> str:
    found = [float(str(row[3]).split()[0]) for row in ratios.rows]
    return (
        f"auto / best fixed choice: median {statistics.median(found):.2f}, worst {max(found):.2f}."
    )


def _panels(problem: Problem, outcomes: dict[str, Outcome]) -> list[Panel]:
    title = f"{problem.name}, k = {problem.k}"
    curves = {name: outcomes[name].value for name in (*BOUNDED, "auto") if name in outcomes}
    return [
        Panel(
            title,
            what,
            [
                Curve(name, np.maximum(getattr(fitted, field), LEAST_SHARE))
                for name, fitted in curves.items()
            ],
        )
        for what, field in (("rows looked at / n", "touched"), ("distances / (n k)", "distances"))
    ]


def _figure(panels: list[Panel], options: Options) -> Figure | Note:
    return draw(
        "bounds_touched.svg",
        "Share of the rows that are looked at, and of the n k distances, in each iteration; shares "
        f"below {LEAST_SHARE:g} are drawn there",
        panels,
        options.images,
        logarithmic=True,
    )
