"""What tests of leases share: many that begin at once, and whether one was overtaken."""

from __future__ import annotations

import threading

from daskcluster.errors import LeaseError
from daskcluster.storage.lease import Lease
from daskcluster.storage.location import Location


def take_at_once(folder: Location, n_jobs: int) -> tuple[list[Lease], list[LeaseError]]:
    """Return the leases that are held when many jobs want an output, and what the others were given."""
    leases = [Lease(folder, f"job-{number}", {}) for number in range(n_jobs)]
    barrier = threading.Barrier(n_jobs)
    refused: list[LeaseError] = []

    def take(lease: Lease) -> None:
        barrier.wait()
        try:
            lease.take()
        except LeaseError as error:
            refused.append(error)

    threads = [threading.Thread(target=take, args=(lease,)) for lease in leases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    held = [lease for lease in leases if lease.is_held]
    assert len(held) + len(refused) == n_jobs
    return held, refused


def is_lost(lease: Lease) -> bool:
    """Whether somebody else has the lease by now."""
    try:
        lease.check()
    except LeaseError:
        return True
    return False
