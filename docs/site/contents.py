"""Pages that nobody names: in the navigation ``folder/*`` stands for them, and a page may list a folder."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from mkdocs.structure.files import Files

Entry = str | dict[str, Any]
LISTED = re.compile(r"<!-- pages: (\S+) -->")
HEADING = re.compile(r"^# (.+)$", re.MULTILINE)


def named_in(entries: list[Entry]) -> Iterator[str]:
    """Yield the pages that a part of the navigation names."""
    for entry in entries:
        for value in entry.values() if isinstance(entry, dict) else [entry]:
            yield from named_in(value) if isinstance(value, list) else [value]


def expand(entries: list[Entry], rest: list[str]) -> list[Entry]:
    """Return the entries with the pages of `rest` in the place of their folder's ``*``; no empty parts."""
    made: list[Entry] = []
    for entry in entries:
        if isinstance(entry, dict):
            ((title, value),) = entry.items()
            inner = expand(value, rest) if isinstance(value, list) else value
            made += [{title: inner}] if inner else []
        elif entry.endswith("/*"):
            made += [page for page in rest if page.rpartition("/")[0] == entry[:-2]]
        else:
            made.append(entry)
    return made


def on_files(files: Files, config: Any) -> Files:
    """Fill in the navigation, now that the pages are known."""
    named = set(named_in(config.nav))
    pages = sorted(file.src_uri for file in files.documentation_pages())
    config.nav = expand(config.nav, [page for page in pages if page not in named])
    return files


def on_page_markdown(text: str, files: Files, **_: Any) -> str:
    """Put the list of a folder's pages in the place of ``<!-- pages: folder -->``."""

    def listed(match: re.Match[str]) -> str:
        pages = [
            file
            for file in files.documentation_pages()
            if file.src_uri.startswith(f"{match[1]}/") and file.name != "index"
        ]
        lines = []
        for file in sorted(pages, key=lambda file: file.src_uri):
            title = HEADING.search(file.content_string)
            number = file.name.partition("-")[0].lstrip("0")
            words = re.sub(r"^\d+[.:] ", "", title[1]) if title else file.name
            lines.append(f"- [{number}. {words}]({file.src_uri.rpartition('/')[2]})")
        return "\n".join(lines)

    return LISTED.sub(listed, text)
