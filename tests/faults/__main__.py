"""``python -m tests.faults trials``: kill workers, schedulers and clients of commands, and count."""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks.harness.machine import facts, lines_of
from tests.benchmarks.harness.page import Run
from tests.benchmarks.harness.parts import Table
from tests.faults import slow_worker
from tests.faults.processes import preload
from tests.faults.summary import summary, tables
from tests.faults.trials import KINDS, NOTICE_SECONDS, Arena, Outcome, Plan, plans
from tests.faults.works import WORKS

QUICK = 6
ABOUT = {
    "faults": "trials with random kills",
    "slow-worker": "two workers of equal speed, and one of them slowed down",
}
SECONDS_A_TRIAL, SECONDS_A_FIT = 7, 6
"""On two cores: a trial, including a new cluster after a lost scheduler; the fit before the first trial."""


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    found.add_argument("name", choices=["trials", "slow-worker"])
    found.add_argument("--trials", type=int, default=240)
    found.add_argument("--seed", type=int, default=1)
    found.add_argument(
        "--estimators",
        type=lambda text: tuple(text.split(",")),
        default=WORKS,
        metavar="NAME,...",
        help="algorithms of the command line, 'coreset command' and 'predict command'; default: all",
    )
    found.add_argument(
        "--kinds", type=lambda text: tuple(text.split(",")), default=KINDS, metavar="KIND,..."
    )
    found.add_argument("--workers", type=int, default=3)
    found.add_argument(
        "--at-a-time",
        type=int,
        default=2,
        metavar="N",
        help="number of processes that share the algorithms, each with its own cluster; much of a trial "
        "is waiting",
    )
    found.add_argument(
        "--timeout",
        type=float,
        default=NOTICE_SECONDS,
        metavar="SECONDS",
        help="time after which a command notices that its scheduler is lost",
    )
    found.add_argument(
        "--number",
        type=int,
        metavar="N",
        help="run only this trial (counted from 0), --times times",
    )
    found.add_argument("--times", type=int, default=1, metavar="N")
    found.add_argument("--share", type=int, metavar="I", help=argparse.SUPPRESS)
    found.add_argument("--quick", action="store_true", help=f"{QUICK} trials of two estimators")
    found.add_argument(
        "--resume-log",
        type=Path,
        metavar="FILE",
        help="save every finished trial in this file, and skip trials that are in it",
    )
    found.add_argument("--json", type=Path, metavar="FILE", help="write all figures to this file")
    found.add_argument(
        "--output",
        type=Path,
        metavar="FILE.md",
        help="replace the section in this file, and its tables",
    )
    found.add_argument(
        "--note",
        default="",
        metavar="TEXT",
        help="add this note below the command, such as on the machine",
    )
    found.add_argument("--scratch", type=Path, metavar="DIR")
    return found


def finished(log: Path | None) -> dict[int, Outcome]:
    """Return the trials in a log by number; incomplete lines are ignored."""
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


def run(todo: Sequence[Plan], options: argparse.Namespace, log: Path) -> None:
    """Run trials in this process, and append each outcome to the log."""
    preload("tests.faults.preload_fits")
    with (
        tempfile.TemporaryDirectory(dir=options.scratch, prefix="faults-") as folder,
        Arena(Path(folder), options.workers, options.timeout) as place,
    ):
        for plan in todo:
            began = time.monotonic()
            outcome = place.run(plan)
            with log.open("a") as lines:
                lines.write(json.dumps(outcome.as_dict()) + "\n")
            seconds = time.monotonic() - began
            sys.stderr.write(
                f"{plan.number + 1}/{options.trials} {plan.kind} {plan.algorithm} at "
                f"{outcome.plan.moment:.2f}: {_verdict(outcome)} {outcome.recovery:.1f} s, "
                f"{seconds:.1f} s in total {outcome.trouble}\n"
            )


def run_shares(arguments: Sequence[str], count: int, log: Path) -> bool:
    """Run trials in `count` processes of this command; return True if all of them succeed."""
    command = [sys.executable, "-m", "tests.faults", *arguments, "--resume-log", str(log)]
    shares = [subprocess.Popen([*command, "--share", str(share)]) for share in range(count)]
    try:
        codes = [process.wait() for process in shares]
        return not any(codes)
    finally:
        for process in shares:
            process.terminate()


