"""Generate the chart's README from the comments in values.yaml: one line per value.

python deploy/helm/document.py            write deploy/helm/daskcluster/README.md
python deploy/helm/document.py --check    fail if it is out of date
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

CHART = Path(__file__).parent / "daskcluster"
_LINE = re.compile(r"^(?P<indent> *)(?P<key>[A-Za-z][A-Za-z0-9]*):(?: (?P<value>.*))?$")

HEAD = (CHART.parent / "README.head.md").read_text(encoding="utf-8")
"""The part of the README before the table."""


def described(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield the dotted name, default and comment of every value.

    Raises
    ------
    ValueError
        A value has no comment.
    """
    path: list[tuple[int, str]] = []
    comment: list[str] = []
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("#"):
            comment.append(stripped.lstrip("# "))
            continue
        match = _LINE.match(line)
        if match is None:
            comment = []
            continue
        depth = len(match["indent"])
        path = [(d, key) for d, key in path if d < depth] + [(depth, match["key"])]
        name = ".".join(key for _, key in path)
        inside_resources = ".resources." in name
        if comment:
            default = match["value"] or ("see values.yaml" if match["key"] == "resources" else "")
            yield name, default, " ".join(comment)
        elif match["value"] and not inside_resources:
            raise ValueError(f"{name} has no comment; add one above it that says what it is for.")
        comment = []


def readme() -> str:
    """Return the chart's README."""
    text = (CHART / "values.yaml").read_text(encoding="utf-8")
    rows = [
        f"| `{name}` | {f'`{default}`' if default else ''} | {comment.replace('|', '/')} |"
        for name, default, comment in described(text)
    ]
    return HEAD + "\n".join(rows) + "\n"


def main() -> int:
    target = CHART / "README.md"
    if "--check" not in sys.argv[1:]:
        target.write_text(readme(), encoding="utf-8")
        return 0
    if target.read_text(encoding="utf-8") == readme():
        return 0
    sys.stderr.write(f"{target} is out of date; run {sys.argv[0]}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
