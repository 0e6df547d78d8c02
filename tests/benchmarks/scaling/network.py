"""Hosts in network namespaces, with lines of limited bandwidth; needs root and iproute2."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from types import TracebackType
from typing import Self

NET = "10.213.78"
BRIDGE = "dcscaling"


def why_not() -> str | None:
    """Return why no network can be made here, None if one can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None or shutil.which("tc") is None:
        return "ip and tc are missing (Debian: iproute2)"
    return None


class Network:
    """Hosts joined by a bridge, on which this process has an address, too.

    Parameters
    ----------
    hosts : sequence of str
    """

    def __init__(self, hosts: Sequence[str]) -> None:
        self._numbers = {host: number for number, host in enumerate(hosts, 2)}

    def __enter__(self) -> Self:
        self._remove()  # of a run that was killed
        try:
            _ip("link", "add", BRIDGE, "type", "bridge")
            _ip("addr", "add", f"{NET}.1/24", "dev", BRIDGE)
            _ip("link", "set", BRIDGE, "up")
            for host in self._numbers:
                self._join(host)
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._remove()

    def address(self, host: str) -> str:
        return f"{NET}.{self._numbers[host]}"

    @property
    def addresses(self) -> dict[str, str]:
        return {host: self.address(host) for host in self._numbers}

    @staticmethod
    def within() -> tuple[str, ...]:
        """Return the words before a command that runs on the host ``{name}``."""
        return ("ip", "netns", "exec", f"{BRIDGE}-{{name}}")

    def limit(self, bandwidth: float) -> None:
        """Let so many bytes a second into and out of every host."""
        bits = f"{int(8 * bandwidth)}bit"
        # What comes in a burst is what a hundredth of a second would let through.
        burst = str(max(65_536, int(bandwidth / 100)))
        rule = ("root", "tbf", "rate", bits, "burst", burst, "latency", "200ms")
        for host in self._numbers:
            _run("tc", "qdisc", "replace", "dev", self._outer(host), *rule)
            space = ("ip", "netns", "exec", self._space(host))
            _run(*space, "tc", "qdisc", "replace", "dev", "eth0", *rule)

    def _join(self, host: str) -> None:
        space, outer = self._space(host), self._outer(host)
        _ip("netns", "add", space)
        _ip("link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", space)
        _ip("link", "set", outer, "master", BRIDGE, "up")
        _ip("-n", space, "addr", "add", f"{self.address(host)}/24", "dev", "eth0")
        _ip("-n", space, "link", "set", "eth0", "up")
        _ip("-n", space, "link", "set", "lo", "up")

    def _remove(self) -> None:
        for host in self._numbers:
            _ip("netns", "del", self._space(host), check=False)
        _ip("link", "del", BRIDGE, check=False)

    @staticmethod
    def _space(host: str) -> str:
        return f"{BRIDGE}-{host}"

    def _outer(self, host: str) -> str:
        return f"dcs{self._numbers[host]}"


def _ip(*words: str, check: bool = True) -> None:
    _run("ip", *words, check=check)


def _run(*words: str, check: bool = True) -> None:
    subprocess.run(words, check=check, capture_output=True)
