"""Interrupts that come at bad moments: within a constructor, within a finalizer."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

COMES_IN_A_CONSTRUCTOR = """
import signal
from daskcluster.cli.main import main
from daskcluster.cli.commands import info

class Half:
    def __init__(self):
        signal.raise_signal(signal.{number})
        self.file = 1
    def __del__(self):
        self.file.close()

async def late(half): ...

info.callback = lambda **_: late(Half()).send(None)
main(["info", "x"])
"""
COMES_IN_A_FINALIZER = """
import signal, time
from daskcluster.cli.main import main
from daskcluster.cli.commands import info

class Last:
    def __del__(self):
        signal.raise_signal(signal.{number})

def callback(**_):
    Last()
    time.sleep(20)

info.callback = callback
main(["info", "x"])
"""


@pytest.mark.parametrize("code", [COMES_IN_A_CONSTRUCTOR, COMES_IN_A_FINALIZER])
@pytest.mark.parametrize(
    ("number", "exit_code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 143)]
)
def test_an_interrupt_ends_the_command_whenever_it_comes(
    code: str, number: str, exit_code: int
) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", code.format(number=number)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert ended.returncode == exit_code, ended.stderr
    said = "Interrupted" if exit_code == 130 else "Terminated"
    assert ended.stderr.strip() == f"{said}; no half-written output was left."
