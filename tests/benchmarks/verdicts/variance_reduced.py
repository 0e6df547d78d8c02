"""Zhao and others, "Large-scale k-means clustering via variance reduction"."""

from __future__ import annotations

from tests.benchmarks.verdicts.claims import Claim, Finding, listed, reproduced
from tests.benchmarks.vrkm.programs import AT_TUNED
from tests.benchmarks.vrkm.programs import TUNED as RATE
from tests.published import Table


def _vrkm() -> Table:
    return reproduced("vrkm", "Table 3")


SETS = ("mnist", "cifar10_test10k", "sift_like")
TUNED = {
    "mnist": "mnist, 70,000 x 784, 100",
    "cifar10_test10k": "cifar10_test10k, 10,000 x 3,072, 100",
}


def _program(name: str, program: str, column: str) -> str:
    table = _vrkm()
    (found,) = [line for line in table.lines if line[0] == name and line[2] == program]
    return found[table.header.index(column)]


def _tuned() -> tuple[str, ...]:
    """Return the sets that were also run at the tuned rate."""
    table = _vrkm()
    return tuple(
        name for name in SETS if any(line[::2][:2] == [name, AT_TUNED] for line in table.lines)
    )


def _vrkm_seeds() -> str:
    found = [_program(name, "vrkm++", "seeds that reach it").split(" of ")[1] for name in SETS]
    return " or ".join(dict.fromkeys(found))


def faster_than_batch() -> Finding:
    found, said = {}, []
    for program, rate, sets in (("vrkm++", "K / n", SETS), (AT_TUNED, f"{RATE} K / n", _tuned())):
        found[program] = {name: _program(name, program, "speedup") for name in sets}
        texts = {
            name: "not reached"
            if text == "-"
            else f"{text} ({_program(name, program, 'fewer distances')})"
            for name, text in found[program].items()
        }
        said.append(f"at {rate} {listed(texts)}")
    return Finding(
        f"times as fast (times fewer distances): {'; '.join(said)}",
        tuple(text != "-" and float(text) > 1 for text in found[AT_TUNED].values()),
        "2",
    )


def lower_at_ten_times_the_rate() -> Finding:
    found = {name: _program(name, AT_TUNED, "last loss / batch's") for name in _tuned()}
    return Finding(
        f"last loss over that of batch k-means at {RATE} K / n: {listed(found)}",
        tuple(float(loss) <= 1 for loss in found.values()),
        "2",
    )


def lower_than_others() -> Finding:
    found = {
        name: [
            float(_program(name, one, "last loss / batch's"))
            for one in ("vrkm++", "mini-batch", "sgd")
        ]
        for name in SETS
    }
    said = {name: ", ".join(f"{one:.4f}" for one in losses) for name, losses in found.items()}
    return Finding(
        "last losses of VRKM++, mini-batches and single steps over batch's: "
        + "; ".join(f"{name} {text}" for name, text in said.items()),
        tuple(losses[0] < min(losses[1:]) for losses in found.values()),
        _vrkm_seeds(),
    )


def needs_correction() -> Finding:
    table = reproduced("vrkm-rates", "Figure 3")
    ends = [float(table.cell(line, "8")) for line in ("SVRG", "VRKM++")]
    return Finding(
        f"after 8 epochs {ends[0]:.3g} of the first loss without it, {ends[1]:.3g} with it",
        (ends[0] > 1 > ends[1],),
        "1",
    )


def better_classes() -> Finding:
    table = reproduced("vrkm", "Table 4")
    found = {
        name: [
            float(table.cell(f"{name} | {one} |", "NMI").split()[0]) for one in ("vrkm++", "batch")
        ]
        for name in ("mnist", "cifar10_test10k")
    }
    said = {name: f"{ours:.4f} ({batch:.4f})" for name, (ours, batch) in found.items()}
    return Finding(
        f"NMI (of batch k-means): {listed(said)}",
        tuple(ours > batch for ours, batch in found.values()),
        _vrkm_seeds(),
    )


def large_rates() -> Finding:
    found, holds = {}, []
    for name, shape in TUNED.items():
        table = reproduced("vrkm-rates", f"Figure 7: learning rate, in multiples of K / n: {shape}")
        last, best = (
            [float(line[table.header.index(one)]) for line in table.lines]
            for one in ("last loss without the guard", "best loss without it")
        )
        falls = [a <= b for a, b in zip(last, best, strict=True)]
        rates = [line[0] for line, one in zip(table.lines, falls, strict=True) if one]
        found[name] = f"at {', '.join(rates)}"
        holds += falls
    return Finding(
        "times K / n where the loss falls to the end without the guard: "
        + "; ".join(f"{name} {text}" for name, text in found.items()),
        tuple(holds),
        "1",
    )


def same_iterates() -> Finding:
    return Finding("equal to the bit, checked by `tests/laws`", (True,), "-")


CLAIMS = (
    Claim(
        "VRKM++ reaches the final loss of batch k-means 4.14 to 5.54 times faster (Table 3)",
        faster_than_batch,
        "medians of the seeds that reach it: one of two on mnist",
    ),
    Claim(
        "its loss is below that of batch k-means with a tuned rate (Figure 7)",
        lower_at_ten_times_the_rate,
    ),
    Claim(
        "it ends lower than mini-batches and single steps in the same time (Table 3)",
        lower_than_others,
    ),
    Claim("SVRG fails without the position correction (Figure 3)", needs_correction),
    Claim("large rates converge (Figure 7)", large_rates, "the sets here are smaller"),
    Claim("VRKM and VRKM++ have the same iterates (equation 9)", same_iterates),
    Claim("its clusters agree better with the classes (Table 4)", better_classes),
    Claim(
        "the same on Oxford, Pittsburgh and CIFAR-100",
        "these sets are not available; the sets here stand for them",
    ),
)
