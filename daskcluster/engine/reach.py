"""How rows get to workers that cannot read them where they are."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from typing import Protocol, runtime_checkable

from daskcluster.engine.crew import Member
from daskcluster.errors import ReachError
from daskcluster.host import format_bytes, machine_name, process_token
from daskcluster.typing import Dataset, Range, Reach

SEND_BYTES = 256 * 1024**2
"""Rows of this process up to this size are sent to workers of other hosts."""


@runtime_checkable
class Portable(Protocol):
    """A dataset that can be written where other processes of this host read it."""

    def to_scratch(self, folder: str) -> Dataset: ...


def within_reach(dataset: Dataset, members: Mapping[str, Member]) -> bool:
    """Return True if the workers are where the dataset can be read."""
    if dataset.reach is Reach.EVERYONE:
        return True
    workers = members.values()
    if dataset.reach is Reach.HOST:
        # Shared disks are mounted elsewhere too: only opening it there tells.
        return True
    return all(member.process == process_token() for member in workers)


def held_size(dataset: Dataset, span: Range) -> int:
    """Bytes of the rows of a range, and of their weights, in memory."""
    weights = 8 * (span[1] - span[0]) if dataset.weights is not None else 0
    return dataset.bytes_of(span) + weights


def bring_near(
    dataset: Dataset, members: Mapping[str, Member], cleanup: ExitStack
) -> tuple[Dataset, bool]:
    """Return a dataset for the workers, and whether its rows have to travel with the tasks.

    Rows that only this process can read are sent if they are small, else written once to a scratch
    folder if all workers are on this host.

    Parameters
    ----------
    dataset : Dataset
    members : mapping of worker address to Member
    cleanup : ExitStack
        Removes the scratch folder.

    Raises
    ------
    ReachError
        Too large to send, and the workers are on other hosts.
    """
    if within_reach(dataset, members):
        return dataset, False
    size = held_size(dataset, (0, dataset.n_rows))
    if dataset.in_memory and size <= SEND_BYTES:
        return dataset, True
    here = on_this_host(members.values())
    if here and isinstance(dataset, Portable):
        folder = tempfile.mkdtemp(prefix="daskcluster-")
        cleanup.callback(shutil.rmtree, folder, ignore_errors=True)
        return dataset.to_scratch(folder), False
    if size <= SEND_BYTES:
        return dataset, True
    raise ReachError(
        f"{format_bytes(size)} of rows can be read by this process only, and the workers are on other "
        f"hosts (at most {format_bytes(SEND_BYTES)} are sent to them); write the rows to Zarr on a "
        "bucket or shared disk and open that, or run locally with engine='local'."
    )


def on_this_host(members: Iterable[Member]) -> bool:
    """Return True if all workers run on the machine of this process."""
    return all(member.host == machine_name() for member in members)
