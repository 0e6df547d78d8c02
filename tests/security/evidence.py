"""Collects whatever could be seen by others, and says where in it a planted secret stands."""

from __future__ import annotations

import pickle
import re
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from distributed.protocol.pickle import dumps

MOST_PAGES = 80


class Evidence:
    """Bytes by the place where they were found."""

    def __init__(self) -> None:
        self.found: dict[str, bytes] = {}

    def __len__(self) -> int:
        return len(self.found)

    def keep(self, place: str, content: Any) -> None:
        """Remember text, bytes, or an object's repr and its text."""
        if isinstance(content, str):
            content = content.encode(errors="replace")
        elif not isinstance(content, bytes):
            content = f"{content!r} {content}".encode(errors="replace")
        self.found[f"{len(self.found)} {place}"] = content

    def keep_pickled(self, place: str, thing: Any) -> None:
        """Remember how `thing` would travel, and how it shows."""
        self.keep(f"pickle of {place}", pickle.dumps(thing))
        self.keep(f"what is sent of {place}", dumps(thing))
        self.keep(f"repr of {place}", thing)

    def keep_folder(self, place: str, folder: Path) -> None:
        """Remember names and contents of all files."""
        for file in sorted(folder.rglob("*")):
            self.keep(f"name in {place}", str(file))
            if file.is_file():
                self.keep(f"{place}: {file.name}", file.read_bytes())

    def keep_pages(self, place: str, start: str) -> int:
        """Follow the links of a site from `start`; return how many pages answered."""
        waiting, seen, read = [start], {start}, 0
        while waiting and read < MOST_PAGES:
            url = waiting.pop(0)
            try:
                with urllib.request.urlopen(url, timeout=10) as answer:
                    content = answer.read(1 << 22)
            except (urllib.error.URLError, OSError):
                continue
            read += 1
            self.keep(f"{place}: {url}", content)
            for link in re.findall(rb'(?:href|src)="([^"#]+)"', content):
                near = urllib.parse.urljoin(url, link.decode(errors="replace"))
                same = urllib.parse.urlsplit(near)[:2] == urllib.parse.urlsplit(start)[:2]
                if same and near not in seen and "/statics/" not in near:
                    seen.add(near)
                    waiting.append(near)
        return read

    def places_of(self, *secrets: str) -> list[str]:
        """Return where any of `secrets` stands."""
        return [
            place
            for place, content in self.found.items()
            if any(secret.encode() in content for secret in secrets)
        ]
