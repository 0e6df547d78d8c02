"""Ceph's S3 gateway on loopback: a monitor, one object daemon in memory, and the gateway.

It needs the programs of Debian's packages ceph-mon, ceph-osd, radosgw and ceph-common; about 1 GB of
memory and a quarter of a minute. No manager daemon: nothing here needs one.
"""

from __future__ import annotations

import platform
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.servers.processes import ServerError, call, free_port, running, wait_for_port

PROGRAMS = ("ceph", "ceph-mon", "ceph-osd", "monmaptool", "radosgw", "radosgw-admin")
KEY, SECRET = "ceph-key-id", "ceph-secret-value"
_DEVICE_BYTES = 1 << 30

# Without authentication the daemons still negotiate one unless connections are reported to be in the clear.
_SETTINGS = """
[global]
fsid = {fsid}
mon host = [v2:127.0.0.1:{v2},v1:127.0.0.1:{v1}]
public addr = 127.0.0.1
auth cluster required = none
auth service required = none
auth client required = none
auth allow insecure global id reclaim = true
ms mon client mode = crc
ms client mode = crc
mon allow pool size one = true
mon warn on pool no redundancy = false
mon max pg per osd = 1000
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 8
osd pool default pgp num = 8
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
log file = {folder}/$name.log
run dir = {folder}/run
admin socket = {folder}/run/$name.asok
pid file = {folder}/run/$name.pid
[mon.a]
mon data = {folder}/mon
[osd.0]
osd data = {folder}/osd
osd objectstore = memstore
memstore device bytes = {device}
osd class load list = *
osd class default list = *
[client.rgw]
rgw data = {folder}/rgw
rgw frontends = beast endpoint=127.0.0.1:{port} tcp_nodelay=1
rgw run sync thread = false
rgw enable usage log = false
rgw dynamic resharding = false
"""


def missing() -> list[str]:
    """Return the programs that are not installed."""
    return [name for name in PROGRAMS if shutil.which(name) is None]


@contextmanager
def gateway(folder: Path) -> Iterator[str]:
    """Serve S3 within the block, for `KEY` and `SECRET`; yields the endpoint.

    Raises
    ------
    ServerError
        A daemon did not come up.
    """
    for name in ("mon", "osd", "rgw", "run"):
        (folder / name).mkdir(parents=True)
    port, address = free_port(), {"v1": free_port(), "v2": free_port()}
    cluster, conf = str(uuid.uuid4()), folder / "ceph.conf"
    places = {"fsid": cluster, "folder": folder, "device": _DEVICE_BYTES, "port": port, **address}
    conf.write_text(_SETTINGS.format(**places))
    with ExitStack() as stack:

        def daemon(*words: str) -> tuple[object, Path]:
            log = folder / f"{words[0]}.out"
            return stack.enter_context(running([*words, "-c", str(conf), "-f"], log)), log

        _make_monitor(folder, conf, cluster, address)
        daemon("ceph-mon", "-i", "a")
        _make_object_daemon(conf)
        daemon("ceph-osd", "-i", "0")
        _wait_until_up(conf)
        user = ["user", "create", "--uid=tests", "--display-name=tests"]
        keys = [f"--access-key={KEY}", f"--secret-key={SECRET}"]
        call(["radosgw-admin", "-c", str(conf), "-n", "client.rgw", *user, *keys])
        process, log = daemon("radosgw", "-n", "client.rgw")
        wait_for_port(port, process, log, 60)  # type: ignore[arg-type]
        yield f"http://127.0.0.1:{port}"


def _make_monitor(folder: Path, conf: Path, cluster: str, address: dict[str, int]) -> None:
    where = f"[v2:127.0.0.1:{address['v2']},v1:127.0.0.1:{address['v1']}]"
    made = str(folder / "monmap")
    call(["monmaptool", "--create", "--fsid", cluster, "--addv", "a", where, made])
    call(["ceph-mon", "-c", str(conf), "-i", "a", "--mkfs", "--monmap", made])


def _make_object_daemon(conf: Path) -> None:
    name = str(uuid.uuid4())
    call(["ceph", "-c", str(conf), "osd", "new", name], 30)
    call(["ceph-osd", "-c", str(conf), "-i", "0", "--mkfs", "--osd-uuid", name])
    host = platform.node().partition(".")[0]
    place = ["root=default", f"host={host}"]
    call(["ceph", "-c", str(conf), "osd", "crush", "add", "osd.0", "1.0", *place], 30)


def _wait_until_up(conf: Path) -> None:
    deadline = time.monotonic() + 60
    while "1 up" not in (said := call(["ceph", "-c", str(conf), "osd", "stat"], 30)):
        if time.monotonic() > deadline:
            raise ServerError(f"the object daemon does not come up: {said}")
        time.sleep(0.2)
