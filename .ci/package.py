"""Check what an sdist and a wheel hold: all that runs, and nothing that does not belong there."""

from __future__ import annotations

import sys
import tarfile
import zipfile
from pathlib import Path

NEEDED = {
    ".whl": [
        "daskcluster/py.typed",
        "daskcluster/templates/",
        "daskcluster/dashboard.py",
        ".dist-info/licenses/LICENSE",
        ".dist-info/entry_points.txt",
    ],
    ".gz": [
        "daskcluster/py.typed",
        "tests/",
        "docs/index.md",
        "README.md",
        "CHANGELOG.md",
        "LICENSE",
        "pyproject.toml",
    ],
}
FOREIGN = {
    ".whl": ["tests/", "docs/", "notebooks/", "__pycache__"],
    ".gz": ["__pycache__", ".venv/"],
}


def names_of(path: Path) -> list[str]:
    """Return the names of all files of an archive."""
    if path.suffix == ".whl":
        return zipfile.ZipFile(path).namelist()
    with tarfile.open(path) as archive:
        return archive.getnames()


def main(paths: list[str]) -> int:
    """Print what is wrong with the archives; return 1 if anything is."""
    problems = []
    kinds = {Path(path).suffix for path in paths}
    if kinds != set(NEEDED):
        problems.append(f"a wheel and an sdist are needed, found {paths}")
    for path in map(Path, paths):
        names = names_of(path)
        problems += [
            f"{path.name} lacks {part}"
            for part in NEEDED.get(path.suffix, [])
            if not any(part in name for name in names)
        ]
        problems += [
            f"{path.name} holds {name}"
            for part in FOREIGN.get(path.suffix, [])
            for name in [name for name in names if part in name][:1]
        ]
        size = path.stat().st_size / 1e6
        sys.stdout.write(f"{path.name}: {len(names)} files, {size:.1f} MB\n")
    sys.stdout.writelines(f"{problem}\n" for problem in problems)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
