"""How large the package is, and how finely it is cut: ``python -m tests.measures [--write]``.

It prints each figure, its change since ``tests/measures.json`` and its aim; ``--write`` records
today's. Lines are those of code: no blank ones, comments or docstrings.
"""

from __future__ import annotations

import ast
import io
import json
import re
import statistics
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RECORD = Path(__file__).with_suffix(".json")
SMALL, LARGE = 60, 500
AIMS = {
    "lines of code": "<= 42,000",
    "modules": "<= 270",
    "functions": "<= 3,600",
    "private functions used once": "<= 650",
    "per mille of lines that are signatures or imports": "<= 240",
    "comments for the formatter": "<= 95",
    "statements of tests": "<= 32,000",
    "words of docs": "<= 60,000",
}

_SILENT = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENCODING, tokenize.ENDMARKER,
}  # fmt: skip
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DOCUMENTED = (ast.Module, ast.ClassDef, *_FUNCTIONS)


def code_lines(source: str) -> set[int]:
    """Return the numbers of the lines that have code.

    Examples
    --------
    >>> sorted(code_lines('''"Text."\\n\\n# why\\nx = 1  # one\\ny = (\\n    2\\n)\\n'''))
    [4, 5, 6, 7]
    """
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _SILENT:
            found.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        for text in _texts(node):
            found.difference_update(range(text.lineno, (text.end_lineno or text.lineno) + 1))
    return found


def _texts(node: ast.AST) -> Iterator[ast.Expr]:
    """Yield the strings that stand alone in a body: docstrings, of attributes too."""
    if isinstance(node, _DOCUMENTED):
        for each in node.body:
            if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant):
                yield each


def count_statements(paths: Iterator[Path]) -> int:
    """Return the number of statements of some files."""
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in paths)
    return sum(isinstance(node, ast.stmt) for tree in trees for node in ast.walk(tree))


def measures(root: Path = ROOT) -> dict[str, int]:
    """Return the figures of a checkout by name."""
    sizes, nodes, functions, short, once, heads, comments = [], 0, 0, 0, 0, 0, 0
    for path in sorted((root / "daskcluster").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        lines, names = code_lines(text), re.findall(r"\b_[a-z]\w+\b", text)
        sizes.append(len(lines))
        comments += len(re.findall(r"# fmt: *(?:skip|off)", text))
        for node in ast.walk(ast.parse(text)):
            nodes += 1
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                heads += (node.end_lineno or node.lineno) - node.lineno + 1
            if isinstance(node, _FUNCTIONS):
                body = node.body[0].lineno
                functions += 1
                heads += len(lines.intersection(range(node.lineno, body)))
                short += len(lines.intersection(range(body, (node.end_lineno or body) + 1))) <= 2
                once += node.name[0] == "_" != node.name[1] and names.count(node.name) <= 2
    tests = (path for path in (root / "tests").rglob("*.py") if "benchmarks" not in path.parts)
    pages = [path.read_text(encoding="utf-8") for path in (root / "docs").rglob("*.md")]
    return {
        "lines of code": sum(sizes),
        "modules": len(sizes),
        "lines of the median module": int(statistics.median(sizes)),
        f"modules of less than {SMALL} lines": sum(size < SMALL for size in sizes),
        f"modules of more than {LARGE} lines": sum(size > LARGE for size in sizes),
        "functions": functions,
        "functions with a body of two lines at most": short,
        "private functions used once": once,
        "per mille of lines that are signatures or imports": 1000 * heads // sum(sizes),
        "nodes of the syntax tree": nodes,
        "comments for the formatter": comments,
        "statements of tests": count_statements(tests),
        "words of docs": sum(len(page.split()) for page in pages),
    }


def main() -> None:
    """Print the table, or record it."""
    found = measures()
    if sys.argv[1:] == ["--write"]:
        RECORD.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    recorded = json.loads(RECORD.read_text(encoding="utf-8"))
    for name, figure in found.items():
        change = f"{figure - recorded.get(name, 0):+,}" if figure != recorded.get(name) else ""
        sys.stdout.write(
            f"{name:<50} {figure:>8,} {change:>8}  {AIMS.get(name, '')}".rstrip() + "\n"
        )


if __name__ == "__main__":
    main()
