"""What jobs will cost, for dry runs: plans from metadata alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from daskcluster.estimators.plan import Plan
from daskcluster.host import format_bytes
from daskcluster.jobs.balanced_sample import model_of
from daskcluster.jobs.balanced_sample import plan_sample as cost_of_sample
from daskcluster.methods.catalogue import ALGORITHMS, plan_of
from daskcluster.methods.duplicates.search import DuplicatesPlan
from daskcluster.methods.partition.partitioning import PartitionPlan
from daskcluster.reports.tables import Rows
from daskcluster.typing import Dataset


@dataclass(frozen=True)
class OwnPlan:
    """The plan of a job that sizes its own work.

    Attributes
    ----------
    plan : DuplicatesPlan, PartitionPlan or another with their attributes
    what : str
        Begins the error if a limit refuses the job.
    lines : list of (str, str)
        Further lines of text.
    note : str
        What is to be said of the passes.
    """

    plan: Any
    what: str
    lines: Rows
    note: str = ""


def plan_fit(dataset: Dataset, given: Mapping[str, Any]) -> Plan | None:
    """Return the plan of a fit; None if its algorithm has none."""
    algorithm = given["algorithm"]
    known = {name: given[name] for name in ALGORITHMS.find(algorithm).parameters if name in given}
    return plan_of(dataset, algorithm, known)


def plan_coreset(dataset: Dataset, given: Mapping[str, Any]) -> Plan | None:
    """Return the plan of drawing a coreset, and of measuring its quality if that is asked for."""
    plan = plan_of(dataset, "coreset", {"n_clusters": 1, "coreset_size": given["size"]})
    if plan is None or given["quality"] is None:
        return plan
    return replace(plan, passes_at_most=plan.passes_at_most + 1)


def plan_sample(dataset: Dataset, given: Mapping[str, Any]) -> Plan:
    """Return the plan of drawing a balanced sample."""
    model = model_of(given["model"], given["storage_options"])
    return cost_of_sample(model, dataset, given["size"], given["how"])


def plan_duplicates(dataset: Dataset, given: Mapping[str, Any]) -> OwnPlan:
    """Return the plan of a search for near-duplicates."""
    plan = DuplicatesPlan.of(dataset)
    cells = ("cells", f"{plan.n_cells:,}, blocks of at most {plan.block_rows:,} rows")
    scratch = ("scratch", format_bytes(plan.bytes_scratch + plan.bytes_sorted))
    return OwnPlan(plan, "The search takes", [cells, scratch])


def plan_partition(dataset: Dataset, given: Mapping[str, Any]) -> OwnPlan:
    """Return the plan of dividing rows into partitions."""
    plan = PartitionPlan.of(dataset, given["target_size"], given["spill"])
    parts = ("partitions", f"{plan.n_partitions:,}, trained on {plan.sample_rows:,} rows")
    return OwnPlan(plan, "Partitions take", [parts], "; more if any is split")
