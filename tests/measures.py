"""``python -m tests.measures``: how large the package is, and how much of it is hard to enter.

Lines are those of code: no blank ones, comments or docstrings. Lines of LLVM are those of functions that
are given an IR builder. A kernel is a function without annotations in a folder ``kernels``: numba's.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "daskcluster"
MOST_ARGUMENTS = 10
AIMS = {
    "lines of code": "36,000",
    "modules": "380",
    "lines of LLVM": "1,500",
    "kernels with more than ten arguments": "0",
    "places that pass unit=": "-",
    "files that pass unit=": "10",
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


def llvm_lines(source: str) -> set[int]:
    """Return the numbers of the lines of functions that are given an IR builder."""
    found: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, _FUNCTIONS) and "builder" in _parameters(node):
            found.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return found & code_lines(source)


def wide_kernels(source: str) -> list[str]:
    """Return the names of compiled functions with too many arguments: those without annotations."""
    return [
        node.name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, _FUNCTIONS)
        and len(_parameters(node)) > MOST_ARGUMENTS
        and all(each.annotation is None for each in node.args.args)
    ]


def _parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    given = node.args
    return [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]


def measures(paths: Iterable[Path]) -> dict[str, int]:
    """Return the figures by name."""
    sources = {path: path.read_text(encoding="utf-8") for path in paths}
    kernels = [text for path, text in sources.items() if "kernels" in path.parent.parts]
    unit = [len(re.findall(r"\bunit=", text)) for text in sources.values()]
    return {
        "lines of code": sum(len(code_lines(text)) for text in sources.values()),
        "modules": len(sources),
        "lines of LLVM": sum(len(llvm_lines(text)) for text in kernels),
        "kernels with more than ten arguments": sum(len(wide_kernels(text)) for text in kernels),
        "places that pass unit=": sum(unit),
        "files that pass unit=": sum(map(bool, unit)),
    }


def main() -> None:
    """Print the table."""
    for name, figure in measures(sorted(PACKAGE.rglob("*.py"))).items():
        sys.stdout.write(f"{name:<40} {figure:>7,}   aim {AIMS[name]}\n")


if __name__ == "__main__":
    main()
