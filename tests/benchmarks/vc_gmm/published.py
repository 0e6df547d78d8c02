"""Table 1 of Hirschberger, Forster and Luecke (arXiv 1810.00803), and Table 2, as they were printed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Line:
    """One line of Table 1.

    Attributes
    ----------
    error, spread : float
        Percent that the quantisation error is above that of k-means++.
    time, distances : float
        Speed-ups over k-means++.
    n_iter : float
    share : int
        Percent of the time that coreset and seeding take.
    """

    error: float
    spread: float
    time: float
    distances: float
    n_iter: float
    share: int


TABLE_1 = {
    "KDD": {
        "k-means++": Line(0.0, 0.04, 1.0, 1.0, 13.0, 22),
        "var-GMM-S": Line(0.94, 0.07, 6.4, 23.4, 17.0, 1),
        "LWCS": Line(11.73, 0.18, 27.8, 24.2, 10.2, 3),
        "vc-GMM": Line(10.81, 0.08, 91.5, 361.0, 17.9, 12),
    },
    "RNA": {
        "k-means++": Line(0.0, 0.22, 1.0, 1.0, 18.0, 15),
        "var-GMM-S": Line(-1.59, 0.23, 1.6, 19.2, 72.3, 1),
        "LWCS": Line(11.24, 0.60, 21.2, 19.8, 14.2, 3),
        "vc-GMM": Line(7.28, 0.28, 33.3, 329.4, 47.8, 5),
    },
    "CIFAR-10": {
        "k-means++": Line(0.0, 0.02, 1.0, 1.0, 10.7, 9),
        "var-GMM-S": Line(-0.75, 0.02, 12.6, 16.4, 16.7, 1),
        "LWCS": Line(10.34, 0.03, 17.3, 17.6, 8.0, 2),
        "vc-GMM": Line(8.98, 0.03, 166.4, 207.8, 13.4, 20),
    },
    "SUSY": {
        "k-means++": Line(0.0, 0.01, 1.0, 1.0, 47.5, 7),
        "var-GMM-S": Line(0.76, 0.01, 10.1, 83.8, 63.7, 1),
        "LWCS": Line(9.89, 0.02, 395.3, 381.8, 19.3, 3),
        "vc-GMM": Line(9.55, 0.03, 1300.4, 9964.3, 62.8, 11),
    },
    "SONG": {
        "k-means++": Line(0.0, 0.01, 1.0, 1.0, 11.0, 19),
        "var-GMM-S": Line(0.99, 0.02, 24.9, 79.1, 26.2, 1),
        "LWCS": Line(10.42, 0.18, 10.5, 10.3, 9.1, 1),
        "vc-GMM": Line(9.23, 0.07, 166.6, 513.9, 22.3, 11),
    },
}

ROWS = {"KDD": 145_751, "RNA": 488_565, "CIFAR-10": 50_000, "SUSY": 5_000_000, "SONG": 515_345}
"""N of the paper's sets; speed-ups by coresets grow with it."""

TABLE_2 = {
    8_000: ("5.45e12", "02:44", "26:32"),
    16_000: ("5.31e12", "11:05", "46:26"),
    32_000: ("5.22e12", "27:03", "55:13"),
}
"""C -> quantisation error, time of seeding, time of EM, on 80 million tiny images and 20 cores."""
