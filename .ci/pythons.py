"""What the README promises, on every Python that pyproject.toml declares and this machine has.

    python3 .ci/pythons.py WORK [NAME...]     `.ci/run pythons` calls it; NAME: 3.11-oldest, 3.14, ...

Each Python has an empty environment, with the newest releases that go together. The oldest Python also has
one with the oldest that pyproject.toml allows: its floors, so that a floor is a release that was tried.
Warnings of Python's own about our code are errors throughout.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PATIENCE = 3600.0
TESTERS = ("hypothesis", "pytest", "pytest-timeout")
# Where we lean on the insides of others (task threads and greetings of distributed, its scheduler's pages,
# Zarr's buffers and stores), kernels, and fits of each family to the committed bits.
CUT = (
    "tests/engine/test_connect.py", "tests/engine/test_cache.py", "tests/dashboard/test_pages.py",
    "tests/data/test_zero_copy.py", "tests/storage/test_location.py", "tests/kernels/test_distance.py",
    "tests/kernels/test_accumulate.py", "tests/kernels/test_inertia.py", "tests/digests/test_digests.py",
)  # fmt: skip
SHOWN = ("dask", "numba", "numpy", "scikit-learn", "zarr")
PYTHON_BLOCK = re.compile(
    r"^(<!-- not run[^\n]*\n)?```python\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
STRICT = (
    "import warnings; "
    "warnings.filterwarnings('error', category=DeprecationWarning, module='daskcluster')\n"
)


@dataclass
class Trial:
    """One environment: its Python, the releases in it, and what became of each step."""

    name: str
    python: Path | None
    constraints: tuple[str, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)
    failed: str = ""
    versions: str = ""


def declared() -> list[str]:
    """Return the Pythons that the classifiers name, as in 3.11, oldest first."""
    found = (
        re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", line)
        for line in PROJECT["classifiers"]
    )
    return sorted((match[1] for match in found if match), key=lambda name: int(name[2:]))


def floors(requirements: list[str]) -> list[str]:
    """Return requirements with each floor as the only release that is allowed."""
    found = (re.match(r"([\w.-]+)(?:\[[\w,]+\])?>=([\w.]+)", line) for line in requirements)
    return [f"{match[1]}=={match[2]}" for match in found if match]


def find_python(name: str) -> Path | None:
    """Return a Python 3.N of the search path or of pyenv that starts."""
    at_hand = [shutil.which(f"python{name}")]
    kept = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for path in filter(None, [*at_hand, *sorted(kept.glob(f"{name}.*/bin/python"))]):
        program = "import ensurepip, sys; print('.'.join(map(str, sys.version_info[:2])))"
        asked = subprocess.run([path, "-c", program], capture_output=True, text=True, check=False)
        if asked.stdout.strip() == name:
            return Path(path)
    return None


def trials() -> list[Trial]:
    """Return the environments to try."""
    names = declared()
    oldest = tuple(floors([*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["plots"]]))
    first = Trial(f"{names[0]}-oldest", find_python(names[0]), oldest)
    return [first, *(Trial(name, find_python(name)) for name in names)]


def run(trial: Trial, work: Path) -> None:
    """Go through all steps up to the first that fails."""
    folder = work / trial.name
    folder.mkdir(parents=True)
    python = folder / ".venv" / "bin" / "python"
    for step, command, place in steps(trial, folder, python):
        place.mkdir(exist_ok=True)
        begin = time.perf_counter()
        succeeded = execute(command, place, folder / f"{step}.log", folder / "numba")
        trial.seconds[step] = time.perf_counter() - begin
        if step == "install" and succeeded:
            prepare(folder, python)
            trial.versions = versions(python)
        if not succeeded:
            trial.failed = step
            sys.stdout.write(f"--- {trial.name}, {step}: {' '.join(map(str, command))}\n")
            sys.stdout.write((folder / f"{step}.log").read_text(errors="replace")[-6000:] + "\n")
            return


def steps(trial: Trial, folder: Path, python: Path) -> list[tuple[str, list[object], Path]]:
    """Return each step's name, command and folder."""
    limits = folder / "constraints.txt"
    limits.write_text("\n".join(trial.constraints) + "\n")
    install = 'set -e; "$0" -m venv "$1"; "$1/bin/python" -m pip install --quiet -c "$2" "${@:3}"'
    package = folder / ".venv" / "bin" / "daskcluster"
    return [
        (
            "install",
            [
                "bash",
                "-c",
                install,
                trial.python,
                folder / ".venv",
                limits,
                f"{ROOT}[plots]",
                *TESTERS,
            ],
            folder,
        ),
        ("check", [python, "-m", "pip", "check"], folder),
        (
            "compile",
            [python, "-W", "error", "-m", "compileall", "-q", "-f", ROOT / "daskcluster"],
            folder,
        ),
        ("readme", [python, "readme.py"], folder / "readme"),
        ("demo", [package, "demo", "--rows", "5000", "--no-progress"], folder / "demo"),
        ("tests", [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *CUT], folder / "suite"),
    ]


