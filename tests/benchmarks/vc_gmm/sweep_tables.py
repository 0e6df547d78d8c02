"""Tables of the sweeps: chain length, coreset size, truncation, tolerance, first searches."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from tests.benchmarks.harness.parts import Table
from tests.benchmarks.vc_gmm import sweeps
from tests.benchmarks.vc_gmm.outcomes import Outcome, Setting
from tests.benchmarks.vc_gmm.tables import Compared, mean, not_run, times


def chains_table(sets: Sequence[Compared]) -> Table:
    table = Table(
        "Figure 1, AFK-MC2 alone: relative error of the seeding by chain length m",
        ["set", *(f"m = {m}" for m in sweeps.CHAINS)],
    )
    wanted = [one for one in sets if sweeps.chains(one.problem)]
    for compared in wanted:
        cells = [
            compared.error(compared.of(setting)) for setting in sweeps.chains(compared.problem)
        ]
        if any(cells):
            table.rows.append([compared.problem.name, *cells])
    return not_run(table, wanted, {row[0] for row in table.rows})


def coresets_table(sets: Sequence[Compared]) -> Table:
    """Return Figures 1 and S.3 as numbers: errors, speed-ups and NMI by coreset size N'."""
    head = ("relative error", "distances", "time", "NMI")
    table = Table(
        "Figures 1 and S.3: relative error, speed-ups and NMI with the partition of k-means++ by "
        "coreset size N'",
        ["set", "N'", *(f"LWCS, {word}" for word in head), *(f"vc-GMM, {word}" for word in head),
         "k-means++ twice, NMI"],
        notes=["NMI: normalised mutual information with the partition of k-means++ from the same seed; the "
               "last column compares k-means++ from two seeds."],
    )  # fmt: skip
    wanted = [one for one in sets if sweeps.coresets(one.problem, "LWCS")]
    for compared in wanted:
        pairs = zip(
            *(sweeps.coresets(compared.problem, name) for name in ("LWCS", "vc-GMM")), strict=True
        )
        for lwcs, vc in pairs:
            cells = [cell for setting in (lwcs, vc) for cell in _gains(compared, setting)]
            if any(cells):
                yardstick = _information(compared.reference)
                table.rows.append([compared.problem.name, f"{lwcs.coreset:,}", *cells, yardstick])
    return not_run(table, wanted, {row[0] for row in table.rows})


def _gains(compared: Compared, setting: Setting) -> list[str | None]:
    outcomes = compared.of(setting)
    distances = compared.speed_up(outcomes, lambda one: one.distances)
    seconds = compared.speed_up(outcomes, lambda one: one.processor)
    return [compared.error(outcomes), times(distances), times(seconds), _information(outcomes)]


def _information(outcomes: Iterable[Outcome]) -> str | None:
    found = [one.nmi for one in outcomes if one.nmi is not None]
    return f"{statistics.fmean(found):.3f}" if found else None


def truncations_table(sets: Sequence[Compared]) -> Table:
    table = Table(
        "Relative error and iterations by truncation C' = G, without and with one random cluster (+1)",
        ["set", "program", *(f"{q}{'+1' * r}" for q in sweeps.TRUNCATIONS for r in (0, 1))],
    )
    wanted = [one for one in sets if sweeps.truncations(one.problem, "vc-GMM", 0)]
    for compared in wanted:
        for program in ("var-GMM-S", "vc-GMM"):
            columns = [sweeps.truncations(compared.problem, program, r) for r in (0, 1)]
            cells = [
                _with_iterations(compared, one)
                for pair in zip(*columns, strict=True)
                for one in pair
            ]
            if any(cells):
                table.rows.append([compared.problem.name, program, *cells])
    return not_run(table, wanted, {row[0] for row in table.rows})


def tolerances_table(sets: Sequence[Compared]) -> Table:
    table = Table(
        "Appendix F: relative error and iterations by tolerance on the relative change of the free energy",
        ["set", "program", *(f"{tol:.0e}" for tol in sweeps.TOLERANCES)],
        notes=["Errors are relative to k-means++ with 1e-4. The paper uses 1e-4, because smaller "
               "tolerances gain little for many more iterations."],
        name="appendix-f-tolerance",
    )  # fmt: skip
    wanted = [one for one in sets if sweeps.tolerances(one.problem, "vc-GMM")]
    for compared in wanted:
        for program in sweeps.CLUSTERING:
            settings = sweeps.tolerances(compared.problem, program)
            cells = [_with_iterations(compared, setting) for setting in settings]
            if any(cells):
                table.rows.append([compared.problem.name, program, *cells])
    return not_run(table, wanted, {row[0] for row in table.rows})


def warm_ups_table(sets: Sequence[Compared]) -> Table:
    table = Table(
        "Appendix F: relative error and iterations by number of searches before the first M-step",
        ["set", "program", "C' = G", *(f"{steps} searches" for steps in sweeps.WARM_UPS)],
        notes=["In the paper they help on RNA only: 2 or 4 of them, depending on the truncation."],
        name="appendix-f-searches",
    )
    wanted = [one for one in sets if sweeps.warm_ups(one.problem, *sweeps.WARMED_UP[0])]
    for compared in wanted:
        for line in sweeps.WARMED_UP:
            settings = sweeps.warm_ups(compared.problem, *line)
            cells = [_with_iterations(compared, setting) for setting in settings]
            if any(cells):
                size = f"{settings[0].truncation}{'+1' * settings[0].n_random}"
                table.rows.append([compared.problem.name, settings[0].label, size, *cells])
    return not_run(table, wanted, {row[0] for row in table.rows})


def _with_iterations(compared: Compared, setting: Setting) -> str | None:
    outcomes = compared.of(setting)
    if not outcomes or not compared.reference:
        return None
    return f"{compared.error(outcomes)}, {mean(outcomes, lambda one: one.n_iter):.1f}"
