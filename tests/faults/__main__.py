"""``python -m tests.faults trials``: kill workers, schedulers and clients of real fits, and count."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from tests.benchmarks.harness import machine, write_section
from tests.faults.fits import FITS
from tests.faults.slow_worker import measure
from tests.faults.summary import markdown, summary
from tests.faults.trials import KINDS, Arena, Outcome, Plan, plans

QUICK = 6
SECONDS_A_TRIAL = 7
"""On two cores, a new cluster after a lost scheduler included."""


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    found.add_argument("name", choices=["trials", "slow-worker"])
    found.add_argument("--trials", type=int, default=240)
    found.add_argument("--seed", type=int, default=1)
    found.add_argument(
        "--estimators",
        type=lambda text: tuple(text.split(",")),
        default=tuple(FITS),
        metavar="NAME,...",
        help="algorithms of the command line; default: all",
    )
    found.add_argument(
        "--kinds", type=lambda text: tuple(text.split(",")), default=KINDS, metavar="KIND,..."
    )
    found.add_argument("--workers", type=int, default=3)
    found.add_argument("--quick", action="store_true", help=f"{QUICK} trials of two estimators")
    found.add_argument(
        "--resume-log",
        type=Path,
        metavar="FILE",
        help="keep every finished trial here, and go on after those that are there",
    )
    found.add_argument("--json", type=Path, metavar="FILE", help="write all figures")
    found.add_argument(
        "--output", type=Path, metavar="FILE.md", help="replace the table's section in this file"
    )
    found.add_argument("--scratch", type=Path, metavar="DIR")
    return found


def finished(log: Path | None) -> dict[int, Outcome]:
    """Return the trials that a log holds, by number; a line that was cut short is no trial."""
    if log is None or not log.exists():
        return {}
    found = {}
    for line in log.read_text().splitlines():
        try:
            outcome = Outcome.of(json.loads(line))
        except ValueError:
            continue
        found[outcome.plan.number] = outcome
    return found


def _verdict(outcome: Outcome) -> str:
    if not outcome.landed:
        return "missed"
    if not outcome.recovered:
        return "NOT RECOVERED"
    return "ok" if outcome.right else "WRONG"


def run(todo: list[Plan], options: argparse.Namespace, done: dict[int, Outcome]) -> None:
    """Run the trials that are left, and add what comes of them to `done` and to the log."""
    with (
        tempfile.TemporaryDirectory(dir=options.scratch, prefix="faults-") as folder,
        Arena(Path(folder), options.workers) as place,
    ):
        for plan in todo:
            outcome = done[plan.number] = place.run(plan)
            if options.resume_log is not None:
                with options.resume_log.open("a") as log:
                    log.write(json.dumps(outcome.as_dict()) + "\n")
            verdict = _verdict(outcome)
            sys.stderr.write(
                f"{plan.number + 1}/{options.trials} {plan.kind} {plan.algorithm} at "
                f"{outcome.plan.moment:.2f}: {verdict} {outcome.recovery:.1f} s {outcome.trouble}\n"
            )


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    if options.name == "slow-worker":
        with tempfile.TemporaryDirectory(dir=options.scratch) as folder:
            sys.stdout.write(json.dumps(measure(Path(folder)), indent=1) + "\n")
        return 0
    if options.quick:
        options.trials, options.estimators = QUICK, options.estimators[:2]
    wanted = plans(options.trials, options.seed, options.estimators, options.kinds, options.workers)
    done, todo = finished(options.resume_log), []
    for plan in wanted:
        if plan.number not in done or done[plan.number].plan.algorithm != plan.algorithm:
            todo.append(plan)
    minutes = (len(todo) * SECONDS_A_TRIAL + 6 * len(options.estimators)) / 60
    sys.stderr.write(f"{len(todo)} trials to run: about {minutes:.0f} minutes and 2 GB of memory\n")
    began = time.monotonic()
    run(todo, options, done)
    found = summary([done[number] for number in sorted(done) if number < options.trials])
    words = f"python -m tests.faults trials --trials {options.trials} --seed {options.seed}"
    if options.estimators != tuple(FITS):
        words += f" --estimators {','.join(options.estimators)}"
    found |= {"command": words, "machine": machine(), "seconds": time.monotonic() - began}
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    text = "\n".join([f"Made by `{words}`.", "", *(f"- {x}" for x in found["machine"]), ""])
    text += "\n" + markdown(found)
    sys.stdout.write(text + "\n")
    if options.output is not None:
        write_section(options.output, "faults", text)
    whole = found["all"]
    return int(bool(whole["wrong"] or whole["recovered"] < whole["trials"]))


if __name__ == "__main__":
    sys.exit(main())
