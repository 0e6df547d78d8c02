"""Signals wait for a good moment, but not for ever."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from daskcluster.interrupts import deferred, deliver, pending

ERRORS = {signal.SIGINT: KeyboardInterrupt, signal.SIGTERM: InterruptedError}


class Came(Exception):
    pass


def test_a_signal_waits_until_it_is_asked_for() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with deferred({signal.SIGTERM: Came}):
        deliver()
        assert not pending()
        signal.raise_signal(signal.SIGTERM)
        assert pending()
        with pytest.raises(Came):
            deliver()
    assert not pending()
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_second_signal_does_not_wait() -> None:
    with deferred(ERRORS):
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(InterruptedError):
            signal.raise_signal(signal.SIGTERM)


def test_a_signal_that_nobody_asks_for_is_delivered_after_a_while() -> None:
    # The main thread sleeps in a lock, as it does while others compute.
    with deferred({signal.SIGTERM: Came}, seconds=0.05):
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(Came):
            threading.Event().wait(60)


def test_no_signal_is_delivered_after_the_block() -> None:
    with deferred({signal.SIGTERM: Came}, seconds=0.05):
        signal.raise_signal(signal.SIGTERM)
    time.sleep(0.1)
    assert not pending()


def test_signals_are_delivered_to_the_main_thread_only() -> None:
    heard: list[bool] = []

    def work() -> None:
        with deferred({signal.SIGTERM: Came}):
            deliver()
            heard.append(pending())

    with deferred({signal.SIGTERM: Came}):
        signal.raise_signal(signal.SIGTERM)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert heard == [False]
