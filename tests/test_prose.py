"""House style: retired words stay out, and paragraphs of Markdown are one line each."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SUFFIXES = {".py", ".md", ".ipynb", ".html", ".yaml", ".yml", ".toml", ".sh", ".txt"}

# Words that once had a private meaning here, and the field's word for it. Identifiers count as well:
# `_` separates words.
RETIRED = {
    "errands?|cargo": "task, payload",
    "crews?|muster": "worker registry",
    "in ?hand": "inline executor",
    "shel(f|ves)|holdings": "resident cache",
    "strays|orphans|suspects": "misplaced, lost, quarantined",
    "witness(es)?|excused": "change guard, allowed",
    "patiently": "retry",
    "adopted": "zero-copy read",
    "leftovers?": "stale temporaries",
    "cohorts?": "nested batch",
    "survey(s|ed|ing)?": "data statistics",
    "judg(e|es|ed|ing|ment)": "evaluate",
    "scout(s|ed|ing)?": "probe",
    "tally|tallies": "counters",
    "pulse": "health check",
    "shun(s|ned)?": "repel",
    "screened|screening": "filter",
    "revis(e|es|ed|ing)": "reassign",
    "begun": "resumed, started",
    "told": "a noun or a plain verb",
    "beside|aside": "next to, as well as, extra",
    "goes on|gone on|going on": "resumes, continues",
    "to be had|whence|whither": "plain words",
}
# Names that files of an earlier state have.
STORED = {
    "daskcluster/chunkwise/data_statistics.py": {"survey"},
    "daskcluster/estimators/checkpoints.py": {"survey"},
    "daskcluster/methods/coreset/algorithm.py": {"survey"},
    "daskcluster/storage/lease.py": {"begun"},
    "tests/models/test_saved_before.py": {"told"},
}
WORDS = re.compile(rf"(?<![A-Za-z])(?:{'|'.join(RETIRED)})(?![A-Za-z])", re.IGNORECASE)
"""Without a letter on either side: `_` is none."""


def prose_files() -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.split("\n")
    own = Path(__file__).relative_to(ROOT).as_posix()
    return [
        name
        for name in listed
        if Path(name).suffix in SUFFIXES and name != own and (ROOT / name).is_file()
    ]


def text_of(name: str) -> str:
    """Return a file's text; of a notebook, its sources without outputs."""
    text = (ROOT / name).read_text(encoding="utf-8")
    if not name.endswith(".ipynb"):
        return text
    return "\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"])


def hits(text: str) -> Iterator[str]:
    """Yield each retired word with its line and its replacement."""
    for number, line in enumerate(text.split("\n"), 1):
        for match in WORDS.finditer(line.replace("_", " ")):
            word = match[0].lower()
            better = next(new for old, new in RETIRED.items() if re.fullmatch(old, word))
            yield f"{number}: {match[0]!r}: {better}"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a cohort of rows", ["1: 'cohort': nested batch"]),
        ("x = 1\nself._survey_rows()", ["2: 'survey': data statistics"]),
        ("surveyor, toldstoy, orphanage", []),
    ],
)
def test_a_retired_word_is_found(text: str, found: list[str]) -> None:
    assert list(hits(text)) == found


def test_retired_words_stay_out() -> None:
    found = [
        f"{name}:{hit}"
        for name in prose_files()
        for hit in hits(text_of(name))
        if hit.split("'")[1] not in STORED.get(name, ())
    ]
    assert not found, "retired words; say it in the field's:\n" + "\n".join(found)


FRAGMENT = re.compile(r'^ *(?:r?""")?(?:Of|As of|Hear)\b.*', re.MULTILINE)


def test_docstrings_and_their_entries_are_no_fragments() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {match[0].strip()}"
        for path in sorted((ROOT / "daskcluster").rglob("*.py"))
        for match in FRAGMENT.finditer(path.read_text(encoding="utf-8"))
    ]
    assert not found, "begin with what it is:\n" + "\n".join(found)


def hard_wrapped(text: str) -> Iterator[int]:
    """Yield the numbers of lines that continue a paragraph or a list item of the line before."""
    fenced, formula, before = False, False, ""
    for number, line in enumerate(text.split("\n"), 1):
        if line.lstrip().startswith(("```", "~~~")):
            fenced, before = not fenced, ""
            continue
        if not fenced and (formula or line.lstrip().startswith("$$")):
            formula, before = formula != (line.count("$$") % 2 == 1), ""
            continue
        plain = line.strip()
        starts = re.match(r"([-*+|>#<!{]|\d+[.)] |={3}|:)", plain) is not None
        if not fenced and plain and before and not starts:
            yield number
        # What may be continued: a paragraph, or a list item; not a table, a heading, HTML or a quote.
        before = "" if fenced or re.match(r"[|#<!{>]", plain) else plain


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("One line.\n\nAnother.", []),
        ("One line\nof two.", [2]),
        ("- an item\n  of two lines\n- another", [2]),
        ("```\na\nb\n```\n| a |\n| b |", []),
    ],
)
def test_a_hard_wrap_is_found(text: str, found: list[int]) -> None:
    assert list(hard_wrapped(text)) == found


def test_paragraphs_are_one_line() -> None:
    pages = [name for name in prose_files() if name.endswith(".md")]
    found = [f"{name}:{line}" for name in pages for line in hard_wrapped(text_of(name))]
    assert not found, "hard line breaks within paragraphs:\n" + "\n".join(found)
