"""What a worker's process keeps for the tasks of a pass, and how processes are distinguished."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from typing import Any

import pytest

from daskcluster.engine import operations as worker
from daskcluster.engine.operations import Payload
from daskcluster.engine.pass_run import is_visible_to
from daskcluster.engine.registry import WorkerInfo
from daskcluster.host import machine_name, process_token
from daskcluster.typing import Visibility

PREPARED: list[str] = []


class Operation:
    """Counts how often parameters are prepared."""

    def prepare(self, params: str) -> str:
        PREPARED.append(params)
        return params


@pytest.fixture
def slots(monkeypatch: pytest.MonkeyPatch) -> None:
    PREPARED.clear()
    monkeypatch.setattr(worker, "_prepared", type(worker._prepared)())


def unpack(fit: str, of_pass: str) -> Any:
    payload: Any = Payload(Operation(), f"{fit} {of_pass}", None, process_token())
    return worker._unpacked((fit, of_pass), pickle.dumps(payload), 1)[1]


@pytest.mark.usefixtures("slots")
def test_fits_next_to_one_another_prepare_their_parameters_once_a_pass() -> None:
    for of_pass in "01":
        for _ in range(3):
            assert [unpack(fit, of_pass) for fit in "abc"] == [f"{fit} {of_pass}" for fit in "abc"]
    assert PREPARED == ["a 0", "b 0", "c 0", "a 1", "b 1", "c 1"]


def test_no_two_processes_have_the_same_token() -> None:
    words = [sys.executable, "-c", "from daskcluster.host import process_token as t; print(t())"]
    other = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert int(other) != process_token() == process_token()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
def test_a_forked_process_gets_a_token_of_its_own() -> None:
    program = (
        "import os\nfrom daskcluster.host import process_token as token\nbefore = token()\n"
        "child = os.fork()\nif not child: os._exit(token() == before)\n"
        "assert token() == before\nassert os.waitpid(child, 0)[1] == 0"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_rows_of_this_process_are_not_within_reach_of_another_of_its_number() -> None:
    class Rows:
        visibility = Visibility.PROCESS

    def worker_info(process: int) -> dict[str, WorkerInfo]:
        return {"tcp://10.0.0.1:1": WorkerInfo(machine_name(), process)}

    rows: Any = Rows()
    assert is_visible_to(rows, worker_info(process_token()))
    assert not is_visible_to(rows, worker_info(os.getpid()))
