"""Hosts in network namespaces, with lines that may be cut or narrowed; needs root and iproute2."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_LEFT = re.compile(r"^dc(\d+)-(\S+)|dc(\d+)b(?=:)", re.MULTILINE)


def why_not() -> str | None:
    """Return why no network can be made here, None if one can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None or shutil.which("tc") is None:
        return "ip and tc are missing (Debian: iproute2)"
    return None


@contextmanager
def network_of(hosts: Sequence[str]) -> Iterator[Network]:
    """Yield a network of hosts; what processes left that were killed is removed first."""
    _remove_what_was_left()
    network = Network(hosts)
    try:
        network.make()
        yield network
    finally:
        network.remove()


class Network:
    """Hosts on a bridge, on which this process has an address, too.

    Names and addresses are those of this process: several may have a network at once, each one.

    Parameters
    ----------
    hosts : sequence of str
    """

    def __init__(self, hosts: Sequence[str]) -> None:
        self._numbers = {host: number for number, host in enumerate(hosts, 2)}
        self._owner = os.getpid()
        self._net = f"10.213.{self._owner % 254}"

    def address(self, host: str) -> str:
        return f"{self._net}.{self._numbers[host]}"

    @property
    def addresses(self) -> dict[str, str]:
        return {host: self.address(host) for host in self._numbers}

    def within(self, host: str = "{name}") -> tuple[str, ...]:
        """Return the words before a command that runs on a host, by default one called ``{name}``."""
        return ("ip", "netns", "exec", self._space(host))

    def limit(self, bandwidth: float) -> None:
        """Let so many bytes a second into and out of every host."""
        bits = f"{int(8 * bandwidth)}bit"
        # What comes in a burst is what a hundredth of a second would let through.
        burst = str(max(65_536, int(bandwidth / 100)))
        rule = ("root", "tbf", "rate", bits, "burst", burst, "latency", "200ms")
        for host in self._numbers:
            _run("tc", "qdisc", "replace", "dev", self._outer(host), *rule)
            _run(*self.within(host), "tc", "qdisc", "replace", "dev", "eth0", *rule)

    def cut_off(self, host: str) -> None:
        """Let nothing into and out of a host any more."""
        _run("ip", "link", "set", self._outer(host), "down")

    def make(self) -> None:
        bridge = _bridge(self._owner)
        _run("ip", "link", "add", bridge, "type", "bridge")
        _run("ip", "addr", "add", f"{self._net}.1/24", "dev", bridge)
        _run("ip", "link", "set", bridge, "up")
        for host in self._numbers:
            self._join(host)

    def _join(self, host: str) -> None:
        space, outer = self._space(host), self._outer(host)
        _run("ip", "netns", "add", space)
        _run("ip", "link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", space)
        _run("ip", "link", "set", outer, "master", _bridge(self._owner), "up")
        _run("ip", "-n", space, "addr", "add", f"{self.address(host)}/24", "dev", "eth0")
        _run("ip", "-n", space, "link", "set", "eth0", "up")
        _run("ip", "-n", space, "link", "set", "lo", "up")

    def remove(self) -> None:
        _remove(self._owner, [self._space(host) for host in self._numbers])

    def _space(self, host: str) -> str:
        return f"dc{self._owner}-{host}"

    def _outer(self, host: str) -> str:
        return f"dc{self._owner}h{self._numbers[host]}"


def answers(url: str) -> bool:
    """Whether a server of a network answers; no proxy knows these addresses."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=1):
            return True
    except OSError:
        return False


def _bridge(owner: int) -> str:
    return f"dc{owner}b"


def _remove_what_was_left() -> None:
    bridges = _run("ip", "-o", "link", "show", "type", "bridge", check=False)
    spaces: dict[int, list[str]] = {}
    for first, host, second in _LEFT.findall(_run("ip", "netns", "list", check=False) + bridges):
        owner = int(first or second)
        spaces.setdefault(owner, []).extend([f"dc{owner}-{host}"] if host else [])
    for owner, names in spaces.items():
        # A number may have come round again, to this process.
        if owner == os.getpid() or not Path(f"/proc/{owner}").exists():
            _remove(owner, names)


def _remove(owner: int, spaces: Sequence[str]) -> None:
    for space in spaces:
        _run("ip", "netns", "del", space, check=False)
    _run("ip", "link", "del", _bridge(owner), check=False)


def _run(*words: str, check: bool = True) -> str:
    return subprocess.run(words, check=check, capture_output=True, text=True).stdout
