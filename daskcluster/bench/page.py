"""Sections of a Markdown page that programs write, between comments, among text that people write."""

from __future__ import annotations

import re
from pathlib import Path


def write_section(path: Path, name: str, text: str) -> None:
    """Put a section into a Markdown file, in place of the one of the same name.

    All else stays as it is; a section that is new comes last.
    """
    begin, end = f"<!-- benchmark: {name} -->", f"<!-- end: {name} -->"
    section = f"{begin}\n{text.strip()}\n{end}"
    old = path.read_text(encoding="utf-8") if path.exists() else "# Benchmarks\n"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    if pattern.search(old):
        new = pattern.sub(lambda _: section, old)
    else:
        new = f"{old.rstrip()}\n\n{section}\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(new, encoding="utf-8")
