"""What is installed next to us: declared, bounded from below, from an index, and going together."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
REQUIRED = [Requirement(line) for line in PROJECT["dependencies"]]
EXTRAS = {
    name: [Requirement(line) for line in lines]
    for name, lines in PROJECT["optional-dependencies"].items()
}
ALL = [*REQUIRED, *(each for lines in EXTRAS.values() for each in lines)]
# What an import is called and what is installed, where the two differ.
DISTRIBUTIONS = {
    "sklearn": "scikit-learn", "sklearnex": "scikit-learn-intelex", "faiss": "faiss-cpu",
    "lance": "pylance", "dask_ml": "dask-ml", "PIL": "pillow", "yaml": "pyyaml",
}  # fmt: skip
# Come with what we declare, and are only used together with it.
BROUGHT_ALONG = {"jupyter_client", "msgpack", "packaging"}


def test_every_requirement_has_a_floor_and_comes_from_an_index() -> None:
    for requirement in ALL:
        assert requirement.url is None, "an address pins nothing that an index could warn of"
        operators = {bound.operator for bound in requirement.specifier}
        assert operators & {">=", "==", "~="}, f"{requirement} takes any release, however old"


def test_libraries_whose_internals_are_used_have_an_upper_bound() -> None:
    capped = {each.name for each in REQUIRED if "<" in {bound.operator for bound in each.specifier}}
    assert capped >= {"dask", "distributed", "llvmlite", "numba", "zarr"}


@pytest.fixture(scope="module")
def stage() -> ModuleType:
    """Return the program of `.ci/run pythons`."""
    spec = importlib.util.spec_from_file_location("ci_pythons", ROOT / ".ci" / "pythons.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for it
    spec.loader.exec_module(module)
    return module


def test_the_oldest_releases_that_are_tried_are_the_floors(stage: ModuleType) -> None:
    oldest = [Requirement(line) for line in stage.trials()[0].constraints]
    floors = {(each.name, str(bound)) for each in oldest for bound in each.specifier}
    for wanted in REQUIRED:
        (floor,) = (bound for bound in wanted.specifier if bound.operator == ">=")
        assert (wanted.name, f"=={floor.version}") in floors


def test_every_declared_python_is_tried(stage: ModuleType) -> None:
    oldest, *newest = [each.name for each in stage.trials()]
    assert oldest == f"{newest[0]}-oldest"
    assert PROJECT["requires-python"] == f">={newest[0]}"
    assert [f"Programming Language :: Python :: {name}" for name in newest] == [
        line for line in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", line)
    ]
    assert all((ROOT / test).exists() for test in stage.CUT)


def imported_by(folder: Path) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0]: path for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found[node.module.split(".")[0]] = path
    return found


@pytest.mark.parametrize("folder", ["daskcluster", "tests"])
def test_every_import_is_declared(folder: str) -> None:
    declared = {canonicalize_name(each.name) for each in ALL}
    ours = {"daskcluster", "tests"} | set(sys.stdlib_module_names) | BROUGHT_ALONG
    missing = {
        name: str(path.relative_to(ROOT))
        for name, path in imported_by(ROOT / folder).items()
        if name not in ours and canonicalize_name(DISTRIBUTIONS.get(name, name)) not in declared
    }
    assert missing == {}


def test_installed_libraries_meet_each_others_requirements() -> None:
    """Every installed library that we lead to, at any distance, has what it asks for."""
    waiting, seen, wrong = list(REQUIRED), set(), []
    while waiting:
        wanted = waiting.pop()
        name = canonicalize_name(wanted.name)
        if (name, frozenset(wanted.extras)) in seen or not applies(wanted):
            continue
        seen.add((name, frozenset(wanted.extras)))
        try:
            found = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            wrong.append(f"{wanted} is not installed")
            continue
        if not wanted.specifier.contains(found.version, prereleases=True):
            wrong.append(f"{wanted} is wanted, {found.version} is installed")
        waiting += [
            Requirement(line)
            for line in found.requires or []
            if applies(Requirement(line), wanted.extras)
        ]
    assert wrong == []
    assert len(seen) > 20


def applies(requirement: Requirement, extras: set[str] | frozenset[str] = frozenset()) -> bool:
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras))


def test_no_file_names_a_private_index() -> None:
    """Where packages come from is for the machine to say."""
    pattern = re.compile(r"--(extra-)?index-url|find-links|trusted-host|git\+https?:")
    files = [ROOT / "pyproject.toml", ROOT / "README.md", ROOT / ".ci" / "run"]
    assert [str(file) for file in files if pattern.search(file.read_text(encoding="utf-8"))] == []
