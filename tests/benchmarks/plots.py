"""How the benchmarks here draw: as those of the package."""

from daskcluster.bench.plots import canvas_of, legend, save, why_not

__all__ = ["canvas_of", "legend", "save", "why_not"]
