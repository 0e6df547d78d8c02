"""What the public estimators, functions and jobs declare, and the table of it in the documentation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import daskcluster as dc
from daskcluster.data.convert import convert
from daskcluster.invariance import CIRCUMSTANCES, declared
from daskcluster.jobs.spec import JOBS

BEGIN, END = "<!-- printed by python -m tests.invariances -->", "<!-- end -->"
PAGE = "docs/explanation/same-bits.md"

NO_RESULTS = {
    "DaskEngine", "Dataset", "Grid", "LocalEngine", "ProgressBar", "__version__", "annotate", "errors",
    "events", "extending", "from_sklearn", "jobs", "load_model", "metrics", "open_dataset",
    "open_grid",
}  # fmt: skip
"""Public names that compute nothing from rows."""
_NO_MEASURES = {"Contingency"}
_FUNCTIONS_OF_JOBS = {"coreset": "build_coreset"}


def subjects() -> dict[str, Any]:
    """Return everything that has to declare, by name, in the order of the table."""
    names = [name for name in dc.__all__ if name not in NO_RESULTS]
    found = {name: getattr(dc, name) for name in sorted(names, key=lambda name: name.islower())}
    measures = sorted(set(dc.metrics.__all__) - _NO_MEASURES)
    found |= {"convert": convert} | {name: getattr(dc.metrics, name) for name in measures}
    jobs = {name: getattr(dc.jobs, _FUNCTIONS_OF_JOBS.get(name, name)) for name in JOBS}
    return found | {f"jobs.{name}": function for name, function in jobs.items()}


def declarations() -> dict[str, Mapping[str, str]]:
    """Return what each subject declares."""
    found = {name: declared(subject) for name, subject in subjects().items()}
    missing = [name for name, each in found.items() if each is None]
    if missing:
        raise LookupError(f"{missing} declare nothing; see daskcluster.invariance.varies_with.")
    return {name: each for name, each in found.items() if each is not None}


def table() -> str:
    """Return the table in Markdown, with a footnote for each reason."""
    reasons: list[str] = []
    heads = [name.replace("_", " ") for name in CIRCUMSTANCES]
    lines = [f"| | {' | '.join(heads)} |", f"|---|{'---|' * len(heads)}"]
    for name, varies in declarations().items():
        cells = []
        for circumstance in CIRCUMSTANCES:
            reason = varies.get(circumstance)
            if reason is not None and reason not in reasons:
                reasons.append(reason)
            cells.append("yes" if reason is None else f"no ({reasons.index(reason) + 1})")
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    notes = [f"{number}. {reason}" for number, reason in enumerate(reasons, 1)]
    return "\n".join([*lines, "", *notes])
