"""``python -m tests.benchmarks size``: project the time of a fit by number of workers."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from daskcluster.cli.console import Console
from daskcluster.cli.options import (
    INPUT,
    SIZE,
    WHERE,
    AlgorithmCommand,
    given_parameters,
    option,
    parameter_options,
    takes_console,
    takes_source,
)

if TYPE_CHECKING:
    from daskcluster.typing import Dataset
    from tests.benchmarks.scaling.model.projection import Projection

_SHAPE = re.compile(r"([1-9][0-9_]*)x([1-9][0-9_]*)")


class Counts(click.ParamType):
    """Whole numbers such as 10,100,1000."""

    name = "n,..."

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        if not re.fullmatch(r"[1-9][0-9]*(,[1-9][0-9]*)*", str(value)):
            self.fail(f"{value!r} is not a list of numbers such as 10,100,1000.", param, ctx)
        return tuple(int(count) for count in str(value).split(","))


@click.command("size", cls=AlgorithmCommand)
@click.argument("source", metavar="ROWSxFEATURES|SOURCE")
@takes_source()
@option(
    "--dtype",
    section=INPUT,
    type=click.Choice(("float16", "float32", "float64")),
    default="float32",
    show_default=True,
    help="Dtype of rows that are given by their shape.",
)
@option(
    "--stored",
    section=INPUT,
    type=click.FloatRange(min=0),
    default=1.0,
    show_default=True,
    help="Bytes in the store for each byte of decoded rows.",
)
@option(
    "--touched",
    section=INPUT,
    type=click.FloatRange(min=0, max=1),
    default=1.0,
    show_default=True,
    help="Average share of the rows that a pass with bounds checks.",
)
@parameter_options(required=("n_clusters",))
@option(
    "--workers",
    section=WHERE,
    type=Counts(),
    default="1,10,100,1000",
    show_default=True,
    metavar="N,...",
    help="Numbers of workers.",
)
@option(
    "--threads",
    section=WHERE,
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Threads of each worker, one core each.",
)
@option(
    "--worker-memory",
    section=WHERE,
    type=SIZE,
    default="8GiB",
    show_default=True,
    help="Memory of each worker.",
)
@option(
    "--bandwidth",
    section=WHERE,
    type=SIZE,
    default="1.25GB",
    show_default=True,
    help="Bytes per second between machines, and from the store to each worker.",
)
@option(
    "--store-bandwidth",
    section=WHERE,
    type=SIZE,
    help="Bytes per second from the store to all workers together. Default: no limit.",
)
@option(
    "--latency",
    section=WHERE,
    type=click.FloatRange(min=0),
    default=0.0002,
    show_default=True,
    help="Seconds of a message between machines.",
)
@option(
    "--rates",
    section=WHERE,
    metavar="FILE",
    help="Rates measured by `calibrate` on such a machine. Default: built-in rates.",
)
@takes_console  # metadata only: there is no progress to show
def command(
    source: str,
    opening: dict[str, Any],
    dtype: str,
    stored: float,
    touched: float,
    algorithm: str,
    workers: Sequence[int],
    threads: int,
    worker_memory: int,
    bandwidth: int,
    store_bandwidth: int | None,
    latency: float,
    rates: str | None,
    console: Console,
    **flags: Any,
) -> None:
    """Project the time of a fit by number of workers, and name its bottleneck.

    The rows need not exist: pass 80000000x3072 for 80000000 rows of 3072 features.
    """
    from daskcluster.methods.catalogue import plan_of
    from tests.benchmarks.scaling.model.cluster import Cluster
    from tests.benchmarks.scaling.model.projection import project_clusters
    from tests.benchmarks.scaling.model.rates import REFERENCE, load_rates

    given = given_parameters(flags)
    dataset = _dataset(source, opening, dtype)
    plan = plan_of(dataset, algorithm, given)
    if plan is None:
        raise click.UsageError(
            f"--algorithm {algorithm} has no plan of its passes, so its time cannot be projected."
        )
    clusters = [
        Cluster(
            count,
            threads,
            bandwidth=bandwidth,
            store_bandwidth=store_bandwidth or math.inf,
            latency=latency,
            driver_threads=threads,
        )
        for count in workers
    ]
    projections = project_clusters(
        dataset,
        plan,
        given["n_clusters"],
        clusters,
        worker_memory=worker_memory,
        rates=REFERENCE if rates is None else load_rates(rates),
        stored=stored,
        touched=touched,
    )
    record = {
        "n_rows": dataset.n_rows,
        "n_features": dataset.n_features,
        "dtype": str(dataset.dtype),
        "partitions": len(dataset.partitions),
        "bytes_decoded": dataset.bytes_of((0, dataset.n_rows)),
        "algorithm": algorithm,
        "n_clusters": given["n_clusters"],
        "passes_at_most": plan.passes_at_most,
        "projections": [each.facts() for each in projections],
    }
    console.emit(record, _lines(record, projections))


def _dataset(source: str, opening: dict[str, Any], dtype: str) -> Dataset:
    shape = _SHAPE.fullmatch(source)
    if shape is None:
        from daskcluster.jobs.run import open_metadata

        return open_metadata(source, opening)
    from daskcluster.data.generate import Mixture
    from tests.benchmarks.scaling.generated import GeneratedDataset

    return GeneratedDataset(Mixture(int(shape[2]), n_clusters=1, dtype=dtype), int(shape[1]))


def _lines(record: dict[str, Any], projections: Sequence[Projection]) -> list[tuple[str, str]]:
    from daskcluster.host import format_bytes

    shape = f"{record['n_rows']:,} x {record['n_features']:,} {record['dtype']}"
    parts = f"{format_bytes(record['bytes_decoded'])} in {record['partitions']:,} partitions"
    lines = [
        ("rows", f"{shape}, {parts}"),
        ("passes", f"at most {record['passes_at_most']:,}"),
    ]
    lines += [(f"{each.cluster.workers:,} workers", _described(each)) for each in projections]
    return lines


def _described(projection: Projection) -> str:
    from daskcluster.host import format_bytes
    from daskcluster.reports.pages import format_seconds

    found, memory = projection.forecast, projection.memory
    if found is None or memory is None:
        return f"does not fit: {projection.refusal}"
    each = format_bytes(memory.projected / max(1, projection.cluster.workers))
    return (
        f"a pass {format_seconds(found.later.seconds)} ({found.later.bottleneck}), "
        f"the fit at most {format_seconds(found.seconds)} ({found.bottleneck}), "
        f"labels {format_seconds(found.labels.seconds)} ({found.labels.bottleneck}), {each} each"
    )
