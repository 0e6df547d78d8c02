"""The tables of the model."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from daskcluster.reports.tables import format_seconds
from tests.benchmarks.harness.parts import Note, Table
from tests.benchmarks.scaling.projections import CORESET, N_CLUSTERS, SHAPES, TOUCHED

Records = Sequence[Mapping[str, Any]]


def rates_table(kept: Mapping[str, Any]) -> Table | Note:
    """Return what single steps take."""
    if "rates" not in kept:
        return Note("Rates of this machine were not measured; the built-in ones are used.")
    rates, errors = kept["rates"]["rates"], kept["rates"]["errors"]
    table = Table(
        "What single steps take of one core",
        ["step", "costs", "largest error over shapes"],
        notes=[
            "As `python -m tests.benchmarks calibrate` has them; kernels by the clock, others in "
            "processor time."
        ],
    )
    units = (("product", "ps a product"), ("value", "ps a value"), ("row", "ns a row"))
    for kernel, title in (
        ("nearest", "rows meet all centres"),
        ("truncated", "truncated EM"),
        ("scan", "a coreset's pass"),
    ):
        found = rates[kernel]
        scale = {"product": 1e12, "value": 1e12, "row": 1e9}
        costs = ", ".join(
            f"{scale[key] * found[key]:.3g} {unit}" for key, unit in units if found[key]
        )
        table.rows.append([title, costs, f"{100 * errors[kernel]:.0f} %"])
    table.rows.append(["reading and decoding", f"{1e9 * rates['decode']:.3g} ns a byte", None])
    for role in ("client", "scheduler", "worker"):
        table.rows.append([role, _role(rates[role]), None])
    table.rows.append(["a core where all are busy", f"{rates['together']:.2f} times as long", None])
    table.rows.append(["waiting, in a pass", f"{1e3 * rates['round_trip']:.3g} ms", None])
    return table


def _role(found: Mapping[str, float]) -> str:
    parts = (
        ("a_pass", 1e3, "ms a pass"), ("a_task", 1e3, "ms a task"),
        ("a_handle", 1e6, "us a partition held"), ("a_worker", 1e6, "us a worker"),
        ("a_byte", 1e9, "ns a byte"),
    )  # fmt: skip
    return ", ".join(f"{scale * found[key]:.3g} {unit}" for key, scale, unit in parts if found[key])


def workers_table(records: Records) -> Table | Note:
    """Return passes on 1 to 8 workers."""
    if not records:
        return Note("Passes on several workers were not measured.")
    return Table(
        "A pass of Lloyd's on workers of one thread, measured and predicted, seconds",
        ["pass", "n, d, k", "workers", "measured", "predicted", "predicted / measured", "held up by"],
        [
            [
                record["problem"], record["shape"], record["workers"], record["measured"],
                record["predicted"], _ratio(record), record["bottleneck"],
            ]
            for record in records
        ],
        notes=[
            "Medians of the iterations of one fit from the third on. `reading` keeps no row in memory.",
            "Client, scheduler and all workers share the machine's cores; the model knows how many.",
            _errors(records),
        ],
    )  # fmt: skip


def lines_table(records: Records) -> Table | Note:
    """Return passes over limited lines."""
    if not records:
        return Note(
            "Passes over lines of limited bandwidth were not measured: that needs root and iproute2."
        )
    return Table(
        "A pass of Lloyd's on 4 workers behind lines of limited bandwidth, seconds",
        ["pass", "n, d, k", "Mbit/s", "measured", "predicted", "predicted / measured", "held up by"],
        [
            [
                record["problem"], record["shape"], f"{8e-6 * record['bandwidth']:.0f}", record["measured"],
                record["predicted"], _ratio(record), record["bottleneck"],
            ]
            for record in records
        ],
        notes=[
            "Scheduler, store and each worker in a network namespace, token buckets on both ends of lines.",
            "`totals` sends 2 MB of centres and gets 4 MB of each worker; `bucket` reads all rows from a "
            "server of S3 in every pass.",
            _errors(records),
        ],
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
    for n, d in SHAPES:
        table = Table(
            f"Projected: {n:,} x {d:,} float32, {N_CLUSTERS:,} clusters",
            [
                "fit", "workers", "a pass", "held up by", "the fit", "held up by", "labels of all rows",
                "held up by",
            ],
            notes=_assumptions(),
        )  # fmt: skip
        for record in records:
            if (record["n"], record["d"]) == (n, d):
                table.rows.append(_projected(record))
        yield table


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
        "Workers of one thread and 8 GiB, lines of 10 Gbit/s, 0.2 ms between machines, a store that gives "
        "20 GB/s to all together, rows stored as large as decoded.",
        f"lloyd and bounds: 20 iterations. bounds: {100 * TOUCHED:.0f} % of the rows are looked at, on "
        f"average (MNIST's share). coreset + EM: {CORESET:,} rows, 50 iterations on 8 threads of the "
        "driver.",
    ]
