"""The table of targets: what was wanted, what was measured, by which command and when, met or not and why.

Figures that a comparison measured are noted in ``targets.json`` next to its results and stay there until it
measures them again. ``reasons.json``, written by people, says why one is missed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.benchmarks.harness.catalogue import targets
from tests.benchmarks.harness.cells import Figures, Records, Target
from tests.benchmarks.harness.parts import Table
from tests.benchmarks.harness.store import Results

NOTED, REASONS = "targets", "reasons"


def note_targets(
    results: Results, name: str, wanted: Sequence[Target], records: Records, last: Figures
) -> None:
    """Note what the records of the comparison `name` say of its targets; `last` is their latest cell."""
    for target in wanted:
        if (reading := target.read(records)) is not None:
            entry = {"comparison": name, "measured": reading.text, "met": reading.met}
            where = last["where"]
            made = {"command": last["command"], "date": where["date"], "cpu": where["cpu"]}
            results.put(NOTED, target.name, {**entry, **made})


def section_of_targets(results: Results) -> str:
    """Return the section with a line for every target, measured or not."""
    noted, reasons = results.read(NOTED), results.read(REASONS)
    table = Table(
        "Target, measured figure, command and date",
        ["what", "target", "measured", "met", "command", "date"],
        [_row(target, name, noted.get(target.name)) for name, target in targets()],
    )
    found = [noted[target.name]["met"] for _, target in targets() if target.name in noted]
    lines = [
        "## targets",
        "",
        "Ratios of programs that took turns in one run on one machine. "
        f"{sum(found)} of {len(targets())} are met, {len(found) - sum(found)} are missed, "
        f"{len(targets()) - len(found)} are not measured. Where a comparison has several cells, the worst "
        "one decides.",
        "",
        table.markdown(),
    ]
    missed = [target for _, target in targets() if not noted.get(target.name, {"met": True})["met"]]
    if missed:
        lines += ["### Why targets are missed", ""]
        lines += [f"- **{one.what}**: {reasons.get(one.name, 'not known yet.')}" for one in missed]
    return "\n".join(lines) + "\n"


def _row(target: Target, name: str, entry: dict[str, Any] | None) -> list[Any]:
    if entry is None:
        return [
            target.what,
            target.goal,
            None,
            None,
            f"`python -m tests.benchmarks compare --only {name}`",
            None,
        ]
    met = "yes" if entry["met"] else "**no**"
    command = f"`{entry['command']}`"
    return [target.what, target.goal, entry["measured"], met, command, entry["date"]]
