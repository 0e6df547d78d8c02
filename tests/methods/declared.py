"""What the docstring of an estimator says of its parameters.

``python -m tests.methods.declared`` writes their declared types into the docstrings.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import daskcluster

_ENTRY = re.compile(r"(\w+(?:, \w+)*)(?: : (.*))?")
_HEADING = "Parameters\n----------\n"


def estimators() -> list[Any]:
    """Return the public classes that declare parameters."""
    public = (getattr(daskcluster, name) for name in daskcluster.__all__)
    return [each for each in public if getattr(each, "_parameters", ())]


def documented(estimator: Any) -> dict[str, str]:
    """Return the type of every parameter as the docstring has it, in its order; "" where it has none."""
    section = (inspect.getdoc(estimator) or "").partition(_HEADING)[2].partition("\n\n")[0]
    entries = (_ENTRY.fullmatch(line) for line in section.splitlines())
    return {name: entry[2] or "" for entry in entries if entry for name in entry[1].split(", ")}


def check_declaration(estimator: Any) -> None:
    """Check that signature and docstring have what is declared: names, order, defaults and types."""
    declared = estimator._parameters
    signature = inspect.signature(estimator).parameters
    assert [(p.name, p.default) for p in declared] == [
        (name, p.default) for name, p in signature.items()
    ]
    found = documented(estimator)
    assert list(found) == list(signature)
    assert all(found.values())
    plain = {p.name: p.words for p in declared if p.is_plain}
    assert {name: found[name] for name in plain} == plain
    estimator().check_parameters()


def write_types(estimator: Any) -> None:
    """Bring the types in the docstring of `estimator` to what it declares."""
    path, declared = Path(inspect.getfile(estimator)), {p.name: p for p in estimator._parameters}
    text = path.read_text()
    start = text.index(
        _HEADING.replace("\n", "\n    "), text.index(f"\nclass {estimator.__name__}(")
    )
    end = text.index("\n\n", start)
    lines = []
    for line in text[start:end].splitlines():
        entry = _ENTRY.fullmatch(line.removeprefix("    "))
        names = entry[1].split(", ") if entry else []
        if all(name in declared and declared[name].is_plain for name in names) and names:
            lines += [f"    {name} : {declared[name].words}" for name in names]
        else:
            lines.append(line)
    path.write_text(text[:start] + "\n".join(lines) + text[end:])


if __name__ == "__main__":
    for each in estimators():
        write_types(each)
