"""``python -m tests.mutants``: how many faults put into the package its tests notice.

A seed chooses functions of the package by their qualified names, and in each one mutation: another
operator, a number off by one, a branch never taken, two arguments swapped. Each mutant runs the tests of
its folder and the laws, in a worktree and an environment of their own, up to the first failure or the
limit. A mutant that no test fails on survives; one that runs out of time counts as out of time.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import hashlib
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("chunkwise", "engine", "data", "storage", "methods", "estimators", "jobs")
OTHERS = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.LShift: ast.RShift,
    ast.RShift: ast.LShift, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn,
    ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


@dataclass(frozen=True)
class Mutant:
    """One expression of one function, and what takes its place."""

    path: str
    function: str
    node: ast.expr
    instead: str

    def __str__(self) -> str:
        return (
            f"{self.path}:{self.node.lineno} {self.function}: "
            f"{ast.unparse(self.node)}  ->  {self.instead}"
        )

    def source(self, source: bytes) -> bytes:
        """Return the module with the mutation in it; columns of ``ast`` count bytes."""
        lines = source.splitlines(keepends=True)
        start = sum(map(len, lines[: self.node.lineno - 1])) + self.node.col_offset
        assert self.node.end_lineno is not None
        assert self.node.end_col_offset is not None
        end = sum(map(len, lines[: self.node.end_lineno - 1])) + self.node.end_col_offset
        return source[:start] + f"({self.instead})".encode() + source[end:]

    def tests(self, tree: Path) -> list[str]:
        """Return the tests to run: the file of the module's name, its folder, the laws."""
        folders = [Path("tests", *Path(self.path).parent.parts[1:])]
        while not (tree / folders[0]).is_dir():
            folders[0] = folders[0].parent
        named = sorted((tree / folders[0]).rglob(f"test_{Path(self.path).stem}.py"))
        if len(folders[0].parts) > 3:  # a folder of a method: the rest of its method after it
            folders.append(Path(*folders[0].parts[:3]))
        return [*(str(path.relative_to(tree)) for path in named), *map(str, folders), "tests/laws"]


def functions(tree: ast.AST, scope: str = "") -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            name = f"{scope}.{node.name}".lstrip(".")
            if isinstance(node, ast.FunctionDef):
                yield name, node
            yield from functions(node, name)


def mutations(node: ast.AST) -> Iterator[tuple[ast.expr, str]]:
    """Yield the expressions below a node that can be mutated; errors and their texts are left alone."""
    if isinstance(node, (ast.Raise, ast.JoinedStr, ast.AnnAssign)):
        return
    if isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in OTHERS:
        yield node, _changed(node, "op", OTHERS[type(node.op)]())
    elif isinstance(node, ast.Compare):
        others = [OTHERS[type(node.ops[0])](), *node.ops[1:]]
        yield node, _changed(node, "ops", others)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node, ast.unparse(node.operand)
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        yield node, str(node.value + 1)
    elif isinstance(node, ast.If):
        yield node.test, "False"
    elif isinstance(node, ast.Call) and len(node.args) > 1:
        first, second, *rest = node.args
        is_builtin = isinstance(node.func, ast.Name) and hasattr(builtins, node.func.id)
        if not is_builtin and not any(isinstance(each, ast.Starred) for each in (first, second)):
            yield node, _changed(node, "args", [second, first, *rest])
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, DEFINITIONS):
            yield from mutations(child)


def _changed(node: ast.expr, field: str, value: object) -> str:
    fields = {name: getattr(node, name) for name in node._fields}
    return ast.unparse(type(node)(**{**fields, field: value}))


def sampled(tree: Path, sample: int, seed: int) -> list[Mutant]:
    """Return the mutants of a seed: those of functions that did not move stay when others do."""

    def number(name: str) -> int:
        return int(hashlib.sha256(f"{seed}:{name}".encode()).hexdigest(), 16)

    found = []
    for path in sorted((tree / "daskcluster").rglob("*.py")):
        if path.relative_to(tree).parts[1] not in ROOMS:
            continue
        name = str(path.relative_to(tree))
        for function, node in functions(ast.parse(path.read_bytes())):
            sites = [site for statement in node.body for site in mutations(statement)]
            if sites:
                key = f"{name}:{function}"
                where, instead = sites[number(f"{key}:site") % len(sites)]
                found.append((number(key), Mutant(name, function, where, instead)))
    return [mutant for _, mutant in sorted(found, key=lambda pair: pair[0])[:sample]]


