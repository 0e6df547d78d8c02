"""Figures of Zhao et al., "Large-scale k-means clustering via variance reduction" (2018)."""

from __future__ import annotations

from tests.benchmarks.vrkm.programs import AT_TUNED

SPEEDUPS = {
    "batch": ("1.00", "1.00", "1.00"),
    "mini-batch": ("-", "-", "-"),
    "sgd": ("-", "-", "-"),
    "growbatch-rho": ("1.26", "-", "-"),
    "vrkm": ("2.07", "2.57", "2.04"),
    "vrkm++": ("4.14", "5.54", "4.30"),
    AT_TUNED: ("-", "-", "-"),
}
"""Table 3: speed-up to the final loss of batch k-means; Oxford, Pittsburgh, CIFAR-100."""

LOSSES = {
    "batch": ("6,574,972", "6,147,102"),
    "mini-batch": ("6,599,589", "6,193,337"),
    "sgd": ("6,600,734", "6,271,261"),
    "growbatch-rho": ("6,572,795", "6,161,949"),
    "vrkm": ("6,569,367", "6,134,762"),
    "vrkm++": ("6,568,354", "6,132,739"),
    AT_TUNED: ("-", "-"),
}
"""Table 3: final losses; Oxford and CIFAR-100."""

AGREEMENT = {
    "batch": ("0.2148 (0.0015)", "0.3701 (0.0012)", "0.2410 (0.0006)"),
    "mini-batch": ("0.2122 (0.0026)", "0.3546 (0.0024)", "0.2267 (0.0012)"),
    "sgd": ("0.1968 (0.0034)", "0.3357 (0.0032)", "0.2079 (0.0015)"),
    "growbatch-rho": ("0.2155 (0.0023)", "0.3592 (0.0020)", "0.2303 (0.0011)"),
    "vrkm": ("0.2246 (0.0018)", "0.3742 (0.0014)", "0.2488 (0.0009)"),
    "vrkm++": ("0.2246 (0.0018)", "0.3742 (0.0014)", "0.2488 (0.0009)"),
    AT_TUNED: ("-", "-", "-"),
}
"""Table 4: accuracy, NMI and purity on CIFAR-100, mean (variance) of ten runs."""
