"""The engine of a command, from its flags."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from distributed.security import Security

    from daskcluster.engine.dask import DaskEngine
    from daskcluster.engine.local import LocalEngine


@dataclass(frozen=True)
class Place:
    """The flags of the engine: ``--scheduler --workers --threads --memory-limit --timeout --tls-...``."""

    scheduler: str = "local"
    workers: int | None = None
    threads: int | None = None
    memory_limit: int | None = None
    timeout: float = 10.0
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None

    def check(self) -> None:
        """Raise if flags contradict each other."""
        if self.is_remote and self.workers is not None:
            raise click.UsageError(
                "--workers starts a new cluster and --scheduler uses an existing one; give only one of "
                "them."
            )
        if self.is_remote and self.threads is not None:
            raise click.UsageError(
                "--threads is a setting of the workers behind --scheduler; leave it out."
            )
        self._check_certificates()

    def _check_certificates(self) -> None:
        if not (self.tls_ca or self.tls_cert or self.tls_key):
            return
        if not self.is_remote:
            raise click.UsageError(
                "--tls-ca, --tls-cert and --tls-key are for the scheduler that --scheduler names; "
                "give it, or leave them out."
            )
        if not (self.tls_ca and self.tls_cert):
            raise click.UsageError(
                "TLS needs both --tls-ca, the authority that the cluster trusts, and --tls-cert, "
                "a certificate from it; --tls-key too, unless the key is in the same file."
            )

    @property
    def is_remote(self) -> bool:
        return self.scheduler != "local"

    @contextmanager
    def open(self) -> Iterator[LocalEngine | DaskEngine]:
        """Yield the engine; afterwards, stop what was started for it."""
        self.check()
        if not self.is_remote and self.workers is None:
            from daskcluster.engine.local import LocalEngine

            yield LocalEngine(self.threads, memory_limit=self.memory_limit)
            return
        from daskcluster.engine.connect import connect, local_cluster
        from daskcluster.engine.dask import DaskEngine

        # Errors are reported once, by the command; the event loop would also log an interrupt. After the
        # imports, because distributed sets up logging of its own.
        for name in ("tornado.application", "distributed", "distributed.client"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        if self.workers is not None:
            with ExitStack() as stack:
                cluster = local_cluster(self.workers, self.threads or 1, self.memory_limit)
                with _children_ignore_interrupts():
                    client = stack.enter_context(cluster)
                yield DaskEngine(client, memory_limit=self.memory_limit, timeout=self.timeout)
            return
        with connect(self.scheduler, self.timeout, security=self._security()) as client:
            yield DaskEngine(client, memory_limit=self.memory_limit, timeout=self.timeout)

    def _security(self) -> Security | None:
        if self.tls_ca is None or self.tls_cert is None:
            return None
        from daskcluster.engine.tls import client_security

        return client_security(self.tls_ca, self.tls_cert, self.tls_key)


@contextmanager
def _children_ignore_interrupts() -> Iterator[None]:
    # Control-C on a terminal reaches the worker processes, too. This process stops them anyway; without
    # this, each of them would print a traceback first.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
