"""Parts that all commands share: engine (`EngineOptions`), output (`Console`), errors and signals."""

from __future__ import annotations

import errno
import io
import os
import re
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from distributed import Client

    from daskcluster.engine.dask import DaskEngine
    from daskcluster.engine.local import LocalEngine
    from daskcluster.events import Callback

INTERRUPTED = 130
TERMINATED = 143
_MOMENT_SECONDS = 0.05


class Terminated(SystemExit):
    """SIGTERM or SIGHUP was received: exit with the same clean-up as after an error."""

    def __init__(self) -> None:
        super().__init__(TERMINATED)


_ERRORS: Mapping[int, type[BaseException]] = {
    signal.SIGINT: KeyboardInterrupt,
    signal.SIGTERM: Terminated,
    signal.SIGHUP: Terminated,
}


def listen() -> None:
    """Turn SIGTERM and SIGHUP into an exception, and Control-C into a quiet one.

    Containers are stopped with SIGTERM, and a terminal that is closed sends SIGHUP; partial outputs must be
    removed and worker processes stopped.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    signal.signal(signal.SIGTERM, _hear)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:  # else nohup ignores it
        signal.signal(signal.SIGHUP, _hear)
    # A shell makes background processes ignore Control-C; leave that as it is.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _hear)


def _hear(number: int, frame: FrameType | None) -> None:
    leave_quietly()
    raise _ERRORS[number]()


def leave_quietly() -> None:
    """Silence errors of half-constructed objects when they are freed after an interrupt."""
    sys.unraisablehook = _come_again
    warnings.simplefilter("ignore")


def _come_again(lost: sys.UnraisableHookArgs) -> None:
    # It was raised in a finalizer, where Python cannot propagate it: raise it again in a moment, and once,
    # for a second signal would end the clean-up of the first.
    number = next((one for one, error in _ERRORS.items() if lost.exc_type is error), None)
    if number is not None:
        main = threading.main_thread().ident
        again = threading.Timer(_MOMENT_SECONDS, signal.pthread_kill, [main, number])
        again.daemon = True
        again.start()


class _Output(io.FileIO):
    """A standard stream that discards what is written after its reader has gone away."""

    reader_is_gone = False

    def write(self, content: Any, /) -> int:
        if not self.reader_is_gone:
            try:
                return super().write(content)
            except OSError as error:
                if error.errno not in (errno.EPIPE, errno.EIO):  # EIO: the terminal was closed
                    raise
                self.reader_is_gone = True
        return memoryview(content).nbytes


def secure_streams() -> None:
    """Keep closed standard streams and pipes without a reader from ending the command.

    A closed one is opened as the null device, so that no file that is written gets its number.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, os.fdopen(number, "r" if number == 0 else "w", closefd=False))
        elif number and stream is getattr(sys, f"__{name}__"):
            text = io.BufferedWriter(_Output(number, "wb", closefd=False))
            how = {"encoding": stream.encoding, "errors": stream.errors}
            setattr(sys, name, io.TextIOWrapper(text, line_buffering=stream.line_buffering, **how))


def reader_is_gone() -> bool:
    """Return whether what this command prints on stdout is read no longer, so that it may end."""
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return isinstance(raw, _Output) and raw.reader_is_gone


class Failure(click.ClickException):
    """A known failure, shown as one line."""

    def __init__(self, error: BaseException) -> None:
        notes = getattr(error, "__notes__", [])
        text = " ".join(" ".join([str(error) or type(error).__name__, *notes]).split())
        super().__init__(in_flags(text))


def in_flags(text: str) -> str:
    """Return a text of the library, which names arguments, with the flags instead."""
    text = re.sub(r"overwrite=True( \(--overwrite\))?", "--overwrite", text)
    text = re.sub(r"\bmemory_limit=(?=\d)", "--memory-limit ", text)
    return text.replace("resume=True", "--resume")


DEBUG = "daskcluster.debug"
"""Key of ``--debug`` in the context of a command."""


@dataclass(frozen=True)
class EngineOptions:
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
        import logging

        from daskcluster.engine.connect import connect, local_cluster
        from daskcluster.engine.dask import DaskEngine

        # Errors are reported once, by the command; the event loop would also log an interrupt. After the
        # imports, because distributed sets up logging of its own.
        for name in ("tornado.application", "distributed", "distributed.client"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        if self.workers is not None:
            connected = local_cluster(self.workers, self.threads or 1, self.memory_limit)
        else:
            security = None
            if self.tls_ca is not None and self.tls_cert is not None:
                from daskcluster.engine.tls import client_security

                security = client_security(self.tls_ca, self.tls_cert, self.tls_key)
            connected = connect(self.scheduler, self.timeout, security=security)
        with ExitStack() as stack:
            with _children_ignore_interrupts(wanted=self.workers is not None):
                client = stack.enter_context(connected)
            yield DaskEngine(client, memory_limit=self.memory_limit, timeout=self.timeout)

    @contextmanager
    def connect(self) -> Iterator[Client]:
        """Yield a client of the scheduler; raise if none was given."""
        with self.open() as engine:
            client: Client | None = getattr(engine, "client", None)
            if client is None:
                raise click.UsageError(
                    "Missing option '--scheduler': the address of the scheduler."
                )
            yield client


@contextmanager
def _children_ignore_interrupts(*, wanted: bool) -> Iterator[None]:
    # Control-C on a terminal reaches the worker processes, too. This process stops them anyway; without
    # this, each of them would print a traceback first.
    if not wanted or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@dataclass(frozen=True)
class Console:
    """The output of a command by ``--json``, ``--progress`` and ``--quiet``.

    A short table or one JSON object goes to stdout, progress to stderr.
    """

    as_json: bool = False
    progress: bool | None = None
    quiet: bool = False

    def emit(self, record: dict[str, Any], rows: Sequence[tuple[str, str]]) -> None:
        """Write `rows` as a table, or `record` as JSON in the last line of stdout."""
        if self.as_json:
            import json  # which help does without

            click.echo(json.dumps(record, allow_nan=False))
        elif not self.quiet:
            width = max((len(name) for name, value in rows if value), default=0)
            for name, value in rows:
                click.echo(f"{name:<{width}}  {value}".rstrip())

    @contextmanager
    def watching(self) -> Iterator[tuple[Callback, ...]]:
        """Yield the callbacks that show progress on stderr, if enabled."""
        terminal = sys.stderr.isatty()
        if self.quiet or not (terminal if self.progress is None else self.progress):
            yield ()
            return
        from daskcluster.kernels.compiling import watched
        from daskcluster.reports.progress import ProgressBar

        display = ProgressBar(sys.stderr)
        text = "compiling kernels, once for this machine: {}"
        try:
            with watched(lambda number: display.note(text.format(number))):
                yield (display,)
        finally:
            display.close()
        # Commands without kernels do not import numba.
        if "daskcluster.kernels.jit" in sys.modules:
            from daskcluster.kernels.jit import compilations

            if compiled := compilations()[1]:
                tell(f"{compiled} kernels were compiled for this machine; later runs reuse them")


def tell(text: str) -> None:
    """Write a line on stderr."""
    click.echo(text, err=True)
