"""Datasets: rows readable chunk by chunk, wherever they live, and the writers of row outputs."""
