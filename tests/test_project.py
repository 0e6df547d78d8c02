"""The rules of the house: what imports what, what importing costs, what the package declares."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest

import daskcluster

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "daskcluster"
MODULES = sorted(PACKAGE.rglob("*.py"))
HEAVY = {"dask", "distributed", "sklearn", "numba", "zarr", "scipy", "matplotlib", "pandas"}
# What an import is called and what is installed, where the two differ.
DISTRIBUTIONS = {
    "sklearn": "scikit-learn",
    "faiss": "faiss-cpu",
    "lance": "pylance",
    "prometheus_client": "prometheus-client",
}
WITH_DISTRIBUTED = (
    "data.dask_array", "engine.dask", "engine.cache", "engine.compat", "engine.connect",
    "engine.pass_run", "engine.tls", "jobs", "dashboard", "cli",
)  # fmt: skip
# In methods only what users call, or what fits estimators: no algorithm, chunkwise function or kernel.
WITH_SKLEARN = (
    "estimators", "methods.from_sklearn", "methods.*.estimator", "methods.*.base",
    "methods.coreset.kmeans", "methods.kernel_kmeans.graph",
    "methods.streaming.fold",
)  # fmt: skip
WITH_SEEDING = (
    "seeding", "methods.kmeans.estimator", "methods.kmeans.fit", "methods.kmeans.initial",
    "methods.coreset.start", "methods.kernel_kmeans.minibatch.estimator", "methods.duplicates.search",
    "methods.partition.partitioning",
)  # fmt: skip
EXTRAS_ONLY = {
    "adlfs",
    "anndata",
    "deltalake",
    "faiss",
    "gcsfs",
    "h5py",
    "lance",
    "matplotlib",
    "pandas",
    "prometheus_client",
    "pyarrow",
    "pyiceberg",
    "rioxarray",
    "s3fs",
    "xarray",
}


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def runtime_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes but those that only a type checker sees."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        yield child
        yield from runtime_nodes(child)


@cache
def imports_of(path: Path) -> tuple[str, ...]:
    """Return the dotted name of everything a module imports, wherever in it."""
    found: list[str] = []
    for node in runtime_nodes(tree_of(path)):
        if isinstance(node, ast.Import):
            found += (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found += (f"{node.module}.{alias.name}" for alias in node.names)
    return tuple(found)


def room_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def test_every_folder_has_its_layer() -> None:
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())
    lines = table["tool"]["importlinter"]["contracts"][0]["layers"]
    known = {room.strip(" ()") for line in lines for room in re.split(r"[|:]", line)}
    rooms = {room_of(name_of(path)) for path in MODULES} - {""}
    assert rooms <= known, f"not in the layers of pyproject.toml: {sorted(rooms - known)}"


def offenders(forbidden: str, allowed: tuple[str, ...]) -> list[str]:
    """Return the modules that import `forbidden` though they are in none of `allowed`."""
    return [
        f"{name_of(path)} imports {target}"
        for path in MODULES
        for target in imports_of(path)
        if f"{target}.".startswith(f"{forbidden}.")
        and not any(fnmatch(f"{name_of(path)}.", f"daskcluster.{room}.*") for room in allowed)
    ]


@pytest.mark.parametrize(
    ("forbidden", "allowed"),
    [
        ("distributed", WITH_DISTRIBUTED),
        ("dask.distributed", WITH_DISTRIBUTED),
        ("sklearn", WITH_SKLEARN),
        ("daskcluster.seeding", WITH_SEEDING),
        ("click", ("cli",)),
        ("matplotlib", ("reports",)),
        ("numba", ("kernels", "methods.*.kernels")),
        # Which processor this one is, is asked where kernels are shipped, too.
        ("llvmlite", ("kernels", "methods.*.kernels", "cli.warm_up")),
        ("zarr", ("data", "storage", "engine.operations")),
        ("fsspec", ("storage",)),
    ],
)
def test_libraries_are_imported_in_few_folders(forbidden: str, allowed: tuple[str, ...]) -> None:
    assert offenders(forbidden, allowed) == []


NAMES_OF_FILES = (
    r"""\.filesystem\(\)|os\.(walk|listdir|scandir)\(|["'](zarr\.json|\.zarray|\.zgroup)"""
)


def test_only_storage_knows_files() -> None:
    found = [
        f"{name_of(path)}: {match.group()}"
        for path in MODULES
        if room_of(name_of(path)) != "storage"
        for match in re.finditer(NAMES_OF_FILES, path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_nothing_private_of_other_libraries() -> None:
    for path in MODULES:
        for target in imports_of(path):
            parts = target.split(".")
            private = [part for part in parts if part.startswith("_") and not part.endswith("__")]
            ours = parts[0] == "daskcluster" or target in sys.stdlib_module_names
            assert ours or not private, f"{path} imports {target}"


# What a product of matrices may come to: elsewhere it is rounded as the machine's BLAS or compiler likes.
PRODUCTS = {
    "daskcluster.methods.kernel_kmeans.graph": "of a matrix of ones, which adds and rounds no product",
    "daskcluster.methods.kernel_kmeans.chunkwise": "the same; rules pairs out, differences decide",
    "daskcluster.data.dataset": "of whole numbers",
    "daskcluster.chunkwise.pruned": "of a sample, axes and their costs; labels do not depend on them",
    "daskcluster.kernels.quantized": "of projections, whose errors are covered in any order",
    "daskcluster.methods.duplicates.chunkwise": "rules pairs out with room; exact measures decide",
    "daskcluster.methods.duplicates.search": "the same",
    "daskcluster.metrics.separation": "of values so short that products are exact",
}
NO_RESULTS = ("dashboard", "reports")


def results() -> list[Path]:
    """Return the modules that results go through; the linter bans single functions there."""
    return [path for path in MODULES if room_of(name_of(path)) not in NO_RESULTS]


def is_product(node: ast.AST) -> bool:
    dotted = isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".dot")
    return dotted or (
        isinstance(node, (ast.BinOp, ast.AugAssign)) and isinstance(node.op, ast.MatMult)
    )


def test_products_of_matrices_are_those_that_any_machine_rounds_alike() -> None:
    found = {name_of(path) for path in results() if any(map(is_product, ast.walk(tree_of(path))))}
    assert found == set(PRODUCTS), "use (a * b).sum(axis=...) or a kernel, or give the reason here"


def test_equals_are_sorted_alike_on_any_machine() -> None:
    calls = [
        (path, ast.unparse(node))
        for path in results()
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("argsort")
    ]
    assert calls
    stable = ("kind='stable'", "kind='mergesort'")  # the second is how numba calls it
    assert [call for call in calls if not any(kind in call[1] for kind in stable)] == []


def test_every_library_is_declared() -> None:
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = re.compile(r"^[A-Za-z0-9_.-]+")
    required = {names.match(line).group().lower() for line in table["dependencies"]}
    optional = {
        names.match(line).group().lower()
        for lines in table["optional-dependencies"].values()
        for line in lines
    }
    assert {DISTRIBUTIONS.get(name, name) for name in EXTRAS_ONLY} <= optional
    imported = {target.split(".")[0] for path in MODULES for target in imports_of(path)}
    for name in sorted(imported - set(sys.stdlib_module_names) - {"daskcluster"} - EXTRAS_ONLY):
        assert DISTRIBUTIONS.get(name, name) in required, f"{name} is not a dependency"


def test_every_folder_is_a_package() -> None:
    folders = {path.parent for path in MODULES}
    assert [folder for folder in folders if not (folder / "__init__.py").exists()] == []


def test_public_names_are_the_same_everywhere() -> None:
    tree = tree_of(PACKAGE / "__init__.py")
    seen_by_checkers = {
        alias.name: node.module
        for branch in tree.body
        if isinstance(branch, ast.If)
        for node in branch.body
        if isinstance(node, ast.ImportFrom) and node.module != "daskcluster"
        for alias in node.names
    }
    homes = vars(daskcluster)["_LAZY"]
    modules = vars(daskcluster)["_MODULES"]
    assert seen_by_checkers == homes
    assert set(daskcluster.__all__) == set(homes) | modules | {"__version__"}
    assert set(daskcluster.__all__) <= set(dir(daskcluster))


def test_public_names_are_there_and_documented() -> None:
    for name in set(daskcluster.__all__) - {"__version__"}:
        assert getattr(daskcluster, name).__doc__, name


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'KMean'"):
        daskcluster.KMean  # noqa: B018


def test_importing_the_package_imports_no_large_library() -> None:
    program = "import sys, daskcluster; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert HEAVY & set(done.stdout.split()) == set()


def test_the_installed_metadata_has_the_version_and_the_commands() -> None:
    try:
        found = importlib.metadata.version("daskcluster")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("running from a checkout that is not installed")
    assert found == daskcluster.__version__
    (script,) = importlib.metadata.entry_points(group="console_scripts", name="daskcluster")
    assert callable(script.load())
    (command,) = importlib.metadata.entry_points(group="dask_cli", name="daskcluster")
    assert command.load().name == "daskcluster"  # what Dask calls its sub-command


def test_the_type_marker_is_shipped() -> None:
    assert (PACKAGE / "py.typed").exists()
