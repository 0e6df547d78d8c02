"""Variance-reduced k-means: steps of single rows between full passes."""