def run_tests(
    tree: Path, arguments: list[str], limit: float | None = None
) -> tuple[int | None, str]:
    """Run pytest in a tree and its environment; None for a run that the limit ended."""
    command = [f"{tree}/.venv/bin/python", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += arguments
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tree.parent / "kernels")}
    environment.pop("PYTHONPATH", None)
    with subprocess.Popen(
        command, cwd=tree, env=environment, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as process:  # fmt: skip
        try:
            output, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return None, process.communicate()[0]
    return process.returncode, output


def worktree(revision: str, place: Path) -> Path:
    git = ["git", "-C", str(ROOT)]
    subprocess.run([*git, "worktree", "add", "-q", "--detach", str(place), revision], check=True)
    venv.create(place / ".venv", with_pip=True)
    install = [f"{place}/.venv/bin/python", "-m", "pip", "install", "-q", "-e", ".[test]"]
    subprocess.run(install, cwd=place, check=True)
    return place


def evaluated(mutant: Mutant, tree: Path, failing: list[str], limit: float) -> str:
    """Return the line of the table: what became of the mutant, after how long, by which test."""
    path = tree / mutant.path
    source = path.read_bytes()
    start = time.monotonic()
    try:
        path.write_bytes(mutant.source(source))
        skipped = [f"--deselect={test}" for test in failing]
        code, output = run_tests(tree, [*mutant.tests(tree), "-x", *skipped], limit)
    finally:
        path.write_bytes(source)
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)
    became = {None: "out of time", 0: "SURVIVED"}.get(code, "killed")
    by = f"\n    by {failed[1]}" if failed else ""
    return f"{became:12}{time.monotonic() - start:4.0f} s  {mutant}{by}"


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--sample", type=int, default=40, help="mutants (default: 40)")
    parser.add_argument("--seed", type=int, default=0, help="of the choice (default: 0)")
    parser.add_argument("--revision", default="HEAD", help="package and tests (default: HEAD)")
    parser.add_argument("--limit", type=float, default=180, help="seconds a mutant (default: 180)")
    parser.add_argument("--jobs", type=int, default=2, help="mutants at once (default: 2)")
    parser.add_argument(
        "--list", action="store_true", help="list the mutants of this checkout only"
    )
    options = parser.parse_args(arguments)
    if options.list:
        _say("\n".join(map(str, sampled(ROOT, options.sample, options.seed))))
        return
    with tempfile.TemporaryDirectory() as folder:
        places = [Path(folder, f"tree{number}") for number in range(options.jobs)]
        free: SimpleQueue[Path] = SimpleQueue()
        try:
            for place in places:
                free.put(worktree(options.revision, place))
            tree = places[0]
            mutants = sampled(tree, options.sample, options.seed)
            # Tests that fail without a mutant show nothing; this run compiles the kernels, too.
            tests = sorted({test for mutant in mutants for test in mutant.tests(tree)})
            _, output = run_tests(tree, [*tests, "-n", str(options.jobs), "--dist", "worksteal"])
            failing = re.findall(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)
            _say(f"without a mutant: {shlex.join(failing) or 'no test fails'}")

            def evaluate(mutant: Mutant) -> str:
                place = free.get()
                try:
                    line = evaluated(mutant, place, failing, options.limit)
                finally:
                    free.put(place)
                _say(line)
                return line

            with ThreadPoolExecutor(options.jobs) as pool:
                lines = list(pool.map(evaluate, mutants))
            killed = sum(line.startswith("killed") for line in lines)
            _say(f"{killed} of {len(lines)} mutants were killed: {killed / len(lines):.0%}")
        finally:
            for place in places:
                remove = ["git", "-C", str(ROOT), "worktree", "remove", "--force", str(place)]
                subprocess.run(remove, check=False)


if __name__ == "__main__":
    main(sys.argv[1:])
