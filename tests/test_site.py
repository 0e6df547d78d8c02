"""The documentation as a site: built without a warning, whole, shown without anything from elsewhere."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from html import unescape
from pathlib import Path
from urllib.parse import unquote

import pytest

import daskcluster
from tests.browser import browse, needs_browser

ROOT = Path(__file__).resolve().parent.parent
MODULES = ("errors", "events", "extending", "jobs", "metrics")
TARGET = re.compile(r'(?:href|src)="([^"#]*)#?([^"]*)"')
ID = re.compile(r' id="([^"]+)"')
LOADED = re.compile(r'<(?:script|img|iframe|source)[^>]* src="([^"]+)"|<link[^>]* href="([^"]+)"')
NO_PROXY = "http://127.0.0.1:9"  # nobody listens there


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs", reason="the extra docs is not installed")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "NO_MKDOCS_2_WARNING": "1",
            "http_proxy": NO_PROXY,
            "https_proxy": NO_PROXY,
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, str]:
    return {path: path.read_text(encoding="utf-8") for path in sorted(site.rglob("*.html"))}


def test_every_page_of_the_tree_is_there(site: Path) -> None:
    sources = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")]
    built = [
        path.with_name(path.name.replace("README", "index")).with_suffix(".html")
        for path in sources
    ]
    assert [path for path in built if not (site / path).exists()] == []
    assert (site / "deploy" / "README.html").exists() or (site / "deploy" / "index.html").exists()


def test_links_and_pictures_lead_to_something(pages: dict[Path, str]) -> None:
    anchors = {page: set(ID.findall(text)) for page, text in pages.items()}
    lost = set()
    for page, text in pages.items():
        if page.name == "404.html":  # its links begin at the root of a server
            continue
        for target, anchor in TARGET.findall(text):
            if re.match(r"[a-z]+:", target):
                continue
            path = (
                Path(os.path.normpath(page.parent / unquote(unescape(target)))) if target else page
            )
            known = anchors.get(path, {""}) | {"__comments", "__codelineno"}
            if not path.exists() or (anchor and path in pages and unquote(anchor) not in known):
                lost.add(f"{page.name}: {target}#{anchor}")
    assert lost == set()


def test_public_names_in_the_text_lead_to_the_reference(site: Path) -> None:
    text = (site / "how-to" / "choose-an-algorithm.html").read_text(encoding="utf-8")
    assert 'href="../reference/k-means.html#daskcluster.KMeans"><code>KMeans</code>' in text
    other = (site / "how-to" / "migrate.html").read_text(encoding="utf-8")
    assert "<td><code>MiniBatchKMeans</code></td>" in other  # theirs, in the column of theirs


def test_nothing_is_loaded_from_elsewhere(site: Path, pages: dict[Path, str]) -> None:
    loaded = {found for text in pages.values() for pair in LOADED.findall(text) for found in pair}
    assert [target for target in sorted(loaded) if re.match(r"(https?:)?//", target)] == []
    styles = [path.read_text(encoding="utf-8") for path in site.rglob("*.css")]
    assert not any(re.search(r"(@import|url\()\s*[\"']?(https?:)?//", style) for style in styles)


def test_formulas_are_mathml(pages: dict[Path, str]) -> None:
    counts = {
        page.stem: text.count("<math")
        for page, text in pages.items()
        if "explanation" in page.parts and page.stem not in {"reliability", "same-bits", "security"}
    }
    assert len(counts) >= 15
    assert min(counts.values()) > 5
    assert not any('class="arithmatex"' in text for text in pages.values())
    assert not any("merror" in text for text in pages.values())


def test_every_public_name_has_its_place_in_the_reference(pages: dict[Path, str]) -> None:
    reference = "".join(text for page, text in pages.items() if "reference" in page.parts)
    names = {f"daskcluster.{name}" for name in daskcluster.__all__ if name[0] != "_"}
    for name in MODULES:
        module = importlib.import_module(f"daskcluster.{name}")
        names |= {f"daskcluster.{name}.{member}" for member in getattr(module, "__all__", ())}
    missing = [name for name in sorted(names) if f'id="{name}"' not in reference]
    assert missing == []


def test_every_command_has_its_place_in_the_reference(site: Path) -> None:
    from daskcluster.cli.main import COMMANDS

    text = (site / "reference" / "command-line.html").read_text(encoding="utf-8")
    assert [name for name in COMMANDS if f"daskcluster {name}" not in text] == []


def test_search_knows_pages_and_docstrings(site: Path) -> None:
    index = (site / "search" / "search_index.json").read_text(encoding="utf-8")
    assert "explanation/bounds.html" in index
    assert "reference/k-means.html#daskcluster.KMeans" in index


ASK = """<script>addEventListener("load", () => {
  const seen = e => { const box = e.getBoundingClientRect(); return box.width > 2 && box.height > 5 };
  const formulas = [...document.querySelectorAll("math")];
  document.title = [formulas.length, formulas.filter(seen).length,
    [...document.images].filter(i => !i.complete || !i.naturalWidth).length,
    document.querySelectorAll(".md-nav__link").length,
    document.documentElement.scrollWidth <= innerWidth].join(" ") })</script></body>"""


@needs_browser
@pytest.mark.parametrize("name", ["explanation/mixtures", "how-to/choose-an-algorithm"])
def test_a_browser_shows_it(name: str, site: Path, tmp_path: Path) -> None:
    page = site / f"{name}.html"
    asking = page.with_name("asking.html")
    asking.write_text(page.read_text(encoding="utf-8").replace("</body>", ASK), encoding="utf-8")
    try:
        shown = browse(asking, tmp_path, "--window-size=1200,900", "--dump-dom")
    finally:
        asking.unlink()
    found = re.search(r"<title>([^<]*)</title>", shown)
    assert found is not None
    formulas, visible, broken, links, fits = found[1].split()
    assert formulas == visible
    assert int(formulas) > 30 or "explanation" not in name
    assert (broken, fits) == ("0", "true")
    assert int(links) > 50
