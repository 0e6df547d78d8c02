"""Generated sections of a Markdown page, between comments, among text written by hand."""

from __future__ import annotations

import re
from pathlib import Path


def has_section(path: Path, name: str) -> bool:
    """Return whether the page has a section of that name that is not empty."""
    found = path.exists() and _pattern(name).search(path.read_text(encoding="utf-8"))
    return bool(found and found[1].strip())


def write_section(path: Path, name: str, text: str) -> None:
    """Write a section into a Markdown file; it replaces the section of the same name.

    The rest of the file does not change. A new section is added at the end.
    """
    section = f"{_begin(name)}\n{text.strip()}\n{_end(name)}"
    old = path.read_text(encoding="utf-8") if path.exists() else "# Benchmarks\n"
    pattern = _pattern(name)
    if pattern.search(old):
        new = pattern.sub(lambda _: section, old)
    else:
        new = f"{old.rstrip()}\n\n{section}\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(new, encoding="utf-8")


def _begin(name: str) -> str:
    return f"<!-- benchmark: {name} -->"


def _end(name: str) -> str:
    return f"<!-- end: {name} -->"


def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(f"{re.escape(_begin(name))}(.*?){re.escape(_end(name))}", re.DOTALL)
