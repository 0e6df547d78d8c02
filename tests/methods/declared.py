"""What the docstring of an estimator says of its parameters.

``python -m tests.methods.declared`` writes their declared types and defaults into the docstrings.
"""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from textwrap import indent, wrap
from typing import Any

import daskcluster
from daskcluster.parameters import Parameter

_ENTRY = re.compile(r"(\w+(?:, \w+)*)(?: : (.*))?")
_HEADING = "Parameters\n----------\n"
MOST_CHARACTERS = 52
"""Choices in braces are no longer than this."""
OBJECTS = {
    "callbacks": "sequence of callables",
    "engine": 'Engine, dask.distributed.Client, "local" or address',
    "kernel_params": "dict",
    "precisions_init": "array-like",
    "weights_init": "array-like of shape (k,)",
}
"""Types of what no flag can say."""


def estimators() -> list[Any]:
    """Return the public classes that declare parameters."""
    public = (getattr(daskcluster, name) for name in daskcluster.__all__)
    return [each for each in public if getattr(each, "_parameters", ())]


def documented(estimator: Any) -> dict[str, tuple[str, list[str]]]:
    """Return the type and the lines of text of every parameter, as the docstring has them, in its order."""
    section = (inspect.getdoc(estimator) or "").partition(_HEADING)[2].partition("\n\n")[0]
    found: dict[str, tuple[str, list[str]]] = {}
    names: list[str] = []
    for line in section.splitlines():
        if entry := _ENTRY.fullmatch(line):
            names = entry[1].split(", ")
            found |= {name: (entry[2] or "", []) for name in names}
        else:
            for name in names:
                found[name][1].append(line)
    return found


def described(parameter: Parameter) -> str:
    """Return the type and the default as docstrings have them, e.g. ``int >= 1 or "auto", default 8``."""
    plain = f"{parameter.kind.__name__} {parameter.limits}".rstrip()
    if parameter.choices:
        choices = "{" + ", ".join(f'"{name}"' for name in parameter.choices) + "}"
        plain = choices if len(choices) <= MOST_CHARACTERS else "str"  # its sentences name them
    kinds = [plain if parameter.is_plain else OBJECTS[parameter.name]]
    kinds += [f'"{parameter.word}"'] if parameter.word else []
    kinds += ["URL"] if parameter.other else []
    kinds += parameter.also
    kinds += ["None", "False"] if parameter.off else []
    *first, last = kinds
    types = " or ".join([", ".join(first), last] if first else [last])
    default = parameter.default
    if default is None and not parameter.off:
        return f"{types}, optional"
    return f"{types}, default {json.dumps(default) if isinstance(default, str) else default}"


def check_declaration(estimator: Any) -> None:
    """Check that signature and docstring have what is declared, and that each parameter has a sentence."""
    declared = estimator._parameters
    signature = inspect.signature(estimator).parameters
    defaults = [(p.name, p.default) for p in declared]
    assert defaults == [(name, p.default) for name, p in signature.items()]
    found = documented(estimator)
    assert [(name, kind) for name, (kind, _) in found.items()] == [
        (p.name, described(p)) for p in declared
    ]
    assert all(text for _, text in found.values())
    estimator().check_parameters()


def write_parameters(estimator: Any) -> None:
    """Bring the docstring of `estimator` to what it declares; help has missing sentences."""
    path, before = Path(inspect.getfile(estimator)), documented(estimator)
    text = path.read_text()
    start = text.index(
        _HEADING.replace("\n", "\n    "), text.index(f"\nclass {estimator.__name__}(")
    )
    end = re.compile(r'\n\n|\n    """').search(text, start)
    lines = _HEADING.splitlines()
    for p in estimator._parameters:
        words = before.get(p.name, ("", []))[1] or wrap(
            p.help, 104, initial_indent=4 * " ", subsequent_indent=4 * " "
        )
        lines += [f"{p.name} : {described(p)}", *words]
    section = indent("\n".join(lines), 4 * " ").removeprefix(4 * " ")
    path.write_text(text[:start] + section + text[end.start() :])


if __name__ == "__main__":
    for each in estimators():
        write_parameters(each)
