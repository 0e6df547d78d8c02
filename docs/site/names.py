"""Public names in the text of a page become links to the reference."""

from __future__ import annotations

import re
from typing import Any

import daskcluster

OTHERS = ("how-to/migrate.md",)  # where the same names are also those of other libraries
PLAIN = {name for name in daskcluster.__all__ if name[0].isupper() or "_" in name.strip("_")}
"""Names that mean ours without a prefix; `shuffle` or `metrics` may be a flag or a word."""
NAME = "|".join(sorted(daskcluster.__all__, key=len, reverse=True))
FOUND = re.compile(
    r"<(?P<whole>a|h[1-6]|pre|autoref)\b.*?</(?P=whole)>"
    rf"|<code>(?P<prefix>dc\.|daskcluster\.)?(?P<name>{NAME})(?:\([^<]*\))?</code>",
    re.DOTALL,
)


def on_page_content(text: str, page: Any, **_: Any) -> str:
    """Link names that are not part of a link, a heading or a block of code."""
    if page.file.src_uri in OTHERS:
        return text

    def linked(match: re.Match[str]) -> str:
        if match["whole"] or not (match["prefix"] or match["name"] in PLAIN):
            return match[0]
        return f'<autoref optional identifier="daskcluster.{match["name"]}">{match[0]}</autoref>'

    return FOUND.sub(linked, text)
