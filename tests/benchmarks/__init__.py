"""Benchmarks against other libraries: ``python -m tests.benchmarks --help``."""
