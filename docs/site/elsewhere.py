"""Pages of the site that lie outside docs/, and files that pages link to.

Links are written as they are right in the tree, `../deploy/README.md` say. The site has such a file at
its path in the tree, as a page if it is listed here, otherwise as it is.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    "CHANGELOG.md",
    "deploy/README.md",
    "deploy/helm/daskcluster/README.md",
    "notebooks/README.md",
)
LINK = re.compile(r"(\]\()([^)#\s:]+)((?:#[^)]*)?\))")
FENCED = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)


def place_of(uri: str) -> str:
    """Return the path in the tree of a page of the site."""
    return uri if uri in PAGES else f"docs/{uri}"


def uri_of(path: str) -> str:
    """Return where the site has a file of the tree; what introduces the tree introduces the site."""
    return "index.md" if path == "README.md" else path.removeprefix("docs/")


def targets_of(text: str, place: str) -> list[str]:
    """Return the paths in the tree that a page at `place` links to, without those of docs/."""
    links = (match[2] for match in LINK.finditer(FENCED.sub("", text)))
    paths = (posixpath.normpath(posixpath.join(posixpath.dirname(place), link)) for link in links)
    return [path for path in paths if not path.startswith(("docs/", "..")) and path != "README.md"]


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are elsewhere, and the files that any page links to."""
    for path in PAGES:
        files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    for page in list(files.documentation_pages()):
        for path in targets_of(page.content_string, place_of(page.src_uri)):
            if files.get_file_from_path(path) is None and (ROOT / path).is_file():
                files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(text: str, page: Any, **_: Any) -> str:
    """Turn links that are right in the tree into links that are right in the site."""
    place = place_of(page.file.src_uri)
    folder = posixpath.dirname(page.file.src_uri) or "."

    def moved(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(place), match[2]))
        return f"{match[1]}{posixpath.relpath(uri_of(path), folder)}{match[3]}"

    parts = FENCED.split(text)
    return "".join(part if part.startswith("```") else LINK.sub(moved, part) for part in parts)