def planned(options: argparse.Namespace, count: int) -> Iterator[Plan]:
    return plans(count, options.seed, options.estimators, options.kinds, options.workers)


def unfinished(options: argparse.Namespace, log: Path) -> list[Plan]:
    """Return the trials of this process's share of the algorithms that are not in the log."""
    wanted = planned(options, options.trials)
    mine = options.estimators
    if options.share is not None:
        mine = mine[options.share :: options.at_a_time]
    done = finished(log)
    return [
        plan
        for plan in wanted
        if plan.algorithm in mine
        and not (plan.number in done and done[plan.number].plan.algorithm == plan.algorithm)
    ]


def publish(
    options: argparse.Namespace, name: str, words: str, seconds: float, parts: Sequence[Table]
) -> None:
    """Print the tables; write them and the section of the page if there is one."""
    command, remarks = f"python -m tests.faults {words}", [options.note] if options.note else []
    run = Run(name, ABOUT[name], command, seconds, facts(), parts, remarks)
    sys.stdout.write(run.markdown())
    if options.output is not None:
        folder = options.output.parent.parent / "results" / "tables"
        run.write_tables(folder)
        run.write_section(options.output, folder)


def report(options: argparse.Namespace, log: Path, seconds: float) -> int:
    """Report the trials in the log; return the exit code."""
    done = finished(log)
    found = summary([done[number] for number in sorted(done) if number < options.trials])
    words = f"trials --trials {options.trials} --seed {options.seed}"
    if options.estimators != WORKS:
        words += f" --estimators {','.join(options.estimators)}"
    if options.timeout != NOTICE_SECONDS:
        words += f" --timeout {options.timeout:g}"
    if options.json is not None:
        made = {"command": words, "machine": lines_of(facts()), "seconds": seconds}
        options.json.write_text(json.dumps(found | made, indent=1) + "\n")
    publish(options, "faults", words, seconds, tables(found, options.timeout))
    return exit_code(found)


def repeat(options: argparse.Namespace, log: Path) -> int:
    """Run one trial several times and print the outcomes; return the exit code."""
    (plan,) = itertools.islice(planned(options, options.number + 1), options.number, None)
    run([plan] * options.times, options, log)
    outcomes = [Outcome.of(json.loads(line)) for line in log.read_text().splitlines()]
    found = summary([outcome for outcome in outcomes if outcome.plan.number == plan.number])
    sys.stdout.write("\n".join(one.markdown() for one in tables(found, options.timeout)))
    return exit_code(found)


def exit_code(found: Mapping[str, Any]) -> int:
    whole = found["all"]
    return int(bool(whole["wrong"] or whole["recovered"] < whole["trials"]))


def main(arguments: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    options, began = parser().parse_args(arguments), time.monotonic()
    if options.quick:
        options.trials, options.estimators = QUICK, options.estimators[:2]
    with tempfile.TemporaryDirectory(dir=options.scratch) as folder:
        if options.name == "slow-worker":
            found = slow_worker.measure(Path(folder))
            seconds = time.monotonic() - began
            publish(options, "slow-worker", "slow-worker", seconds, [slow_worker.table(found)])
            return 0
        log = options.resume_log or Path(folder) / "log"
        if options.number is not None:
            return repeat(options, log)
        todo = unfinished(options, log)
        if options.share is None:
            seconds = len(todo) * SECONDS_A_TRIAL + SECONDS_A_FIT * len(options.estimators)
            minutes = seconds / 60 / options.at_a_time
            sys.stderr.write(f"{len(todo)} trials to run: about {minutes:.0f} minutes\n")
        whole = True
        if options.share is None and options.at_a_time > 1 and todo:
            whole = run_shares(arguments, options.at_a_time, log)
        else:
            run(todo, options, log)
        if options.share is not None:
            return 0
        return report(options, log, time.monotonic() - began) or int(not whole)


if __name__ == "__main__":
    sys.exit(main())
