"""What the documents say is executed: blocks of Markdown pages, examples of docstrings.

A block below a line ``<!-- not run: reason -->`` is left out, one below ``<!-- run with: library -->``
where that cannot be imported; a page with ``<!-- needs: library -->`` is skipped then. Commands that
are not run are parsed.
"""

from __future__ import annotations

import doctest
import importlib
import inspect
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import patch

import click
import pytest

from daskcluster.cli.main import main
from tests.benchmarks.__main__ import main as benchmarks
from tests.faults.processes import Command

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(
    r"^(?:<!-- (not run|run with): ([^\n]+) -->\n)?```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
NEEDED = re.compile(r"^<!-- needs: (\w+) -->$", re.MULTILINE)
PATIENCE = 240.0
LINK = re.compile(r"\]\((?!https?://|#)([^)#\s]+)(?:#[^)]*)?\)")
MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in sorted((ROOT / "daskcluster").rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
]


BENCHMARKS = "python -m tests.benchmarks "


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    line: int


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(match[3], match[4], text.count("\n", 0, match.start(4)))
        for match in FENCE.finditer(text)
        if match[3] in {"python", "console"} and is_run(match[1], match[2])
    ]


def is_run(rule: str | None, said: str | None) -> bool:
    """Return whether the comment above a block, if there is one, lets it run here."""
    return rule is None or (rule == "run with" and find_spec(str(said)) is not None)


def commands_of(page: Path) -> list[str]:
    """Return the commands of all blocks of a page, the package's and those of benchmarks."""
    lines = [
        line.removeprefix("$ ")
        for match in FENCE.finditer(page.read_text(encoding="utf-8"))
        if match[3] != "python"
        for line in match[4].replace("\\\n", " ").splitlines()
    ]
    return [line for line in lines if line.startswith(("daskcluster ", BENCHMARKS))]


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(
            page,
            id=str(page.relative_to(ROOT)),
            marks=() if page.name in {"README.md", "tutorial.md"} else pytest.mark.pages,
        )
        for page in PAGES
        if blocks_of(page)
    ],
)
def test_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    space: dict[str, Any] = {"__name__": "__main__"}
    for library in NEEDED.findall(page.read_text(encoding="utf-8")):
        pytest.importorskip(library, reason=f"{library} is not installed")
    with patch.dict(os.environ):  # what a page sets, its commands see
        for block in blocks_of(page):
            if block.language == "python":
                # Padding, so that a traceback names the line of the page.
                exec(compile("\n" * block.line + block.text, str(page), "exec"), space)
            else:
                run_forked(block, page, tmp_path)
    if "s3fs" in sys.modules:  # which keeps clients by their parameters, not by the environment
        sys.modules["s3fs"].S3FileSystem.clear_instance_cache()


def script_of(page: Path) -> str:
    """Return the Python blocks of a page, joined."""
    return "\n\n".join(block.text for block in blocks_of(page) if block.language == "python")


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(
            page,
            id=str(page.relative_to(ROOT)),
            marks=() if page.name == "README.md" else pytest.mark.slow,
        )
        for page in PAGES
        if "LocalCluster(" in script_of(page)
    ],
)
def test_joined_blocks_are_a_script(page: Path, tmp_path: Path) -> None:
    # Processes of a cluster import the script anew: what it does must be behind its guard.
    (tmp_path / "script.py").write_text(script_of(page), encoding="utf-8")
    command = [sys.executable, "script.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, f"{page}\n{done.stdout}{done.stderr}"
    assert "Traceback" not in done.stderr, f"{page}\n{done.stderr}"


def typed(block: Block, page: Path) -> Iterator[tuple[str, str]]:
    """Yield what is typed in a block, line by line, each with where it stands."""
    for offset, line in enumerate(block.text.splitlines(), 1):
        if line.startswith("$ "):
            yield line[2:], f"{page}:{block.line + offset}: {line}"


def run_console(block: Block, page: Path, environment: dict[str, str]) -> None:
    """Let a shell run what is typed in a block."""
    for line, where in typed(block, page):
        done = subprocess.run(line, shell=True, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{where}\n{done.stdout}{done.stderr}"


def run_forked(block: Block, page: Path, folder: Path) -> None:
    """Run what is typed in a block, commands of this project alone, in processes that import nothing anew.

    `folder` takes their output. They have the environment of this process, as of now.
    """
    for line, where in typed(block, page):
        program, *arguments = shlex.split(line, comments=True)
        if line.startswith(BENCHMARKS):  # of a checkout; they import what tests do not
            command = [sys.executable, *arguments]
            path = {**os.environ, "PYTHONPATH": str(ROOT)}
            done = subprocess.run(command, env=path, capture_output=True, text=True)
            assert done.returncode == 0, f"{where}\n{done.stdout}{done.stderr}"
            continue
        assert program == "daskcluster", f"{where}\nis no command of this project"
        assert not set(arguments) & {"|", ">", "<", "&", "&&", ";"}, f"{where}\nneeds a shell"
        command = Command(arguments, folder, "command", os.environ)
        code, _ = command.end(PATIENCE)
        assert code == 0, f"{where}\n{command.stdout}{command.stderr}"


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, id=str(page.relative_to(ROOT))) for page in PAGES if commands_of(page)],
)
def test_commands_are_understood(page: Path) -> None:
    for line in commands_of(page):
        is_benchmark = line.startswith(BENCHMARKS)
        name, *given = shlex.split(line, comments=True)[3 if is_benchmark else 1 :]
        group = benchmarks if is_benchmark else main
        command = group.get_command(click.Context(group), name)
        assert command is not None, line
        try:
            with command.make_context(name, given) as context:
                assert not context.args or isinstance(command, click.Group), line
        except click.exceptions.Exit:  # --help and --version
            continue
        except click.UsageError as error:
            pytest.fail(f"{page}: {line}: {error.format_message()}")


def test_links_have_targets() -> None:
    for page in PAGES:
        targets = LINK.findall(page.read_text(encoding="utf-8"))
        assert [target for target in targets if not (page.parent / target).exists()] == [], page


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_docstrings(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert found.failed == 0


ENTRY = re.compile(r"(\*{0,2}\w+(?:, \*{0,2}\w+)*) : (.*)")


def public_functions() -> Iterator[tuple[str, Any]]:
    """Yield the public functions, classes and methods, each with its name."""
    for module in (
        "daskcluster",
        *(f"daskcluster.{name}" for name in ("jobs", "metrics", "extending")),
    ):
        found = importlib.import_module(module)
        for name in found.__all__:
            value = getattr(found, name)
            if not callable(value):
                continue
            yield f"{module}.{name}", value
            if inspect.isclass(value):
                members = {key: getattr(value, key) for key in vars(value) if key[0] != "_"}
                yield from (
                    (f"{module}.{name}.{key}", member)
                    for key, member in members.items()
                    if inspect.isfunction(member) or inspect.ismethod(member)
                )


def test_docstrings_state_the_defaults_of_parameters() -> None:
    silent = []
    for name, function in public_functions():
        defaults = {
            key
            for key, each in inspect.signature(function).parameters.items()
            if each.default not in (each.empty, None)
        }
        section = (inspect.getdoc(function) or "").partition("Parameters\n----------\n")[2]
        for line in section.partition("\n\n")[0].splitlines():
            entry = ENTRY.fullmatch(line)
            if entry and defaults.issuperset(entry[1].split(", ")) and "default" not in entry[2]:
                silent.append(f"{name}: {line}")
    assert silent == []