def prepare(folder: Path, python: Path) -> None:
    """Make our warnings errors in all processes of an environment; put the program and the tests there."""
    where = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    packages = subprocess.run(where, capture_output=True, text=True, check=True).stdout.strip()
    (Path(packages) / "strict.pth").write_text(STRICT)
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = [match[2] for match in PYTHON_BLOCK.finditer(text) if match[1] is None]
    (folder / "readme").mkdir()
    (folder / "readme" / "readme.py").write_text("\n".join(blocks))
    # Without the package next to them, so that the installed one is what is tested.
    (folder / "suite").mkdir()
    shutil.copytree(ROOT / "tests", folder / "suite" / "tests")
    shutil.copy(ROOT / "pyproject.toml", folder / "suite")


def execute(command: list[object], place: Path, log: Path, cache: Path) -> bool:
    """Run a command with its output in a file; return whether it ended well and in time."""
    ours = ("PYTHON", "VIRTUAL_ENV", "DASKCLUSTER_", "NUMBA_", "PYTEST_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    environment |= {"NUMBA_CACHE_DIR": str(cache), "MPLBACKEND": "agg"}
    with log.open("w") as out:
        try:
            done = subprocess.run(
                list(map(str, command)),
                cwd=place, env=environment, stdout=out, stderr=out, timeout=PATIENCE, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            out.write(f"no end after {PATIENCE:.0f} s\n")
            return False
    return done.returncode == 0


def versions(python: Path) -> str:
    """Return the releases that matter most in an environment."""
    program = (
        "import sys, importlib.metadata as m;"
        "print(sys.version.split()[0], *(f'{n} {m.version(n)}' for n in sys.argv[1:]), sep=', ')"
    )
    asked = subprocess.run(
        [python, "-c", program, *SHOWN], capture_output=True, text=True, check=True
    )
    return asked.stdout.strip()


def row(trial: Trial) -> str:
    """Return a trial's line of the table."""
    if trial.python is None:
        return f"{trial.name:<12} not found here"
    verdict = f"FAILED in {trial.failed}" if trial.failed else "ok"
    parts = ", ".join(f"{step} {seconds:.0f}" for step, seconds in trial.seconds.items())
    whole = sum(trial.seconds.values())
    return f"{trial.name:<12} {verdict:<18} {whole:>5.0f} s  ({parts})  {trial.versions}"


def main(arguments: list[str]) -> int:
    """Run the trials that are named, or all, and print the table."""
    work, *names = arguments
    chosen = [each for each in trials() if not names or each.name in names]
    for trial in chosen:
        if trial.python is not None:
            run(trial, Path(work).resolve())
            sys.stdout.write(row(trial) + "\n")
            sys.stdout.flush()
    sys.stdout.write("\n".join(["", "--- Pythons", *map(row, chosen)]) + "\n")
    return 1 if not chosen or any(each.failed for each in chosen) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
