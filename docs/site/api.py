"""The index of the API: all public names, each with the first sentence of its docstring."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import griffe

import daskcluster

ROOT = Path(__file__).resolve().parents[2]
PLACE = "<!-- names -->"
MODULES = ("metrics", "jobs", "extending", "events", "errors")


def entries(package: Any, module: str) -> Iterator[str]:
    """Yield a line for each public name of a module of the package; "" is the package itself."""
    found = package[module] if module else package
    for name in sorted(found.exports or (), key=str.lower):
        if name[0] == "_" or name in MODULES:
            continue
        member = found[name]
        member = member.final_target if member.is_alias else member
        text = member.docstring.value if member.docstring else ""
        paragraph = " ".join(text.split("\n\n")[0].split()).replace("``", "`")
        sentence = re.split(r"(?<=\.) (?=[A-Z`])", paragraph)[0]
        path = ".".join(("daskcluster", module, name)) if module else f"daskcluster.{name}"
        yield f"- [`{name}`][{path}]: {sentence}"


def on_page_markdown(text: str, **_: Any) -> str:
    """Put the names in the place of ``<!-- names -->``."""
    if PLACE not in text:
        return text
    package = griffe.load(daskcluster.__name__, search_paths=[str(ROOT)])
    parts = [
        f"## {module or 'daskcluster'}\n\n" + "\n".join(entries(package, module))
        for module in ("", *MODULES)
    ]
    return text.replace(PLACE, "\n\n".join(parts))
