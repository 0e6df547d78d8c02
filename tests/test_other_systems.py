"""What only Linux has is asked for in `daskcluster.host` alone, and nothing needs it."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from daskcluster import host

PACKAGE = Path(host.__file__).parent
MODULES = [path for path in sorted(PACKAGE.rglob("*.py")) if path != PACKAGE / "host.py"]
MODULES_OF_A_SYSTEM = {"ctypes", "resource", "msvcrt", "winreg", "multiprocessing"}
FOLDERS = ("/proc", "/sys/", "/dev/")
NAMES = {
    "os": (
        "copy_file_range eventfd fdatasync fork forkpty getrandom getxattr listxattr setxattr memfd_create "
        "pidfd_open pipe2 posix_fadvise posix_fallocate posix_openpt sched_getaffinity sched_setaffinity "
        "sendfile setns splice unshare O_DIRECT O_TMPFILE O_PATH O_NOATIME MFD_CLOEXEC"
    ),
    "signal": "SIGPWR SIGSTKFLT SIGRTMIN SIGRTMAX sigwaitinfo sigtimedwait pidfd_send_signal",
    "psutil": "PROCFS_PATH cpu_affinity io_counters ionice memory_full_info memory_maps num_fds rlimit",
    "select": "epoll EPOLLIN",
    "socket": "AF_NETLINK AF_PACKET AF_VSOCK SO_PEERCRED SO_BINDTODEVICE TCP_USER_TIMEOUT",
    "time": "CLOCK_BOOTTIME CLOCK_TAI clock_settime",
    "mmap": "MADV_HUGEPAGE MADV_NOHUGEPAGE MAP_POPULATE MAP_HUGETLB MREMAP_MAYMOVE",
    "glibc": "mallopt malloc_trim malloc_info prctl",
}
FORBIDDEN = {name for names in NAMES.values() for name in names.split()}


def of_one_system(tree: ast.AST) -> Iterator[str]:
    """Yield what a module takes from one system: names, modules, and paths below /proc and the like."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = {alias.name.split(".")[0] for alias in node.names}
            yield from names & MODULES_OF_A_SYSTEM
        elif isinstance(node, ast.ImportFrom):
            yield from {str(node.module).split(".")[0]} & MODULES_OF_A_SYSTEM
            yield from {alias.name for alias in node.names} & FORBIDDEN
        elif isinstance(node, ast.Attribute):
            yield from {node.attr} & FORBIDDEN
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from {node.value} & FORBIDDEN
            yield from [node.value] if node.value.startswith(FOLDERS) else []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import os\nos.sched_getaffinity(0)", ["sched_getaffinity"]),
        ("from os import posix_fadvise as drop", ["posix_fadvise"]),
        ("import ctypes.util", ["ctypes"]),
        ("open('/proc/self/status')", ["/proc/self/status"]),
        ("getattr(lib, 'mallopt')", ["mallopt"]),
        ("import os\nos.getloadavg()", []),
    ],
)
def test_functions_of_one_operating_system_are_found(text: str, found: list[str]) -> None:
    assert list(of_one_system(ast.parse(text))) == found


def test_only_the_host_knows_of_one_system() -> None:
    found = {
        str(path.relative_to(PACKAGE)): names
        for path in MODULES
        if (names := sorted(of_one_system(ast.parse(path.read_text(encoding="utf-8")))))
    }
    assert found == {}, "put it into daskcluster/host.py, with another way where it is missing"


# A process in which this package finds what a Mac has; libraries were chosen for Linux and stay so.
MAC = """
import builtins, ctypes, io, os, platform, sys
import dask, distributed, numba, numpy as np, psutil, sklearn.cluster, zarr  # each looks at the system once

def asked_by_us():
    frame = sys._getframe(2)
    while frame is not None:
        room = frame.f_globals.get("__name__", "").split(".")[0]
        if room in ("daskcluster", "psutil", "distributed", "dask", "numba"):
            return room == "daskcluster"
        frame = frame.f_back
    return False

def hidden(real):
    def opened(file, *arguments, **words):
        if str(file).startswith(("/proc", "/sys/", "/dev/shm")) and asked_by_us():
            looked.append(str(file))
            raise FileNotFoundError(2, "No such file or directory", str(file))
        return real(file, *arguments, **words)
    return opened

looked = []
builtins.open = io.open = hidden(io.open)
os.open = hidden(os.open)
for name in "sched_getaffinity sched_setaffinity posix_fadvise".split():
    delattr(os, name)
class NoGlibc:
    pass
ctypes.CDLL = lambda name: NoGlibc()
sys.platform = "darwin"
platform.system = lambda: "Darwin"
"""
FITS = """
import daskcluster as dc
from daskcluster import host
from daskcluster.cli.main import main
from distributed import Client, LocalCluster

rows = np.random.default_rng(0).random((3000, 4), dtype=np.float32)
np.save("rows.npy", rows)
fitted = dc.KMeans(3, random_state=0, engine=dc.LocalEngine(2, memory_limit=10**9)).fit("rows.npy")
fitted.predict("rows.npy", output="labels.zarr")
fitted.save("model")
assert (dc.load_model("model").predict(rows) == zarr.open_array("labels.zarr")[:]).all()
cluster = LocalCluster(n_workers=1, processes=False, dashboard_address="127.0.0.1:0")
with cluster, Client(cluster) as client:
    other = dc.KMeans(3, random_state=0, engine=client).fit("rows.npy")
assert (other.cluster_centers_ == fitted.cluster_centers_).all()
dc.KMeans(3, random_state=0, checkpoint="state").fit("rows.npy")
code = main(["demo", "--rows", "2000", "--workers", "0", "--no-progress", "--json"], standalone_mode=False)
assert not code, code
assert "/sys/fs/cgroup/memory.max" in looked, looked
assert host.usable_cores() == os.cpu_count()
assert host.machine_name() == platform.node() + "/"
print("as on a Mac")
"""


def test_fits_need_nothing_that_only_linux_has(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MAC + FITS],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert done.stdout.endswith("as on a Mac\n")


def test_there_are_as_many_cores_as_others_count() -> None:
    assert 1 <= host.usable_cores() <= psutil.cpu_count()
