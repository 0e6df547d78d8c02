"""The summary of the page: targets, measured figures, and reasons for missed targets.

Each comparison writes its readings to ``targets.json``, with machine and date, where they stay until it is
measured again. ``reasons.json``, written by hand, has the reasons for missed targets.
"""

from __future__ import annotations

import re
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
    """Save the readings of the targets of the comparison `name`; `last` is its latest record.

    A figure that has not changed keeps its date and machine: its cells were measured before.
    """
    noted = results.read(NOTED)
    for target in wanted:
        if (reading := target.read(records)) is not None:
            entry = {"comparison": name, "measured": reading.text, "met": reading.met}
            where = last["where"]
            made = {"command": last["command"], "date": where["date"], "cpu": where["cpu"]}
            if noted.get(target.name, {}).get("measured") != reading.text:
                entry |= made
            results.put(NOTED, target.name, {**noted.get(target.name, made), **entry})


def section_of_targets(results: Results, narrow: Results) -> str:
    """Return the summary: a line for every target; `narrow` has the results with AVX2 only."""
    noted, avx2 = results.read(NOTED), narrow.read(NOTED)
    table = Table(
        "Comparisons and targets",
        ["compared", "target", "measured", "met", "AVX2 only", "section"],
        [_row(one, name, noted.get(one.name), avx2.get(one.name)) for name, one in targets()],
    )
    found = [noted[target.name]["met"] for _, target in targets() if target.name in noted]
    also = [avx2[target.name]["met"] for _, target in targets() if target.name in avx2]
    lines = [
        "## Summary",
        "",
        f"{sum(found)} of {len(targets())} targets are met, {len(found) - sum(found)} are missed, "
        f"{len(targets()) - len(found)} are not measured. With AVX2 only, {sum(also)} of {len(also)} are "
        "met. If a comparison has several cells, the worst one counts.",
        "",
        table.markdown(),
    ]
    missed = [
        f"- **{target.what}**{where}: {kept.read(REASONS).get(target.name, 'the reason is not known yet.')}"
        for kept, where in ((results, ""), (narrow, ", AVX2 only"))
        for _, target in targets()
        if not kept.read(NOTED).get(target.name, {"met": True})["met"]
    ]
    if missed:
        lines += ["### Missed targets", "", *missed]
    return "\n".join(lines) + "\n"


def _row(
    target: Target, name: str, entry: dict[str, Any] | None, narrow: dict[str, Any] | None
) -> list[Any]:
    also = narrow and f"{narrow['measured']}{'' if narrow['met'] else ' (**no**)'}"
    if entry is None:
        return [target.what, target.goal, None, None, also, f"`compare --only {name}`"]
    met, link = "yes" if entry["met"] else "**no**", _section(name, entry["command"])
    return [target.what, target.goal, entry["measured"], met, also, link]


def _section(name: str, command: str) -> str:
    """Return a link to the section that has the figure; some are on the page of reproductions."""
    found = re.match(r"python -m tests\.benchmarks (?!compare\b)([\w-]+)", command)
    return f"[{found[1]}](reproduction.md#{found[1]})" if found else f"[{name}](#{name})"
