"""Tables 1, S.1 and 2 from saved fits, with the figures of the paper; sets without fits are named."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tests.benchmarks.harness.parts import Table
from tests.benchmarks.vc_gmm import sweeps
from tests.benchmarks.vc_gmm.cells import Cells
from tests.benchmarks.vc_gmm.outcomes import Outcome, Setting, relative_error
from tests.benchmarks.vc_gmm.published import TABLE_1, TABLE_2, Line

Get = Callable[[Outcome], float]


class Compared:
    """Fits on one set, compared with k-means++ on the same set."""

    def __init__(self, cells: Cells) -> None:
        self.cells, self.problem = cells, cells.problem
        self.reference = cells.outcomes(sweeps.base(self.problem, "k-means++"))

    def of(self, setting: Setting) -> list[Outcome]:
        return self.cells.outcomes(setting)

    def errors(self, outcomes: Iterable[Outcome]) -> list[float]:
        """Return the errors relative to the mean of k-means++, in percent."""
        reference = mean(self.reference, lambda one: one.error)
        return [100.0 * relative_error(one.error, reference) for one in outcomes]

    def error(self, outcomes: Sequence[Outcome]) -> str | None:
        """Return mean and standard deviation over seeds of the relative error."""
        if not outcomes or not self.reference:
            return None
        return spread(self.errors(outcomes)) + " %"

    def speed_up(self, outcomes: Sequence[Outcome], get: Get) -> float | None:
        """Return the mean of k-means++ divided by the mean of `outcomes`."""
        if not outcomes or not self.reference:
            return None
        return mean(self.reference, get) / mean(outcomes, get)


def mean(outcomes: Iterable[Outcome], get: Get) -> float:
    return statistics.fmean(get(one) for one in outcomes)


def spread(values: Sequence[float]) -> str:
    deviation = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.2f}{deviation}"


def times(value: float | None) -> str | None:
    """Return a speed-up as text."""
    if value is None:
        return None
    return f"{value:,.0f}x" if value >= 100 else f"{value:.1f}x"


def not_run(table: Table, sets: Iterable[Compared], shown: Iterable[str]) -> Table:
    """Add a note that names the sets without fits."""
    present = set(shown)
    lacking = [one.problem.name for one in sets if one.problem.name not in present]
    if lacking:
        table.notes.append(f"Not run yet: {', '.join(lacking)}.")
    return table


# -- Table 1 ------------------------------------------------------------------------------------------


def table_1(sets: Sequence[Compared]) -> Table:
    table = Table(
        "Table 1: relative error and speed-ups over k-means++, with the paper's figures in brackets",
        ["set (the paper's)", "program", "runs", "relative error", "speed-up, distances",
         "speed-up, time", "iterations", "coreset + seeding"],
        notes=_notes_of_table_1(),
    )  # fmt: skip
    wanted = [one for one in sets if sweeps.table_1(one.problem)]
    for compared in (one for one in wanted if one.reference):
        for setting in sweeps.table_1(compared.problem):
            if outcomes := compared.of(setting):
                table.rows.append(_line(compared, setting, outcomes))
    return not_run(table, wanted, {row[0].split(" ")[0] for row in table.rows})


def _line(compared: Compared, setting: Setting, outcomes: Sequence[Outcome]) -> list[Any]:
    problem = compared.problem
    paper = TABLE_1.get(problem.stands_for, {}).get(setting.program)
    distances = compared.speed_up(outcomes, lambda one: one.distances)
    processor = compared.speed_up(outcomes, lambda one: one.processor)
    n_iter, share = (
        mean(outcomes, lambda one: one.n_iter), mean(outcomes, lambda one: one.share)
    )  # fmt: skip
    cells: list[tuple[str | None, Callable[[Line], str] | None]] = [
        (compared.error(outcomes), lambda line: f"{line.error:.2f} ± {line.spread:.2f} %"),
        (times(distances), lambda line: f"{line.distances:,}x"),
        (times(processor), lambda line: f"{line.time:,}x"),
        (f"{n_iter:.1f}" if n_iter else None, lambda line: f"{line.n_iter}"),
        (f"{share:.0%}" if n_iter else None, lambda line: f"{line.share} %"),
    ]
    name = f"{problem.name} ({problem.stands_for})" if problem.stands_for else problem.name
    return [name, setting.label, len(outcomes), *(_compared(*cell, paper) for cell in cells)]


def _compared(
    found: str | None, printed: Callable[[Line], str] | None, paper: Line | None
) -> str | None:
    if paper is None or found is None or printed is None:
        return found
    return f"{found} ({printed(paper)})"


def _notes_of_table_1() -> list[str]:
    return [
        "Relative error: relative difference of the sum of squared distances to the mean of "
        "k-means++, over "
        "all rows (mnist: the 10,000 test digits), mean ± standard deviation over seeds. Speed-ups: ratios "
        "of means.",
        "All programs stop when the free energy changes by less than 1e-4 of itself; for k-means, F "
        "= -log C "
        "- D/2 log(2 pi e sigma^2). Times end with the last update, before labels and evaluation. The rule "
        "costs k-means nothing here, because its sums give the inertia of an iteration.",
        "Time is CPU time of all threads, because the paper's programs are sequential, and because "
        "it depends "
        "least on other load; shares are shares of it. The speed-up in time is lower than in distances "
        "because k-means computes its distances in dense tiles, which is fast.",
        "k-means is plain Lloyd, as in the paper (bounds would skip most of its distances). k-means++ "
        "draws one candidate per step, as in the paper; greedy is the library's default, 2 + log C. Search "
        'by rows is exactly the paper\'s, `search="row"`; both searches in turn is `search="alternate"`.',
        "Distances: for iterations, as counted (the first includes the search before it). For seeding, C N "
        "(greedy: (candidates + 1) C N); for AFK-MC2, m C^2 / 2 and one for each of its rows; for a "
        "coreset, "
        "N.",
    ]


# -- Tables S.1 and 2 ---------------------------------------------------------------------------------


def costs_table(sets: Sequence[Compared]) -> Table:
    """Return Table S.1, with the counted distances per row and iteration."""
    wanted = [one for one in sets if sweeps.table_1(one.problem)]
    shown = [one for one in wanted if one.reference]
    table = Table(
        "Table S.1: cost in distances, and counted distances per row and iteration",
        ["program", "coreset", "seeding", "iteration", "memory",
         *(one.problem.name for one in shown)],
        notes=["In an iteration of var-GMM-S and vc-GMM, a row is compared with at most C' + G^2 (+1) "
               "clusters, in the paper with C' G (+1). The columns of sets are means over all iterations, "
               "including the search before the first, per row (vc-GMM and LWCS: per coreset row)."],
    )  # fmt: skip
    formulas = {
        "k-means++": ("-", "N C", "N C", "N D + C D"),
        "AFK-MC2": ("-", "N + m C^2 / 2", "-", "N D + C m D"),
        "LWCS": ("N", "N' + m C^2 / 2", "N' C", "N' D + C D"),
        "var-GMM-S": ("-", "N + m C^2 / 2", "N C' G", "N D + N C' + C G + C D"),
        "vc-GMM": ("N", "N' + m C^2 / 2", "N' C' G", "N' D + N' C' + C G + C D"),
    }
    for program, formula in formulas.items():
        counted = [_a_row(one, sweeps.base(one.problem, program)) for one in shown]
        table.rows.append([program, *formula, *counted])
    return not_run(table, wanted, {one.problem.name for one in shown})


def _a_row(compared: Compared, setting: Setting) -> float | None:
    outcomes = [one for one in compared.of(setting) if one.n_iter]
    if not outcomes:
        return None
    n = setting.coreset or compared.problem.rows
    return mean(outcomes, lambda one: one.stage_distances[2] / one.n_iter / n)


def table_2(sets: Sequence[Compared]) -> Table:
    table = Table(
        "Table 2: vc-GMM on one coreset by number of clusters, seconds of seeding and EM",
        ["set", "N'", "C", "error per held-out row", "seeding, s", "EM, s", "iterations",
         "paper (80M, 3,072 features): C", "error", "seeding", "EM"],
        notes=["Times exclude the coreset. The paper used 20 cores."],
    )  # fmt: skip
    wanted = [one for one in sets if sweeps.clusters(one.problem)]
    for compared in wanted:
        problem = compared.problem
        for setting, printed in zip(sweeps.clusters(problem), TABLE_2.items(), strict=True):
            outcomes = compared.of(setting)
            if not outcomes:
                continue
            error = mean(outcomes, lambda one: one.error) / (problem.rows // 5)
            others: list[Get] = [
                lambda one: one.stage_seconds[1],
                lambda one: one.stage_seconds[2],
                lambda one: one.n_iter,
            ]
            cells = [f"{value:.4g}" for value in (error, *(mean(outcomes, get) for get in others))]
            shape = [f"{problem.name}, {problem.shape}", f"{setting.coreset:,}", f"{setting.k:,}"]
            table.rows.append([*shape, *cells, f"{printed[0]:,}", *printed[1]])
    return not_run(table, wanted, {row[0].split(",")[0] for row in table.rows})
