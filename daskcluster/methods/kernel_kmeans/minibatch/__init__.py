"""Kernel k-means by mini-batches."""
