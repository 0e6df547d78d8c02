"""What comparisons and benchmarks share: turns, cells that are kept, tables, plots and pages."""
