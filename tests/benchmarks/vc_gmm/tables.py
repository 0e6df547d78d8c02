"""Tables 1, S.1 and 2 from kept cells, next to the paper's; what was not run is left out and named."""

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
    """Cells of one set, compared with k-means++ on it."""

    def __init__(self, cells: Cells) -> None:
        self.cells, self.problem = cells, cells.problem
        self.reference = cells.outcomes(sweeps.base(self.problem, "k-means++"))

    def of(self, setting: Setting) -> list[Outcome]:
        return self.cells.outcomes(setting)

    def errors(self, outcomes: Iterable[Outcome]) -> list[float]:
        """Return by how much each is worse than k-means++ on average, in percent."""
        reference = mean(self.reference, lambda one: one.error)
        return [100.0 * relative_error(one.error, reference) for one in outcomes]

    def error(self, outcomes: Sequence[Outcome]) -> str | None:
        """Return mean and standard deviation over seeds of the relative error."""
        if not outcomes or not self.reference:
            return None
        return spread(self.errors(outcomes)) + " %"

    def speed_up(self, outcomes: Sequence[Outcome], get: Get) -> float | None:
        """Return the mean of k-means++ over the mean of these."""
        if not outcomes or not self.reference:
            return None
        return mean(self.reference, get) / mean(outcomes, get)


def mean(outcomes: Iterable[Outcome], get: Get) -> float:
    return statistics.fmean(get(one) for one in outcomes)


def spread(values: Sequence[float]) -> str:
    deviation = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.2f}{deviation}"


def times(value: float | None) -> str | None:
    """Return a speed-up as people write it."""
    if value is None:
        return None
    return f"{value:,.0f}x" if value >= 100 else f"{value:.1f}x"


def not_run(table: Table, sets: Iterable[Compared], shown: Iterable[str]) -> Table:
    """Say which sets a table lacks."""
    present = set(shown)
    lacking = [one.problem.name for one in sets if one.problem.name not in present]
    if lacking:
        table.notes.append(f"Not run yet: {', '.join(lacking)}.")
    return table


# -- Table 1 ------------------------------------------------------------------------------------------


def table_1(sets: Sequence[Compared]) -> Table:
    table = Table(
        "Table 1: relative error and speed-ups over k-means++; the paper's figures in brackets",
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
        "Relative error: that of the sum of squared distances over the mean of k-means++, all rows "
        "(mnist: the 10,000 test digits), mean ± standard deviation over seeds. Speed-ups: quotients of "
        "means.",
        "All stop when the free energy changes by less than 1e-4 of itself: k-means through F = -log C "
        "- D/2 log(2 pi e sigma^2). Times end with the last update, before labels and evaluating; the rule "
        "costs k-means nothing here, as an iteration's inertia comes out of its sums.",
        "Time is that of all processors together, as the paper's programs are sequential; shares are of "
        "it. A lower speed-up in time than in distances comes of a fast k-means: its distances are dense "
        "tiles. What else runs on the machine, and fits are kept from run to run, shows least in it.",
        "k-means is plain Lloyd, as in the paper (bounds would skip most of its distances). k-means++ "
        "draws one candidate a step as in the paper; greedy is the library's default, 2 + log C. Search by "
        'rows is the paper\'s to the letter, `search="row"`; both in turn is `search="alternate"`.',
        "Distances are those that iterations say they computed (the first one's with the search before "
        "it), and for seeding: C N (greedy: (candidates + 1) C N), AFK-MC2 m C^2 / 2 and one for each of "
        "its rows; a coreset: N.",
    ]


# -- Tables S.1 and 2 ---------------------------------------------------------------------------------


def costs_table(sets: Sequence[Compared]) -> Table:
    """Return Table S.1, with the distances a row and iteration that were counted."""
    wanted = [one for one in sets if sweeps.table_1(one.problem)]
    shown = [one for one in wanted if one.reference]
    table = Table(
        "Table S.1: cost in distances, and distances a row and iteration as counted",
        ["program", "coreset", "seeding", "an iteration", "memory",
         *(one.problem.name for one in shown)],
        notes=["A row looks at no more than C' + G^2 (+1) clusters in an iteration of var-GMM-S and "
               "vc-GMM, in the paper at C' G (+1). The columns of sets are means over all iterations, the "
               "search before the first among them, of N rows or of the N' of the coreset."],
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
        "Table 2: vc-GMM of one coreset with more and more clusters; seeding and EM apart",
        ["set", "N'", "C", "error a held-out row", "seeding, s", "EM, s", "iterations",
         "paper (80M, 3,072 features): C", "error", "seeding", "EM"],
        notes=["Times without the coreset. The paper's are of 20 cores."],
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
