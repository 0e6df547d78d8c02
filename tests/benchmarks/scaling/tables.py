"""The tables of the section ``scaling``."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from daskcluster.reports.pages import format_seconds
from tests.benchmarks.harness.parts import Note, Table
from tests.benchmarks.scaling.projections import CORESET, N_CLUSTERS, SHAPES, TOUCHED

Records = Sequence[Mapping[str, Any]]


def rates_table(kept: Mapping[str, Any]) -> Table | Note:
    """Return the measured rates of single steps."""
    if "rates" not in kept:
        return Note("The rates of this machine were not measured; the built-in rates are used.")
    rates, errors = kept["rates"]["rates"], kept["rates"]["errors"]
    table = Table(
        "Rates of single steps on one core",
        ["step", "cost", "largest error over shapes"],
        notes=[
            "Measured as by `python -m tests.benchmarks calibrate`: elapsed time for kernels, CPU time for "
            "the other steps."
        ],
    )
    units = (("product", "ps per product"), ("value", "ps per value"), ("row", "ns per row"))
    for kernel, title in (
        ("nearest", "nearest of all centres"),
        ("truncated", "truncated EM"),
        ("scan", "pass of a coreset"),
    ):
        found = rates[kernel]
        scale = {"product": 1e12, "value": 1e12, "row": 1e9}
        costs = ", ".join(
            f"{scale[key] * found[key]:.3g} {unit}" for key, unit in units if found[key]
        )
        table.rows.append([title, costs, f"{100 * errors[kernel]:.0f} %"])
    table.rows.append(["reading and decoding", f"{1e9 * rates['decode']:.3g} ns per byte", None])
    for role in ("client", "scheduler", "worker"):
        table.rows.append([role, _role(rates[role]), None])
    table.rows.append(["slow-down of a core when all are busy", f"{rates['together']:.2f}", None])
    table.rows.append(["waiting in a pass", f"{1e3 * rates['round_trip']:.3g} ms", None])
    return table


def _role(found: Mapping[str, float]) -> str:
    parts = (
        ("a_pass", 1e3, "ms per pass"), ("a_task", 1e3, "ms per task"),
        ("a_handle", 1e6, "us per cached partition"), ("a_worker", 1e6, "us per worker"),
        ("a_byte", 1e9, "ns per byte"),
    )  # fmt: skip
    return ", ".join(f"{scale * found[key]:.3g} {unit}" for key, scale, unit in parts if found[key])


def workers_table(records: Records) -> Table | Note:
    """Return the passes on 1 to 8 workers."""
    if not records:
        return Note("Passes on several workers were not measured.")
    return Table(
        "Measured and predicted seconds of a Lloyd pass on workers of one thread",
        ["pass", "n, d, k", "workers", "measured", "predicted", "predicted / measured", "bottleneck"],
        [
            [
                record["problem"], record["shape"], record["workers"], record["measured"],
                record["predicted"], _ratio(record), record["bottleneck"],
            ]
            for record in records
        ],
        notes=[
            "Medians over the iterations of one fit, from the third on. `reading` caches no rows.",
            "Client, scheduler and all workers share the cores of the machine; the model includes this.",
            _errors(records),
        ],
        name="workers-of-one-thread",
    )  # fmt: skip


def lines_table(records: Records) -> Table | Note:
    """Return the passes with limited bandwidth."""
    if not records:
        return Note(
            "Passes over limited bandwidth were not measured: that needs root and iproute2."
        )
    return Table(
        "Measured and predicted seconds of a Lloyd pass on 4 workers with limited bandwidth",
        ["pass", "n, d, k", "Mbit/s", "measured", "predicted", "predicted / measured", "bottleneck"],
        [
            [
                record["problem"], record["shape"], f"{8e-6 * record['bandwidth']:.0f}", record["measured"],
                record["predicted"], _ratio(record), record["bottleneck"],
            ]
            for record in records
        ],
        notes=[
            "Scheduler, store and each worker run in network namespaces, with token buckets at both "
            "ends of "
            "each connection.",
            "`totals` sends 2 MB of centres to each worker and receives 4 MB from it; `bucket` "
            "reads all rows "
            "from an S3 server in every pass.",
            _errors(records),
        ],
        name="limited-bandwidth",
    )  # fmt: skip


def _ratio(record: Mapping[str, Any]) -> str:
    return f"{record['predicted'] / record['measured']:.2f}"


def _errors(records: Records) -> str:
    off = [abs(record["predicted"] / record["measured"] - 1) for record in records]
    return (
        f"Error of the prediction: median {100 * statistics.median(off):.0f} %, "
        f"largest {100 * max(off):.0f} %."
    )


def projection_tables(records: Records) -> Iterator[Table]:
    """Return a table for each of the large sets."""
    notes = _assumptions()
    for n, d in SHAPES:
        table = Table(
            f"Projected: {n:,} x {d:,} float32, {N_CLUSTERS:,} clusters",
            [
                "fit", "workers", "pass", "bottleneck", "whole fit", "bottleneck", "labels of all rows",
                "bottleneck",
            ],
            notes=notes,
            name=f"projected-{n}x{d}",
        )  # fmt: skip
        for record in records:
            if (record["n"], record["d"]) == (n, d):
                table.rows.append(_projected(record))
        yield table
        notes = []


def _projected(record: Mapping[str, Any]) -> list[Any]:
    if "refusal" in record:
        return [record["fit"], record["workers"], "does not fit", *[None] * 5]
    later, labels = record["later_pass"], record["labels_pass"]
    return [
        record["fit"], f"{record['workers']:,}", format_seconds(later["seconds"]), later["bottleneck"],
        format_seconds(record["seconds_at_most"]), record["bottleneck"],
        format_seconds(labels["seconds"]), labels["bottleneck"],
    ]  # fmt: skip


def _assumptions() -> list[str]:
    return [
        "Workers with one thread and 8 GiB, a network of 10 Gbit/s with 0.2 ms latency, a store that "
        "delivers 20 GB/s in total, rows as large on disk as decoded.",
        f"lloyd and bounds: 20 iterations; bounds checks {100 * TOUCHED:.0f} % of the rows on "
        "average (as on "
        f"MNIST). coreset + EM: {CORESET:,} rows, 50 iterations on 8 threads of the driver.",
    ]
