"""The settings of each table of the reproduction."""

from __future__ import annotations

from dataclasses import replace

from tests.benchmarks.vc_gmm.outcomes import TOLERANCE, Setting
from tests.benchmarks.vc_gmm.problems import Problem

CHAINS = (1, 2, 5, 10, 20, 50, 100, 200)
CORESETS = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Coreset sizes in units of N' of the set."""
TRUNCATIONS = (2, 3, 5, 8)
TOLERANCES = (1e-3, TOLERANCE, 1e-5)
WARM_UPS = (0, 2, 4)
CLUSTERS = (1, 2, 4)
"""Numbers of clusters in units of C of the set, on one coreset."""
CLUSTERING = ("k-means++", "var-GMM-S", "LWCS", "vc-GMM")


def base(problem: Problem, program: str) -> Setting:
    """Return the paper's setting of a program on a set."""
    chain = 0 if "++" in program else problem.chain
    setting = Setting(program, problem.k, chain)
    if program in ("LWCS", "vc-GMM"):
        setting = replace(setting, coreset=problem.coreset)
    if program in ("var-GMM-S", "vc-GMM"):
        setting = replace(setting, truncation=problem.truncation, n_random=problem.n_random)
    return setting


def table_1(problem: Problem) -> list[Setting]:
    """Return the settings of Table 1; none for the set of Table 2."""
    if "clusters" in problem.sweeps:
        return []
    found = [base(problem, "k-means++")]
    found += [base(problem, "greedy k-means++")] if "greedy" in problem.sweeps else []
    found += [base(problem, "AFK-MC2"), base(problem, "var-GMM-S")]
    found += [literal(base(problem, "var-GMM-S"))] if "rows" in problem.sweeps else []
    return [
        *found,
        base(problem, "LWCS"),
        base(problem, "vc-GMM"),
        literal(base(problem, "vc-GMM")),
        alternating(base(problem, "vc-GMM")),
    ]


def literal(setting: Setting) -> Setting:
    """Return the setting with exactly the search of the paper."""
    return replace(setting, search="row")


def alternating(setting: Setting) -> Setting:
    """Return the setting with both searches in turn."""
    return replace(setting, search="alternate")


def most_wanted(problem: Problem) -> list[Setting]:
    """Return the settings to run first: Table 1 without the lines that the paper does not have."""
    return [
        setting
        for setting in table_1(problem)
        if setting.program != "greedy k-means++"
        and (setting.program, setting.search) != ("var-GMM-S", "row")
    ]


def chains(problem: Problem) -> list[Setting]:
    if "chain" not in problem.sweeps:
        return []
    return [replace(base(problem, "AFK-MC2"), chain=m) for m in CHAINS]


def coresets(problem: Problem, program: str) -> list[Setting]:
    if "coreset" not in problem.sweeps:
        return []
    sizes = [int(part * problem.coreset) for part in CORESETS]
    fitting = [size for size in sizes if problem.k <= size <= problem.rows]
    return [replace(base(problem, program), coreset=size) for size in fitting]


def truncations(problem: Problem, program: str, n_random: int) -> list[Setting]:
    if "truncation" not in problem.sweeps:
        return []
    return [
        replace(base(problem, program), truncation=q, n_random=n_random) for q in TRUNCATIONS
    ]  # fmt: skip


def tolerances(problem: Problem, program: str) -> list[Setting]:
    if "tolerance" not in problem.sweeps:
        return []
    return [replace(base(problem, program), tol=tol) for tol in TOLERANCES]


def warm_ups(problem: Problem, program: str, truncation: int, search: str) -> list[Setting]:
    if "warm-up" not in problem.sweeps:
        return []
    setting = replace(base(problem, program), truncation=truncation, search=search)
    return [replace(setting, warmup_steps=steps) for steps in WARM_UPS]


def clusters(problem: Problem) -> list[Setting]:
    if "clusters" not in problem.sweeps:
        return []
    return [replace(base(problem, "vc-GMM"), k=times * problem.k) for times in CLUSTERS]


WARMED_UP = (
    ("var-GMM-S", 2, "tile"),
    ("var-GMM-S", 3, "tile"),
    ("var-GMM-S", 3, "row"),
    ("vc-GMM", 3, "tile"),
    ("vc-GMM", 3, "row"),
    ("vc-GMM", 3, "alternate"),
)
"""Program, C' = G and search of the lines in the table of first searches."""


def all_sweeps(problem: Problem) -> list[Setting]:
    """Return the settings of all sections, each once."""
    found = chains(problem)
    for line in WARMED_UP:
        found += warm_ups(problem, *line)
    for program in ("LWCS", "vc-GMM"):
        found += coresets(problem, program)
    for program in ("var-GMM-S", "vc-GMM"):
        for n_random in (0, 1):
            found += truncations(problem, program, n_random)
    for program in CLUSTERING:
        found += tolerances(problem, program)
    return list(dict.fromkeys([*found, *clusters(problem), *table_1(problem)]))
